import { describe, expect, it } from "vitest";
import { flopsOf, stepSeconds, writeCosts } from "./costs.ts";

describe("flopsOf", () => {
  const student = { parameters: 1000, forwardTokens: 50, trainedTokens: 200 };

  it("counts 2 P a token forwards and 6 P a token forwards and backwards", () => {
    expect(flopsOf({ student })).toEqual({ teacher: 0, student: 1_300_000, total: 1_300_000 });
    const teacher = { parameters: 7000, forwardTokens: 10 };
    expect(flopsOf({ student, teacher })).toEqual({ teacher: 140_000, student: 1_300_000, total: 1_440_000 });
  });

  it("claims no total where the teacher's size is unknown", () => {
    expect(flopsOf({ student, teacher: { parameters: null, forwardTokens: 10 } })).toEqual({
      teacher: null,
      student: 1_300_000,
      total: null,
    });
    expect(flopsOf({ student, teacher: { parameters: null, forwardTokens: 0 } }).total).toBe(1_300_000);
  });
});

it("costs.json is the costs, and seconds are the sum over steps", () => {
  const written: [string, string | Uint8Array][] = [];
  const costs = {
    method: "sft",
    teacherTokens: 0,
    studentTokens: 0,
    trainedTokens: 3,
    updates: 1,
    seconds: 2,
    flops: flopsOf({ student: { parameters: 1, forwardTokens: 0, trainedTokens: 3 } }),
  };
  writeCosts({ writeFile: (name, data) => written.push([name, data]) }, costs);
  expect(written[0][0]).toBe("costs.json");
  expect(JSON.parse(written[0][1] as string)).toEqual(costs);
  const metrics = [
    { step: 1, "time/total": 1.5 },
    { step: 2 },
    { step: 3, "time/total": null },
    { step: 4, "time/total": 2 },
  ];
  expect(stepSeconds({ metrics: () => metrics as never })).toBe(3.5);
});
