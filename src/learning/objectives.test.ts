import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { RandomStream } from "../base/random.ts";
import { groupAdvantages, spreadAdvantages } from "./advantages.ts";
import { sliceBatch } from "./aggregation.ts";
import type { ObjectiveBatch } from "./objective.ts";
import { createObjective, objectiveOptions } from "./objectives.ts";
import { ADVANTAGE_PRESETS, type ObjectiveName, type ObjectiveOptions, PRESETS } from "./presets.ts";

const NAMES = Object.keys(PRESETS) as ObjectiveName[];

/** Five sequences in three groups, one of them empty; log-probabilities are `spread` apart. */
function randomBatch(seed: number, spread: number): Required<Omit<ObjectiveBatch, "total">> {
  const random = new RandomStream(seed, "batch");
  const offsets = [0, 3, 4, 4, 10, 14];
  const draw = (f: () => number) => Float64Array.from({ length: 14 }, f);
  const logprobs = draw(() => -3 * random.uniform() - 0.1);
  const near = (distance: number) => logprobs.map((x) => x + distance * random.normal());
  return {
    logprobs,
    rolloutLogprobs: near(spread),
    oldLogprobs: near(spread),
    referenceLogprobs: near(spread),
    advantages: draw(() => random.normal()),
    entropies: draw(() => 2 * random.uniform()),
    mask: draw(() => Number(random.uniform() > 0.2)),
    offsets,
    groups: [0, 0, 1, 1, 2],
  };
}

const VARIANTS: [ObjectiveName, Partial<ObjectiveOptions>][] = [
  ...NAMES.map((name): [ObjectiveName, Partial<ObjectiveOptions>] => [name, {}]),
  ["grpo", { klCoefficient: 0.04 }],
  ["grpo", { klCoefficient: 0.1, klEstimator: "k1" }],
  ["grpo", { klCoefficient: 0.1, klEstimator: "k2", clipLow: 0.1, dualClip: 1.3 }],
  ["grpo", { klCoefficient: 0.2, klRatio: true }],
  ["gspo", { klCoefficient: 0.2, klRatio: true, klEstimator: "k2" }],
  ["gspo-token", { klCoefficient: 0.2, klRatio: true }],
  ["grpo", { surrogate: "weighted", aggregation: "prompt-mean" }],
  ["grpo", { correction: "truncate", correctionCap: 1.1, entropyCoefficient: 0.01 }],
  ["dapo", { aggregation: "prompt-mean", correction: "mask", correctionCap: 1.5 }],
  ["dr-grpo", { constantLength: 16, correction: "mask", correctionLevel: "sequence", correctionFloor: 0.2 }],
  ["gspo", { clipLow: 0.1, clipHigh: 0.1, klCoefficient: 0.1, dualClip: 1.4 }],
  ["gspo", { surrogate: "weighted", aggregation: "token-mean" }],
  ["gspo-token", { clipLow: 0.1, clipHigh: 0.1, klCoefficient: 0.1 }],
  ["cispo", { ratioCap: 1.1, ratioFloor: 0.9, klCoefficient: 0.1 }],
  ["cispo", { ratio: "sequence", ratioCap: 1.05 }],
  ["reinforce", { correction: "truncate", entropyCoefficient: -0.1 }],
];

/**
 * The loss as a function of the log-probabilities, with what the objective holds constant held constant: a capped ratio
 * stays as it is when both its sides move, and a sequence-token ratio is a token ratio to log π − log s.
 */
function frozenLoss(name: ObjectiveName, options: Partial<ObjectiveOptions>, batch: ObjectiveBatch) {
  const settings = objectiveOptions(name, options);
  const held = { ...batch };
  if (settings.ratio === "sequence-token") {
    settings.ratio = "token";
    held.oldLogprobs = Float64Array.from(batch.logprobs);
    const old = batch.oldLogprobs ?? batch.rolloutLogprobs;
    for (let s = 0; s + 1 < batch.offsets.length; s++) {
      let sum = 0;
      let count = 0;
      for (let t = batch.offsets[s]; t < batch.offsets[s + 1]; t++) {
        sum += batch.mask[t] * (batch.logprobs[t] - old[t]);
        count += batch.mask[t];
      }
      for (let t = batch.offsets[s]; t < batch.offsets[s + 1]; t++) held.oldLogprobs[t] -= count > 0 ? sum / count : 0;
    }
  }
  const objective = createObjective(name, settings);
  return (t: number, delta: number) => {
    const moved = (array: ArrayLike<number>) => Float64Array.from(array, (x, i) => x + (i === t ? delta : 0));
    const capped = settings.surrogate === "capped";
    return objective({
      ...held,
      logprobs: moved(held.logprobs),
      rolloutLogprobs: capped ? moved(held.rolloutLogprobs) : held.rolloutLogprobs,
      oldLogprobs: capped && held.oldLogprobs ? moved(held.oldLogprobs) : held.oldLogprobs,
    }).loss;
  };
}

describe("gradients against finite differences", () => {
  it.each(VARIANTS)("%s %j", (name, options) => {
    for (const spread of [0.0001, 0.01, 0.5]) {
      for (const withOld of options.correction === undefined ? [true, false] : [true]) {
        const batch: ObjectiveBatch = randomBatch(11, spread);
        if (!withOld) batch.oldLogprobs = undefined;
        const { gradient, loss } = createObjective(name, options)(batch);
        const at = frozenLoss(name, options, batch);
        expect(at(0, 0)).toBeCloseTo(loss, 12);
        const step = 1e-6;
        for (let t = 0; t < gradient.length; t++) {
          expect(gradient[t], `token ${t}`).toBeCloseTo((at(t, step) - at(t, -step)) / (2 * step), 6);
        }
      }
    }
  });

  it("of the entropy bonus with respect to entropies", () => {
    for (const aggregation of ["sequence-mean", "token-mean", "prompt-mean", "constant-length"] as const) {
      const objective = createObjective("grpo", { entropyCoefficient: 0.3, aggregation });
      const batch = randomBatch(5, 0.1);
      const { entropyGradient } = objective(batch);
      const at = (t: number, delta: number) =>
        objective({ ...batch, entropies: batch.entropies.map((x, i) => x + (i === t ? delta : 0)) }).loss;
      for (let t = 0; t < 14; t++) {
        expect(entropyGradient?.[t]).toBeCloseTo((at(t, 1e-3) - at(t, -1e-3)) / 2e-3, 9);
      }
    }
    expect(createObjective("grpo")(randomBatch(5, 0.1)).entropyGradient).toBeUndefined();
  });
});

describe("every objective", () => {
  it("on a first update has ratio 1: centred advantages give a loss of 0, except A·log π; the gradient is not 0", () => {
    const logprobs = Float64Array.from({ length: 8 }, (_, i) => -i - 1);
    for (const name of NAMES) {
      const rewards = groupAdvantages([1, 0], ADVANTAGE_PRESETS[name]);
      const { loss, gradient, stats } = createObjective(name)({
        logprobs,
        rolloutLogprobs: logprobs,
        advantages: spreadAdvantages(rewards, [0, 4, 8]),
        mask: new Float64Array(8).fill(1),
        offsets: [0, 4, 8],
      });
      const logarithmic = ["cispo", "rloo", "reinforce"].includes(name);
      if (logarithmic) expect(Math.abs(loss)).toBeGreaterThan(0.1);
      else expect(loss).toBeCloseTo(0, 12);
      // All point the same way: up where the advantage is positive, every token alike.
      for (const [t, x] of gradient.entries()) expect(x).toBeCloseTo(t < 4 ? gradient[0] : -gradient[0], 12);
      expect(gradient[0]).toBeLessThan(-0.01);
      expect(stats).toMatchObject({ "clip/low": 0, "clip/high": 0, "ratio/mean": 1, "kl/rollout-k3": 0 });
    }
  });

  it("with equal rewards has a gradient of exactly 0, and with KL on another", () => {
    const { advantages: _, ...batch } = randomBatch(3, 0.1);
    for (const name of NAMES) {
      const advantages = spreadAdvantages(
        Array(5).fill(groupAdvantages([1, 1, 1], ADVANTAGE_PRESETS[name])[0]),
        batch.offsets,
      );
      const { gradient, loss } = createObjective(name)({ ...batch, advantages });
      expect(gradient.every((x) => x === 0) && loss === 0).toBe(true);
      const pulled = createObjective(name, { klCoefficient: 0.1 })({ ...batch, advantages });
      expect(pulled.gradient.some((x) => Math.abs(x) > 1e-4)).toBe(true);
    }
  });

  it("stays finite for far-off tokens, and for NaN where masked", () => {
    for (const [name, options] of VARIANTS) {
      const { loss, gradient, stats } = createObjective(
        name,
        options,
      )({
        logprobs: Float64Array.of(-1, -900, Number.NaN, -0.5),
        rolloutLogprobs: Float64Array.of(-900, -1, Number.NaN, -900),
        oldLogprobs: Float64Array.of(-900, -1, Number.NEGATIVE_INFINITY, -900),
        referenceLogprobs: Float64Array.of(-900, -1, Number.NaN, -1),
        advantages: Float64Array.of(-1, 1, Number.NaN, -1),
        entropies: Float64Array.of(0, 1, Number.NaN, 1),
        mask: Float64Array.of(1, 1, 0, 1),
        offsets: [0, 3, 4],
        groups: [0, 1],
      });
      expect(
        [loss, ...gradient, ...Object.values(stats)].every(Number.isFinite),
        `${name} ${JSON.stringify(options)}`,
      ).toBe(true);
      expect(gradient[2]).toBe(0);
    }
  });

  const variants = fc.constantFrom(...VARIANTS);
  const seeds = fc.integer({ min: 0, max: 1000 });
  const cut = fc.integer({ min: 0, max: 5 });

  it("adds up over any split into micro-batches", () => {
    fc.assert(
      fc.property(variants, seeds, cut, cut, ([name, options], seed, a, b) => {
        const objective = createObjective(name, options);
        const batch = randomBatch(seed, 0.3);
        const whole = objective(batch);
        const bounds = [0, Math.min(a, b), Math.max(a, b), 5];
        // The last two are slices of a slice.
        const rest = sliceBatch(batch, bounds[1], 5);
        const parts = [
          objective(sliceBatch(batch, 0, bounds[1])),
          objective(sliceBatch(rest, 0, bounds[2] - bounds[1])),
          objective(sliceBatch(rest, bounds[2] - bounds[1], 5 - bounds[1])),
        ];
        expect(parts.reduce((sum, { loss }) => sum + loss, 0)).toBeCloseTo(whole.loss, 12);
        const gradient = parts.flatMap((part) => Array.from(part.gradient));
        expect(gradient).toEqual(Array.from(whole.gradient, (x) => expect.closeTo(x, 12)));
      }),
      { numRuns: 60 },
    );
  });

  it("does not depend on the order of sequences", () => {
    fc.assert(
      fc.property(
        variants,
        seeds,
        fc.shuffledSubarray([0, 1, 2, 3, 4], { minLength: 5 }),
        ([name, options], seed, order) => {
          const objective = createObjective(name, options);
          const batch = randomBatch(seed, 0.3);
          const parts = order.map((s) => sliceBatch(batch, s, s + 1));
          const join = (
            key:
              | "logprobs"
              | "rolloutLogprobs"
              | "oldLogprobs"
              | "referenceLogprobs"
              | "advantages"
              | "entropies"
              | "mask",
          ) => Float64Array.from(parts.flatMap((part) => Array.from(part[key] as Float64Array)));
          const offsets = [0];
          for (const { logprobs } of parts) offsets.push(offsets[offsets.length - 1] + logprobs.length);
          const permuted: ObjectiveBatch = {
            logprobs: join("logprobs"),
            rolloutLogprobs: join("rolloutLogprobs"),
            oldLogprobs: join("oldLogprobs"),
            referenceLogprobs: join("referenceLogprobs"),
            advantages: join("advantages"),
            entropies: join("entropies"),
            mask: join("mask"),
            offsets,
            groups: order.map((s) => batch.groups[s]),
          };
          const whole = objective(batch);
          const other = objective(permuted);
          expect(other.loss).toBeCloseTo(whole.loss, 12);
          for (const [i, s] of order.entries()) {
            const expected = whole.gradient.subarray(batch.offsets[s], batch.offsets[s + 1]);
            const got = other.gradient.subarray(offsets[i], offsets[i + 1]);
            expect(Array.from(got)).toEqual(Array.from(expected, (x) => expect.closeTo(x, 12)));
          }
        },
      ),
      { numRuns: 60 },
    );
  });

  it("does not change when all masks are scaled, where the loss is a mean", () => {
    fc.assert(
      fc.property(variants, seeds, fc.constantFrom(0.25, 2, 8), ([name, options], seed, factor) => {
        const settings = objectiveOptions(name, options);
        if (settings.aggregation === "constant-length") settings.aggregation = "sequence-mean";
        const objective = createObjective(name, settings);
        const batch = randomBatch(seed, 0.3);
        const scaled = objective({ ...batch, mask: batch.mask.map((x) => factor * x) });
        const whole = objective(batch);
        expect(scaled.loss).toBeCloseTo(whole.loss, 12);
        expect(Array.from(scaled.gradient)).toEqual(Array.from(whole.gradient, (x) => expect.closeTo(x, 12)));
      }),
      { numRuns: 60 },
    );
  });

  it("gspo-token has gspo's gradient where a sequence has one advantage", () => {
    const batch = randomBatch(2, 0.01);
    batch.advantages = spreadAdvantages([1, -1, 0, 0.5, -2], batch.offsets) as Float64Array<ArrayBuffer>;
    const options = { clipLow: 0.01, clipHigh: 0.01 };
    const [a, b] = (["gspo", "gspo-token"] as const).map((name) => createObjective(name, options)(batch));
    expect(b.loss).toBeCloseTo(a.loss, 12);
    expect(Array.from(b.gradient)).toEqual(Array.from(a.gradient, (x) => expect.closeTo(x, 12)));
  });
});

describe("what does not fit is refused", () => {
  it.each([
    [{ offsets: [0, 2] }, "expected offsets from 0 to 14, got [0, …, 2]"],
    [{ offsets: [0, 3, 2, 14] }, "expected offsets that do not fall, got 3, 2"],
    [{ advantages: new Float64Array(3) }, "expected 14 values of advantages, got 3"],
    [{ oldLogprobs: new Float64Array(3) }, "expected 14 values of oldLogprobs, got 3"],
    [{ groups: [0] }, "expected 5 values of groups, got 1"],
    [{ groups: [0, 0, 0, 0, -1] }, "expected group numbers from 0, got -1"],
    [{ referenceLogprobs: undefined }, "expected referenceLogprobs for klCoefficient 0.1, got none"],
    [{ entropies: undefined }, "expected entropies for entropyCoefficient 0.1, got none"],
    [{ groups: undefined }, "aggregation prompt-mean: expected groups, got none"],
    [{ oldLogprobs: undefined }, "correction mask: expected oldLogprobs, got none"],
  ] as [Partial<ObjectiveBatch>, string][])("arrays: %#", (change, message) => {
    const objective = createObjective("dapo", {
      klCoefficient: 0.1,
      entropyCoefficient: 0.1,
      aggregation: "prompt-mean",
      correction: "mask",
    });
    expect(() => objective({ ...randomBatch(1, 0.1), ...change })).toThrow(message);
  });

  it.each([
    ["ppo", {}, 'objective: expected one of grpo, dr-grpo, dapo, gspo, gspo-token, cispo, rloo, reinforce, got "ppo"'],
    ["toString", {}, "objective: expected one of grpo"],
    ["grpo", { clipLow: 1.5 }, "grpo: clipLow: expected a number from 0 to 1, got 1.5"],
    ["grpo", { clipHigh: "0.2" }, 'grpo: clipHigh: expected a number from 0, got "0.2"'],
    ["grpo", { dualClip: 1 }, "grpo: dualClip: expected a number above 1, or null, got 1"],
    ["grpo", { ratio: "word" }, 'grpo: ratio: expected one of token, sequence, sequence-token, got "word"'],
    ["cispo", { ratioCap: 0.5, ratioFloor: 0.8 }, "cispo: ratioFloor: expected at most 0.5, got 0.8"],
  ])("options: %s %j", (name, options, message) => {
    expect(() => createObjective(name as ObjectiveName, options as Partial<ObjectiveOptions>)).toThrow(message);
  });

  it("an option left undefined is the preset's, and other keys are left out", () => {
    const options = { clipHigh: undefined, clipLow: 0.1, advantageScale: "group" };
    expect(objectiveOptions("dapo", options)).toEqual({ ...PRESETS.dapo, clipLow: 0.1 });
  });
});
