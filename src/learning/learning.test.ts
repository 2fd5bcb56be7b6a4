import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { RandomStream } from "../base/random.ts";
import { batchAdvantages, groupAdvantages } from "./advantages.ts";
import { diagnoseGroups } from "./diagnosis.ts";
import { createGrpo, type GrpoOptions } from "./grpo.ts";
import { klTerm } from "./kl.ts";
import type { ObjectiveBatch } from "./objective.ts";

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
});

function randomBatch(seed: number, spread: number): ObjectiveBatch {
  const random = new RandomStream(seed, "batch");
  const lengths = [3, 1, 0, 6, 4];
  const offsets = [0];
  for (const length of lengths) offsets.push(offsets[offsets.length - 1] + length);
  const total = offsets[offsets.length - 1];
  const draw = (f: () => number) => Float64Array.from({ length: total }, f);
  const logprobs = draw(() => -3 * random.uniform() - 0.1);
  return {
    logprobs,
    rolloutLogprobs: logprobs.map((x) => x + spread * random.normal()),
    referenceLogprobs: logprobs.map((x) => x + spread * random.normal()),
    advantages: draw(() => random.normal()),
    mask: draw(() => Number(random.uniform() > 0.2)),
    offsets,
  };
}

describe("grpo", () => {
  const variants: Partial<GrpoOptions>[] = [
    {},
    { aggregation: "token-mean", clipHigh: 0.28 },
    { aggregation: "constant-length", constantLength: 16 },
    { klCoefficient: 0.04 },
    { klCoefficient: 0.1, klEstimator: "k1" },
    { klCoefficient: 0.1, klEstimator: "k2", clipLow: 0.1 },
  ];

  it.each(variants)("gradient of %j against finite differences", (options) => {
    const objective = createGrpo(options);
    for (const spread of [0.01, 0.5]) {
      const batch = randomBatch(11, spread);
      const { gradient } = objective(batch);
      for (let t = 0; t < gradient.length; t++) {
        const at = (delta: number) => {
          const logprobs = Float64Array.from(batch.logprobs);
          logprobs[t] += delta;
          return objective({ ...batch, logprobs }).loss;
        };
        const step = 1e-6;
        expect(gradient[t]).toBeCloseTo((at(step) - at(-step)) / (2 * step), 6);
      }
    }
  });

  it("agrees with the formula written out for two sequences", () => {
    const log = Math.log;
    const { loss, gradient, stats } = createGrpo()({
      logprobs: Float64Array.of(log(0.5), log(0.3), log(0.2)),
      rolloutLogprobs: Float64Array.of(log(0.4), log(0.3), log(0.4)),
      advantages: Float64Array.of(1, 1, -1),
      mask: Float64Array.of(1, 1, 1),
      offsets: [0, 2, 3],
    });
    // First sequence: ratios 1.25 (clipped to 1.2) and 1, mean 1.1. Second: ratio 0.5 at A = −1, clipped to 0.8.
    expect(loss).toBeCloseTo(-(1.1 - 0.8) / 2, 12);
    expect(Array.from(gradient)).toEqual([0, -0.25, -0].map((x) => expect.closeTo(x, 12)));
    expect(stats["clip/high"]).toBeCloseTo(1 / 3);
    expect(stats["clip/low"]).toBeCloseTo(1 / 3);
  });

  it("on the first update the ratio is 1: the loss is 0 for centred advantages, the gradient is not", () => {
    const logprobs = Float64Array.from({ length: 8 }, (_, i) => -i - 1);
    const result = createGrpo()({
      logprobs,
      rolloutLogprobs: logprobs,
      advantages: Float64Array.of(1, 1, 1, 1, -1, -1, -1, -1),
      mask: new Float64Array(8).fill(1),
      offsets: [0, 4, 8],
    });
    expect(result.loss).toBeCloseTo(0, 12);
    expect(Array.from(result.gradient)).toEqual([-1, -1, -1, -1, 1, 1, 1, 1].map((x) => x / 8));
    expect(result.stats).toMatchObject({ "clip/low": 0, "clip/high": 0, "ratio/mean": 1, "kl/rollout-k3": 0 });
  });

  it("a far-off token gives no infinity", () => {
    const { loss, gradient } = createGrpo({ klCoefficient: 0.1 })({
      logprobs: Float64Array.of(-1, -900),
      rolloutLogprobs: Float64Array.of(-900, -1),
      referenceLogprobs: Float64Array.of(-900, -1),
      advantages: Float64Array.of(-1, 1),
      mask: Float64Array.of(1, 1),
      offsets: [0, 2],
    });
    expect([loss, ...gradient].every(Number.isFinite)).toBe(true);
  });

  it.each([
    [{ offsets: [0, 2] }, "expected offsets from 0 to 14, got [0, …, 2]"],
    [{ advantages: new Float64Array(3) }, "expected 14 values of advantages, got 3"],
    [{ referenceLogprobs: undefined }, "expected referenceLogprobs for klCoefficient 0.1, got none"],
  ])("refuses arrays that do not belong together: %#", (change, message) => {
    expect(() => createGrpo({ klCoefficient: 0.1 })({ ...randomBatch(1, 0.1), ...change })).toThrow(message);
  });
});

describe("KL estimators", () => {
  it("k1 and k3 average to the divergence of two known distributions, and k3 is never negative", () => {
    const p = [0.5, 0.3, 0.2];
    const q = [0.4, 0.4, 0.2];
    const exact = p.reduce((sum, x, i) => sum + x * Math.log(x / q[i]), 0);
    for (const estimator of ["k1", "k3"] as const) {
      const expected = p.reduce((sum, x, i) => sum + x * klTerm(estimator, Math.log(x / q[i])).value, 0);
      expect(expected).toBeCloseTo(exact, 12);
    }
    fc.assert(fc.property(fc.double({ min: -30, max: 30, noNaN: true }), (d) => klTerm("k3", d).value >= 0));
  });
});

describe("group diagnosis", () => {
  const rollout = (reward: number | null, invalid = false) => ({ reward, passed: reward === 1, invalid });

  it("sorts groups by what they can teach, without errors", () => {
    const result = diagnoseGroups(
      [
        [rollout(1), rollout(0)],
        [rollout(1), rollout(1), rollout(null)],
        [rollout(0), rollout(0)],
        [rollout(0, true), rollout(0)],
        [rollout(1), rollout(null)],
      ],
      { klCoefficient: 0 },
    );
    expect(result).toMatchObject({ groups: 5, mixed: 1, allPass: 1, allFail: 2, formatOnly: 1, unjudged: 1 });
    expect(result.zeroAdvantageShare).toBeCloseTo(0.8);
    expect(result.text).toBe(
      "1 of 5 groups are mixed and teach the task, 1 all pass, 2 all fail, 1 differ in format only, 1 could not be judged",
    );
  });

  it("says what is left when nothing teaches the task", () => {
    const dead = [[rollout(0), rollout(0)]];
    expect(diagnoseGroups(dead, { klCoefficient: 0 }).text).toContain("so the update is empty");
    expect(diagnoseGroups(dead, { klCoefficient: 0.1 }).text).toContain("the KL term still gives a gradient");
  });
});
