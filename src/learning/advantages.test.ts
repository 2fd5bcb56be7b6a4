import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { batchAdvantages, groupAdvantages, spreadAdvantages } from "./advantages.ts";

const GROUP = { scale: "group", ddof: 0, epsilon: 0 } as const;

describe("group advantages", () => {
  it("of [1, 1, 0, 0] are ±1", () => {
    expect(groupAdvantages([1, 1, 0, 0], GROUP)).toEqual([1, 1, -1, -1]);
  });

  it("one success in eight, for both conventions of the standard deviation", () => {
    const rewards = [1, 0, 0, 0, 0, 0, 0, 0];
    // Population √(7/64), sample √(1/8): the values that trainers with either convention give.
    expect(groupAdvantages(rewards, GROUP)[0]).toBeCloseTo(2.6458, 4);
    expect(groupAdvantages(rewards, GROUP)[1]).toBeCloseTo(-0.378, 4);
    expect(groupAdvantages(rewards, { ...GROUP, ddof: 1 })[0]).toBeCloseTo(2.4749, 4);
    expect(groupAdvantages(rewards, { ...GROUP, ddof: 1 })[1]).toBeCloseTo(-0.3536, 4);
  });

  it("are 0 for a group of one and for equal rewards, whatever ε and however the mean rounds", () => {
    for (const scale of ["group", "batch", "none"] as const) {
      expect(groupAdvantages([0.7], { ...GROUP, scale, ddof: 1 })).toEqual([0]);
      expect(groupAdvantages([0.1, 0.1, 0.1], { ...GROUP, scale })).toEqual([0, 0, 0]);
    }
  });

  it("scale none is centred only, scale batch divides by the deviation of all rewards", () => {
    expect(groupAdvantages([1, 0, 0, 0], { ...GROUP, scale: "none" })).toEqual([0.75, -0.25, -0.25, -0.25]);
    const [first, second] = batchAdvantages(
      [
        [1, 0],
        [1, 1],
      ],
      { scale: "batch", ddof: 0, epsilon: 0 },
    );
    expect(first[0]).toBeCloseTo(0.5 / Math.sqrt(3 / 16), 12);
    expect(second).toEqual([0, 0]);
  });

  it("sum to 0 and do not change when rewards are shifted or, for scale group, stretched", () => {
    const rewards = fc.array(fc.integer({ min: -8, max: 8 }), { minLength: 2, maxLength: 16 });
    fc.assert(
      fc.property(rewards, fc.integer({ min: 1, max: 5 }), fc.integer({ min: -3, max: 3 }), (r, factor, shift) => {
        const a = groupAdvantages(r, GROUP);
        expect(Math.abs(a.reduce((x, y) => x + y, 0))).toBeLessThan(1e-9);
        const moved = groupAdvantages(
          r.map((x) => factor * x + shift),
          GROUP,
        );
        for (const [i, x] of moved.entries()) expect(x).toBeCloseTo(a[i], 9);
      }),
    );
  });

  it("refuse a reward that is not finite", () => {
    expect(() => groupAdvantages([1, Number.NaN], GROUP)).toThrow("expected finite rewards, got NaN at 1");
  });

  it("of rewards −1 and 1 are those of 0 and 1", () => {
    expect(groupAdvantages([1, 1, -1, -1], GROUP)).toEqual([1, 1, -1, -1]);
    expect(groupAdvantages([1, -1, -1, -1], GROUP)).toEqual(groupAdvantages([1, 0, 0, 0], GROUP));
  });

  it("take sums that differ by rounding alone as equal", () => {
    expect(groupAdvantages([0.1 + 0.2, 0.3, 0.3], GROUP)).toEqual([0, 0, 0]);
  });

  it("leave-one-out compares with the mean of the others", () => {
    const rewards = fc.array(fc.integer({ min: -8, max: 8 }), { minLength: 2, maxLength: 16 });
    fc.assert(
      fc.property(rewards, (r) => {
        const a = groupAdvantages(r, { ...GROUP, scale: "none", baseline: "leave-one-out" });
        const total = r.reduce((x, y) => x + y, 0);
        for (const [i, x] of r.entries()) expect(a[i]).toBeCloseTo(x - (total - x) / (r.length - 1), 9);
      }),
    );
    expect(groupAdvantages([0.4], { ...GROUP, scale: "none", baseline: "leave-one-out" })).toEqual([0]);
  });

  it("are spread over the tokens of their sequences", () => {
    expect(Array.from(spreadAdvantages([1, 7, -1], [0, 2, 2, 5]))).toEqual([1, 1, -1, -1, -1]);
  });
});
