import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { groupAdvantages } from "./advantages.ts";
import { type ComponentOptions, combineRewards } from "./components.ts";

const OPTIONS: ComponentOptions = {
  mode: "sum-then-normalize",
  weights: { right: 1, form: 0.5 },
  scale: "group",
  ddof: 0,
  epsilon: 0,
};
const GROUPS = [
  [
    { right: 1, form: 1, other: 5 },
    { right: 0, form: 1, other: 5 },
    { right: 0, form: 0, other: 1 },
  ],
  [
    { right: 0, form: 1, other: 2 },
    { right: 0, form: 0, other: 2 },
    { right: 0, form: 1, other: 2 },
  ],
];

describe("reward components", () => {
  it("sum-then-normalize is the advantage of the weighted sum", () => {
    const { advantages, rewards } = combineRewards(GROUPS, OPTIONS);
    expect(rewards).toEqual([
      [1.5, 0.5, 0],
      [0.5, 0, 0.5],
    ]);
    expect(advantages).toEqual(rewards.map((group) => groupAdvantages(group, OPTIONS)));
  });

  it("normalize-then-sum gives each component the same spread, then the batch", () => {
    const z = groupAdvantages;
    const raw = [
      z([1, 0, 0], OPTIONS).map((x, i) => x + 0.5 * z([1, 1, 0], OPTIONS)[i]),
      z([1, 0, 1], OPTIONS).map((x) => 0.5 * x),
    ];
    const options = { ...OPTIONS, mode: "normalize-then-sum" } as const;
    const plain = combineRewards(GROUPS, { ...options, normalizeBatch: false }).advantages;
    for (const [g, group] of raw.entries())
      for (const [i, x] of group.entries()) expect(plain[g][i]).toBeCloseTo(x, 12);
    const all = combineRewards(GROUPS, options).advantages.flat();
    expect(all.reduce((x, y) => x + y, 0)).toBeCloseTo(0, 12);
    expect(all.reduce((x, y) => x + y * y, 0) / all.length).toBeCloseTo(1, 12);
  });

  it("a component that is scaled up drowns the others in a sum, not after normalisation", () => {
    const scaled = (factor: number) => GROUPS.map((group) => group.map((c) => ({ ...c, form: factor * c.form })));
    const by = (mode: ComponentOptions["mode"], factor: number) =>
      combineRewards(scaled(factor), { ...OPTIONS, mode }).advantages[0];
    expect(by("normalize-then-sum", 100)[0]).toBeCloseTo(by("normalize-then-sum", 1)[0], 9);
    expect(by("sum-then-normalize", 1)[0]).toBeGreaterThan(1.3);
    expect(by("sum-then-normalize", 100)[0]).toBeLessThan(0.75);
  });

  it("logs every weighted component before and after normalisation", () => {
    const { components } = combineRewards(GROUPS, OPTIONS);
    expect(Object.keys(components)).toEqual(["right", "form"]);
    expect(components.right.mean).toBeCloseTo(1 / 6, 12);
    expect(components.right.std).toBeCloseTo(Math.sqrt(5) / 6, 12);
    expect(components.right.normalizedMean).toBeCloseTo(0, 12);
    // Only the first of two groups is told apart by it.
    expect(components.right.normalizedStd).toBeCloseTo(Math.sqrt(1 / 2), 12);
    expect(components.form.normalizedStd).toBeCloseTo(1, 12);
  });

  it("equal rollouts have advantage 0, and so have components that cancel", () => {
    for (const mode of ["sum-then-normalize", "normalize-then-sum"] as const) {
      fc.assert(
        fc.property(
          fc.double({ min: -5, max: 5, noNaN: true }),
          fc.double({ min: -5, max: 5, noNaN: true }),
          (r, f) => {
            const group = [0, 1, 2].map(() => ({ right: r, form: f }));
            expect(combineRewards([group, group], { ...OPTIONS, mode }).advantages.flat()).toEqual(Array(6).fill(0));
          },
        ),
      );
      const opposed = [0.1, 0.7, 0.3].map((x) => ({ right: x, form: -x }));
      const options = { ...OPTIONS, weights: { right: 0.3, form: 0.3 }, mode };
      expect(combineRewards([opposed], options).advantages[0].map(Math.abs)).toEqual([0, 0, 0]);
    }
    const rounded = [0.1, 0.7, 0.3].map((x) => ({ right: x, form: 1 - 3 * x }));
    const options = { ...OPTIONS, weights: { right: 1, form: 1 }, mode: "normalize-then-sum" } as const;
    expect(combineRewards([rounded], { ...options, normalizeBatch: false }).advantages[0]).not.toEqual([0, 0, 0]);
    expect(combineRewards([rounded], options).advantages[0]).toEqual([0, 0, 0]);
  });

  it.each([
    [{ weights: { speed: 1 } }, "expected a finite number for speed, got undefined"],
    [{ weights: {} }, "expected finite weights, got {}"],
    [{ weights: { right: Number.NaN } }, "expected finite weights"],
  ])("refuses what cannot be weighed: %#", (change, message) => {
    expect(() => combineRewards(GROUPS, { ...OPTIONS, ...change })).toThrow(message);
  });
});
