import { describe, expect, it } from "vitest";
import { splitOf } from "./compositions.ts";
import { labelledDemonstrations, transformsDemonstrations } from "./demonstrations.ts";

const labelled = labelledDemonstrations(1, { count: 600, wrongShare: 0.4 });

/** Result of text that this recipe rendered itself, as JSON; "throws" where it does. */
function resultOf(code: string, input: unknown): string {
  try {
    return JSON.stringify(new Function("xs", `return (${code})`)(structuredClone(input))) ?? "undefined";
  } catch {
    return "throws";
  }
}

describe("transformsDemonstrations", () => {
  it("is right or wrong on the hidden tests exactly as labelled", () => {
    for (const { demonstration, problem, mistake } of labelled) {
      const passes = problem.reference.hidden.every(
        (test) => resultOf(demonstration.completion, test.args[0]) === JSON.stringify(test.expected),
      );
      expect(passes, `${demonstration.prompt} ${demonstration.completion}`).toBe(mistake === undefined);
    }
  });

  it("makes every kind of mistake, at the share asked for", () => {
    const wrong = labelled.filter(({ mistake }) => mistake !== undefined);
    expect(wrong.length / labelled.length).toBeCloseTo(0.4, 1);
    expect(new Set(wrong.map(({ mistake }) => mistake)).size).toBe(6);
    expect(labelledDemonstrations(1, { count: 40, wrongShare: 0 }).some(({ mistake }) => mistake)).toBe(false);
  });

  it("comes from train families only, whatever the seed", () => {
    const others = labelledDemonstrations(99, { count: 100 });
    for (const { problem } of [...labelled, ...others]) expect(splitOf(problem.family)).toBe("train");
  });

  it("is the same for the same seed, and a small set starts the large one", () => {
    const demonstrations = labelled.map(({ demonstration }) => demonstration);
    expect(transformsDemonstrations(1, { count: 50, wrongShare: 0.4 })).toEqual(demonstrations.slice(0, 50));
    expect(transformsDemonstrations(2, { count: 50 })).not.toEqual(demonstrations.slice(0, 50));
  });
});
