import { describe, expect, it } from "vitest";
import { RandomStream } from "../base/random.ts";
import type { MetricRecord } from "./metrics.ts";
import { type TrendOptions, trendAlertsAt } from "./trend-alerts.ts";

const OPTIONS: TrendOptions = {
  flatSteps: 20,
  formatShare: 0.5,
  lengthFactor: 2,
  truncatedShare: 0.5,
  spikeFactor: 10,
  entropyShare: 0.1,
};

/** Codes of all alerts of a run whose metrics are functions of the step. */
function codes(steps: number, metrics: (step: number) => Record<string, number>): { step: number; code: string }[] {
  const history = Array.from({ length: steps }, (_, i) => ({ step: i + 1, ...metrics(i + 1) }) as MetricRecord);
  return history
    .flatMap((_, i) => trendAlertsAt(history.slice(0, i + 1), OPTIONS))
    .map(({ step, code }) => ({ step, code }));
}

describe("trend alerts", () => {
  it("say nothing of a run that learns", () => {
    const random = new RandomStream(1, "healthy");
    const found = codes(60, (step) => ({
      "reward/mean": Math.min(0.97, 0.3 + 0.01 * step + 0.03 * random.normal()),
      "reward/format-share": 0.1 * random.uniform(),
      "length/right": 20 + random.normal(),
      "length/wrong": 22 + random.normal(),
      "length/truncated": 0.02,
      "kl/k3": 0.001 * step * (1 + 0.3 * random.uniform()),
      "optimizer/grad-norm": 0.5 + 0.2 * random.uniform(),
      entropy: 0.4 - 0.003 * step,
    }));
    expect(found).toEqual([]);
  });

  it("a reward that only wobbles is flat, one that is near 1 is not", () => {
    const random = new RandomStream(2, "flat");
    const wobble = Array.from({ length: 25 }, () => 0.02 * random.normal());
    expect(codes(25, (step) => ({ "reward/mean": 0.5 + wobble[step - 1] })).map(({ code }) => code)).toContain(
      "RLVR_ALERT_REWARD_FLAT",
    );
    expect(codes(25, (step) => ({ "reward/mean": 0.98 + wobble[step - 1] / 10 }))).toEqual([]);
  });

  it.each([
    ["RLVR_ALERT_FORMAT_DOMINANCE", (step: number) => ({ "reward/format-share": step > 10 ? 0.9 : 0.1 })],
    ["RLVR_ALERT_LENGTH_RIGHT", (step: number) => ({ "length/right": step > 10 ? 5 : 20 })],
    ["RLVR_ALERT_LENGTH_WRONG", (step: number) => ({ "length/wrong": step > 10 ? 60 : 20 })],
    ["RLVR_ALERT_TRUNCATION", (step: number) => ({ "length/truncated": step > 10 ? 0.8 : 0.1 })],
    ["RLVR_ALERT_KL_SPIKE", (step: number) => ({ "kl/k3": step === 15 ? 2 : 0.02 })],
    ["RLVR_ALERT_GRADIENT_SPIKE", (step: number) => ({ "optimizer/grad-norm": step === 15 ? 40 : 0.6 })],
    ["RLVR_ALERT_ENTROPY", (step: number) => ({ entropy: step > 10 ? 0.01 : 0.5 })],
  ])("%s is said once, when it begins", (code, metrics) => {
    const found = codes(25, metrics);
    expect(found.map((alert) => alert.code)).toEqual([code]);
    expect(found[0].step).toBeGreaterThan(10);
    expect(found[0].step).toBeLessThanOrEqual(16);
  });
});
