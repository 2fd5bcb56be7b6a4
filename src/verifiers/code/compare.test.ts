import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { PlainValue } from "../../sandbox/values.ts";
import { sameValue, showValue } from "./compare.ts";

describe("sameValue", () => {
  it("compares by type and structure", () => {
    const equal: [PlainValue, PlainValue][] = [
      [Number.NaN, Number.NaN],
      [-0, 0],
      [
        { a: 1, b: [2n] },
        { b: [2n], a: 1 },
      ],
      [[], []],
    ];
    for (const [a, b] of equal) expect(sameValue(a, b)).toBe(true);
    const different: [PlainValue, PlainValue][] = [
      [1, "1"],
      [1, 1n],
      [1, true],
      [null, undefined],
      ["", []],
      [[], {}],
      [[1], { 0: 1 }],
      [
        [1, 2],
        [2, 1],
      ],
      [[1], [1, undefined]],
      [{ a: undefined }, {}],
      [{}, { a: undefined }],
      [{ a: 1 }, { b: 1 }],
      [{ toString: 1 }, { valueOf: 1 }],
      [[Number.NaN], [0]],
    ];
    for (const [a, b] of different) {
      expect(sameValue(a, b)).toBe(false);
      expect(sameValue(b, a)).toBe(false);
    }
  });

  it("is true for a copy of any JSON value", () => {
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        expect(sameValue(value as PlainValue, structuredClone(value) as PlainValue)).toBe(true);
      }),
    );
  });
});

describe("showValue", () => {
  it("shows types, and stays short", () => {
    expect(showValue([1, "1", 1n, -0, null, undefined, { a: Number.NaN }])).toBe(
      '[1, "1", 1n, -0, null, undefined, {"a": NaN}]',
    );
    expect(showValue("x".repeat(1000), 10)).toBe('"xxxxxxxxx…');
  });
});
