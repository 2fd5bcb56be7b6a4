import fc from "fast-check";
import { expect, test } from "vitest";
import { type Narrow, narrowBF16, narrowF16, type Widen, widenBF16, widenF16 } from "./float16.ts";

const widen = (convert: Widen, values: number[]) => {
  const to = new Float32Array(values.length);
  convert(Uint16Array.from(values), to, 0);
  return [...to];
};
const narrow = (convert: Narrow, values: number[]) => {
  const to = new Uint16Array(values.length);
  convert(Float32Array.from(values), to);
  return [...to];
};
const all = Array.from({ length: 65536 }, (_, i) => i);

test("widens known halves", () => {
  const halves = [0x0000, 0x8000, 0x0001, 0x83ff, 0x0400, 0x3c00, 0xc000, 0x7bff, 0x7c00, 0xfc00, 0x7e00, 0x3555];
  const values = [0, -0, 2 ** -24, -1023 * 2 ** -24, 2 ** -14, 1, -2, 65504, Infinity, -Infinity, NaN, 0.333251953125];
  expect(widen(widenF16, halves)).toEqual(values);
});

test("widens known bfloat16", () => {
  const values = [1, -2, 2 ** -133, Infinity, -Infinity, NaN, -0];
  expect(widen(widenBF16, [0x3f80, 0xc000, 0x0001, 0x7f80, 0xff80, 0x7fc0, 0x8000])).toEqual(values);
});

test.each([
  ["F16", widenF16, narrowF16, 0x7c00],
  ["BF16", widenBF16, narrowBF16, 0x7f80],
] as const)(
  "every %s comes back from float32, and between two the nearest is chosen, the even one at half",
  (_, widens, narrows, infinity) => {
    const values = widen(widens, all);
    const back = narrow(narrows, values);
    const numbers = all.filter((bits) => (bits & 0x7fff) <= infinity);
    expect(numbers.filter((bits) => back[bits] !== bits)).toEqual([]);
    const nan = all.filter((bits) => (bits & 0x7fff) > infinity);
    expect(nan.filter((bits) => (back[bits] & 0x7fff) <= infinity)).toEqual([]);
    const finite = numbers.filter((bits) => (bits & 0x7fff) < infinity - 1); // both neighbours are finite
    const at = (share: number) =>
      narrow(
        narrows,
        finite.map((bits) => values[bits] + share * (values[bits + 1] - values[bits])),
      );
    const below = at(0.25);
    const half = at(0.5);
    const above = at(0.75);
    // Shares of neighbouring bfloat16 subnormals are exact in float32 as well.
    expect(finite.filter((bits, i) => below[i] !== bits || above[i] !== bits + 1)).toEqual([]);
    expect(finite.filter((bits, i) => half[i] !== bits + (bits & 1))).toEqual([]);
  },
);

test("what is too large becomes infinity", () => {
  expect(narrow(narrowF16, [65519.996, 65520, -1e9, Infinity])).toEqual([0x7bff, 0x7c00, 0xfc00, 0x7c00]);
  expect(narrow(narrowBF16, [3.4e38, -Infinity])).toEqual([0x7f80, 0xff80]);
});

test("the float16 error is at most half a step", () => {
  fc.assert(
    fc.property(fc.float({ min: -65504, max: 65504, noNaN: true }), (value) => {
      const [got] = widen(widenF16, narrow(narrowF16, [value]));
      expect(Math.abs(got - value)).toBeLessThanOrEqual(Math.max(2 ** -25, Math.abs(value) * 2 ** -11));
    }),
  );
});
