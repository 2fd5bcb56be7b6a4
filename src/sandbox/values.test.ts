import { deepStrictEqual } from "node:assert";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { plainValues } from "./fixtures/plain-values.ts";
import { decodeValue, encodeValue, MAX_DEPTH, ValueError } from "./values.ts";

describe("encodeValue and decodeValue", () => {
  it("give back every plain value, through JSON", () => {
    fc.assert(
      fc.property(plainValues, (value) => {
        deepStrictEqual(decodeValue(JSON.parse(JSON.stringify(encodeValue(value)))), value);
      }),
      { numRuns: 300 },
    );
  });

  it("refuse what is not plain data", () => {
    const cycle: unknown[] = [];
    cycle.push(cycle);
    class Point {}
    const refused = [() => 1, Symbol.iterator, new Date(0), new Map(), new Point(), cycle, new Array(2), [[new Set()]]];
    for (const value of refused) expect(() => encodeValue(value)).toThrow(ValueError);
  });

  it("refuse text that is not this encoding", () => {
    const deep = Array.from({ length: MAX_DEPTH + 2 }).reduce<unknown>((inner) => ["a", inner], 1);
    const refused = [
      {},
      [],
      ["x"],
      ["o", "key"],
      ["o", 1, 2],
      ["n", "12"],
      ["b", "0x1"],
      ["u", 1],
      ["b", 1],
      deep,
      undefined,
    ];
    for (const value of refused) expect(() => decodeValue(value)).toThrow(ValueError);
  });

  it("keep a key named __proto__ an ordinary key", () => {
    const value = decodeValue(["o", "__proto__", ["o", "polluted", true]]) as Record<string, unknown>;
    expect(Object.keys(value)).toEqual(["__proto__"]);
    expect(value.polluted).toBeUndefined();
  });
});
