/** Losses, gradients and advantages of TRL's and verl's own functions; how they were made: scripts/golden/README.md. */
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { type AdvantageOptions, batchAdvantages } from "./advantages.ts";
import { batchTotals } from "./aggregation.ts";
import { combineRewards } from "./components.ts";
import { nextKlCoefficient } from "./kl.ts";
import type { BatchTotals, ObjectiveBatch } from "./objective.ts";
import { createObjective } from "./objectives.ts";
import type { ObjectiveName, ObjectiveOptions } from "./presets.ts";

type Arrays = Record<string, number[]>;
interface Golden {
  offsets: number[];
  constantLength: number;
  batches: Record<string, Arrays>;
  losses: Record<string, { batch: string; loss: number; gradient: number[]; entropyGradient?: number[] }>;
  rewards: { groupSize: number; values: number[]; pairs: [number, number][]; weights: [number, number] };
  advantages: Record<string, number[]>;
  controller: {
    initial: number;
    target: number;
    horizon: number;
    progress: number;
    measured: number[];
    values: number[];
  };
}

const golden: Golden = JSON.parse(readFileSync(new URL("./fixtures/objectives.json", import.meta.url), "utf8"));

interface Case {
  name: ObjectiveName;
  options?: Partial<ObjectiveOptions>;
  /** Which advantages: one a sequence, one a token, or none. */
  advantages?: "advantages" | "tokenAdvantages" | "zero";
  /** Where theirs counts otherwise. */
  total?: Partial<BatchTotals>;
}

const constantLength = golden.constantLength;
const tokens = "tokenAdvantages";
/** verl's default for A < 0. */
const dualClip = 3;
const kl = (klEstimator: ObjectiveOptions["klEstimator"]): Case => ({
  name: "dapo",
  options: { klCoefficient: 1, klEstimator },
  advantages: "zero",
});

/** The same rule here, for every case there. */
const CASES: Record<string, Case> = {
  "trl grpo": { name: "grpo" },
  "trl grpo truncated": { name: "grpo" },
  "trl grpo beta": { name: "grpo", options: { klCoefficient: 0.04 } },
  "trl grpo beta ratio": { name: "grpo", options: { klCoefficient: 0.04, klRatio: true } },
  "trl gspo beta ratio": { name: "gspo", options: { klCoefficient: 0.04, klRatio: true } },
  // δ caps the ratio before the minimum: for δ above 1 + clipHigh, the dual clip.
  "trl grpo delta": { name: "grpo", options: { dualClip: 1.5 } },
  "trl bnpo": { name: "grpo", options: { aggregation: "token-mean" } },
  "trl dr_grpo": { name: "dr-grpo", options: { constantLength } },
  "trl dapo": { name: "dapo" },
  "trl dapo tokens": { name: "dapo", advantages: tokens },
  "trl dapo entropy": { name: "dapo", options: { entropyCoefficient: 0.01 } },
  "trl cispo": { name: "cispo", options: { ratioCap: 1.2 } },
  "trl gspo": { name: "gspo" },
  "trl gspo tokens": { name: "gspo", advantages: tokens },
  "trl token_truncate": { name: "grpo", options: { correction: "truncate", correctionCap: 1.3 } },
  "trl sequence_mask": {
    name: "grpo",
    options: { correction: "mask", correctionLevel: "sequence", correctionCap: 1.6, correctionFloor: 0 },
  },
  "verl vanilla": { name: "grpo", options: { aggregation: "token-mean", dualClip } },
  "verl vanilla higher": { name: "dapo", options: { dualClip } },
  "verl vanilla c": { name: "grpo", options: { dualClip: 1.3 } },
  // verl leaves a sequence without tokens out of the count; here it stays in it, as in TRL.
  "verl vanilla truncated": { name: "grpo", options: { dualClip }, total: { sequences: 5 } },
  "verl vanilla norm": { name: "dr-grpo", options: { constantLength, dualClip } },
  "verl vanilla tokens": { name: "dapo", options: { clipHigh: 0.2, dualClip }, advantages: tokens },
  "verl gspo": { name: "gspo" },
  "verl gspo tokens": { name: "gspo-token", advantages: tokens },
  "verl cispo": { name: "cispo", options: { ratioCap: 1.2, ratioFloor: 0.8 } },
  "verl reinforce": { name: "reinforce" },
  "verl truncate": {
    name: "dapo",
    options: { clipHigh: 0.2, dualClip, correction: "truncate", correctionCap: 1.3 },
  },
  "verl truncate sequence": {
    name: "dapo",
    options: { clipHigh: 0.2, dualClip, correction: "truncate", correctionCap: 1.3, correctionLevel: "sequence" },
  },
  "verl mask": {
    name: "dapo",
    options: { clipHigh: 0.2, dualClip, correction: "mask", correctionCap: 1.3, correctionFloor: 0.8 },
  },
  "verl kl k1": kl("k1"),
  "verl kl k2": kl("k2"),
  "verl kl k3": kl("k3"),
  "verl kl k1+": kl("k1+"),
  "verl kl k3+": kl("k3+"),
};

it("every loss has its rule here", () => {
  expect(Object.keys(CASES)).toEqual(Object.keys(golden.losses));
});

describe("losses and gradients", () => {
  it.each(Object.entries(CASES))("%s", (key, { name, options, advantages = "advantages", total }) => {
    const theirs = golden.losses[key];
    const arrays = golden.batches[theirs.batch];
    const array = (of: string) => Float64Array.from(arrays[of]);
    const batch: ObjectiveBatch = {
      logprobs: array("logprobs"),
      // Their ratio is to the old log-probabilities; the sampler's matter for the correction only.
      oldLogprobs: array("oldLogprobs"),
      rolloutLogprobs: array("rolloutLogprobs"),
      referenceLogprobs: array("referenceLogprobs"),
      entropies: array("entropies"),
      advantages: advantages === "zero" ? new Float64Array(arrays.mask.length) : array(advantages),
      mask: array("mask"),
      offsets: golden.offsets,
    };
    if (total) batch.total = { ...batchTotals(batch), ...total };
    const ours = createObjective(name, options)(batch);
    // verl adds 1e-8 to a sequence's length.
    expect(ours.loss).toBeCloseTo(theirs.loss, 7);
    expect(Array.from(ours.gradient)).toEqual(theirs.gradient.map((x) => expect.closeTo(x, 7)));
    expect(theirs.gradient.some((x) => Math.abs(x) > 1e-3)).toBe(true);
    if (theirs.entropyGradient) {
      expect(Array.from(ours.entropyGradient ?? [])).toEqual(theirs.entropyGradient.map((x) => expect.closeTo(x, 9)));
    }
  });
});

describe("advantages", () => {
  const { groupSize, values, pairs, weights } = golden.rewards;
  const inGroups = <T>(items: readonly T[]) =>
    Array.from({ length: items.length / groupSize }, (_, g) => items.slice(g * groupSize, (g + 1) * groupSize));
  const TRL: AdvantageOptions = { scale: "group", ddof: 1, epsilon: 1e-4 };
  const VERL: AdvantageOptions = { ...TRL, epsilon: 1e-6 };

  it.each<[string, AdvantageOptions]>([
    ["trl group", TRL],
    ["trl batch", { ...TRL, scale: "batch" }],
    ["trl none", { ...TRL, scale: "none" }],
    ["verl grpo", VERL],
    ["verl grpo no std", { ...VERL, scale: "none" }],
    ["verl rloo", { ...VERL, scale: "none", baseline: "leave-one-out" }],
  ])("%s", (key, options) => {
    const ours = batchAdvantages(inGroups(values), options).flat();
    // TRL counts in float32.
    expect(ours).toEqual(golden.advantages[key].map((x) => expect.closeTo(x, 6)));
  });

  it.each([
    ["trl sum_then_normalize", "sum-then-normalize", TRL, 6],
    ["trl normalize_then_sum", "normalize-then-sum", TRL, 6],
    // verl's components are float32, and the last step divides by √(variance + 1e-8).
    ["verl gdpo", "normalize-then-sum", VERL, 4],
  ] as const)("%s", (key, mode, options, digits) => {
    const groups = inGroups(pairs.map(([a, b]) => ({ a, b })));
    const [a, b] = weights;
    const ours = combineRewards(groups, { ...options, mode, weights: { a, b } }).advantages.flat();
    expect(ours).toEqual(golden.advantages[key].map((x) => expect.closeTo(x, digits)));
  });

  it("of a group of one are the reward itself in verl, and 0 here", () => {
    expect(golden.advantages["verl grpo group of one"][0]).toBeCloseTo(0.75, 5);
    expect(batchAdvantages([[0.75]], VERL)).toEqual([[0]]);
  });
});

it("verl's adaptive KL coefficient", () => {
  const { initial, measured, values, progress, ...options } = golden.controller;
  let beta = initial;
  for (const [i, kl] of measured.entries()) {
    beta = nextKlCoefficient(beta, kl, options, progress);
    expect(beta).toBeCloseTo(values[i], 12);
  }
});
