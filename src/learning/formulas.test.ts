/** Every objective by hand on three tokens. */
import { describe, expect, it } from "vitest";
import type { ObjectiveBatch, ObjectiveResult } from "./objective.ts";
import { createObjective } from "./objectives.ts";
import type { ObjectiveOptions } from "./presets.ts";

describe("formulas written out", () => {
  const log = Math.log;
  /** Ratios 1.25 and 1 in a sequence with A = 1, ratio 0.5 in one with A = −1. */
  const batch: ObjectiveBatch = {
    logprobs: Float64Array.of(log(0.5), log(0.3), log(0.2)),
    rolloutLogprobs: Float64Array.of(log(0.4), log(0.3), log(0.4)),
    advantages: Float64Array.of(1, 1, -1),
    mask: Float64Array.of(1, 1, 1),
    offsets: [0, 2, 3],
  };
  const expectResult = ({ loss, gradient }: ObjectiveResult, expected: number, slopes: number[]) => {
    expect(loss).toBeCloseTo(expected, 12);
    expect(Array.from(gradient)).toEqual(slopes.map((x) => expect.closeTo(x, 12)));
  };

  it("grpo: clipped above for A > 0 and below for A < 0", () => {
    const result = createObjective("grpo")(batch);
    expectResult(result, -((1.2 + 1) / 2 - 0.8) / 2, [0, -0.25, 0]);
    expect(result.stats["clip/high"]).toBeCloseTo(1 / 3);
    expect(result.stats["clip/low"]).toBeCloseTo(1 / 3);
    expect(result.stats["ratio/max"]).toBeCloseTo(1.25);
  });

  it("dapo: wider above, all tokens alike", () => {
    expectResult(createObjective("dapo")(batch), -(1.25 + 1 - 0.8) / 3, [-1.25 / 3, -1 / 3, 0]);
  });

  it("dr-grpo: token sums over a constant", () => {
    expectResult(createObjective("dr-grpo", { constantLength: 10 })(batch), -(1.2 + 1 - 0.8) / 20, [0, -0.05, 0]);
  });

  it("gspo: one ratio a sequence, the mean of its log-ratios", () => {
    const s = Math.sqrt(1.25);
    const result = createObjective("gspo", { clipLow: 0.6, clipHigh: 0.2 })(batch);
    expectResult(result, -(s - 0.5) / 2, [-s / 4, -s / 4, 0.25]);
    expect(result.stats["ratio/max"]).toBeCloseTo(s);
    expectResult(createObjective("gspo")(batch), -(1.0004 - 0.9997) / 2, [0, 0, 0]);
  });

  it("cispo: the ratio is a constant weight under a cap that is the ratio itself, and no token is lost", () => {
    const result = createObjective("cispo", { ratioCap: 1.1 })(batch);
    expectResult(result, -(1.1 * log(0.5) + log(0.3) - 0.5 * log(0.2)) / 3, [-1.1 / 3, -1 / 3, 0.5 / 3]);
    expect(result.stats["clip/high"]).toBeCloseTo(1 / 3);
  });

  it("reinforce and rloo: A·log π, summed over tokens", () => {
    for (const name of ["reinforce", "rloo"] as const) {
      expectResult(createObjective(name)(batch), -(log(0.5) + log(0.3) - log(0.2)) / 2, [-0.5, -0.5, 0.5]);
    }
  });

  it("dual clip: a negative advantage at a high ratio stops pulling", () => {
    const far: ObjectiveBatch = { ...batch, rolloutLogprobs: Float64Array.of(log(0.1), log(0.3), log(0.4)) };
    far.advantages = Float64Array.of(-1, 1, -1);
    const result = createObjective("grpo", { dualClip: 3 })(far);
    expectResult(result, -((-3 + 1) / 2 - 0.8) / 2, [0, -0.25, 0]);
    expect(result.stats["clip/dual"]).toBeCloseTo(1 / 3);
    expectResult(createObjective("grpo")(far), -((-5 + 1) / 2 - 0.8) / 2, [1.25, -0.25, 0]);
  });

  it("beyond ±20 a log-ratio is flat: the value stays, the slope is 0", () => {
    const far = {
      ...batch,
      rolloutLogprobs: Float64Array.of(-40, log(0.3), 40),
      advantages: Float64Array.of(-1, 1, 1),
    };
    for (const surrogate of ["clipped", "weighted"] as const) {
      const e20 = Math.exp(20);
      expectResult(createObjective("grpo", { surrogate })(far), -((-e20 + 1) / 2 + 1 / e20) / 2, [0, -0.25, 0]);
    }
  });

  it("prompt-mean: a group counts once, however many tokens it has", () => {
    const grouped = { ...batch, groups: [0, 1] };
    expectResult(createObjective("dapo", { aggregation: "prompt-mean" })(grouped), -((1.25 + 1) / 2 - 0.8) / 2, [
      -1.25 / 4,
      -0.25,
      0,
    ]);
    const one = createObjective("dapo", { aggregation: "prompt-mean" })({ ...batch, groups: [0, 0] });
    expect(one.loss).toBeCloseTo(createObjective("dapo")(batch).loss, 12);
  });

  it("correction: weights of old to rollout, truncated or masked; the ratio is to old", () => {
    // Ratios to old all 1; weights 2, 1 and 0.25.
    const corrected: ObjectiveBatch = {
      ...batch,
      oldLogprobs: batch.logprobs,
      rolloutLogprobs: Float64Array.of(log(0.25), log(0.3), log(0.8)),
    };
    const run = (options: Partial<ObjectiveOptions>) => createObjective("dapo", options)(corrected);
    expectResult(run({}), -1 / 3, [-1 / 3, -1 / 3, 1 / 3]);
    const truncated = run({ correction: "truncate", correctionCap: 1.5 });
    expectResult(truncated, -(1.5 + 1 - 0.25) / 3, [-0.5, -1 / 3, 0.25 / 3]);
    expect(truncated.stats["correction/cut"]).toBeCloseTo(1 / 3);
    expect(truncated.stats["correction/mean"]).toBeCloseTo(2.75 / 3);
    expectResult(run({ correction: "mask", correctionCap: 3 }), -(2 + 1) / 3, [-2 / 3, -1 / 3, 0]);
    expectResult(run({ correction: "mask", correctionCap: 3, correctionFloor: 0.2 }), -(2 + 1 - 0.25) / 3, [
      -2 / 3,
      -1 / 3,
      0.25 / 3,
    ]);
    const sequence = run({ correction: "mask", correctionCap: 1.9, correctionFloor: 0, correctionLevel: "sequence" });
    expectResult(sequence, 0.25 / 3, [0, 0, 0.25 / 3]);
  });

  it("k3+ reports k3 and pulls like k2", () => {
    const withReference = { ...batch, referenceLogprobs: Float64Array.of(log(0.4), log(0.4), log(0.2)) };
    const run = (klEstimator: ObjectiveOptions["klEstimator"]) =>
      createObjective("grpo", { klCoefficient: 0.5, klEstimator })(withReference);
    expect(run("k3+").loss).toBe(run("k3").loss);
    expect(run("k3+").gradient).toEqual(run("k2").gradient);
    expect(run("k3").stats["kl/k3"]).toBeGreaterThan(0);
  });
});
