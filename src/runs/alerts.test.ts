import { expect, test } from "vitest";
import { RandomStream } from "../base/random.ts";
import { type AlertOptions, alertsAt } from "./alerts.ts";
import type { MetricRecord } from "./metrics.ts";

const options: AlertOptions = {
  logprobGapWarn: 1e-3,
  logprobGapStop: 1e-1,
  collapseShare: 0.5,
  collapseWindow: 10,
  deadSteps: 5,
};

/** Alerts of a whole run, as a loop would see them step by step. */
function run(records: Omit<MetricRecord, "step">[]) {
  const history = records.map((record, index) => ({ step: index + 1, ...record }) as MetricRecord);
  return history.flatMap((_, index) => alertsAt(history.slice(0, index + 1), options));
}
const rewards = (values: number[]) => run(values.map((value) => ({ "reward/mean": value, "groups/mixed": 5 })));
const noisy = (seed: number, steps: number, center: (step: number) => number, spread: number) => {
  const random = new RandomStream(seed, "noise");
  return Array.from({ length: steps }, (_, step) => Math.max(0, Math.min(1, center(step) + spread * random.normal())));
};

test("a reward that falls from 0.5 to 0 in a few steps is caught, with the step before the fall", () => {
  for (const fall of [[0], [0.3, 0.1], [0.4, 0.3, 0.2, 0.1]]) {
    for (let seed = 1; seed <= 20; seed++) {
      const values = [...noisy(seed, 12, () => 0.5, 0.04), ...fall, 0, 0, 0, 0];
      const found = rewards(values);
      expect(found[0]).toMatchObject({ code: "RLVR_ALERT_COLLAPSE", level: "return" });
      expect(found[0].step).toBeLessThanOrEqual(12 + fall.length + 3);
      expect(found[0].values.healthyStep).toBeGreaterThanOrEqual(8);
      expect(found[0].values.healthyStep).toBeLessThanOrEqual(13);
    }
  }
});

test("noise of 0.08 around 0.5 is not, over 200 steps and 100 seeds", () => {
  for (let seed = 1; seed <= 100; seed++) expect(rewards(noisy(seed, 200, () => 0.5, 0.08))).toEqual([]);
});

test("neither is a rising reward, nor a low one with its noise", () => {
  for (let seed = 1; seed <= 50; seed++) {
    expect(rewards(noisy(seed, 60, (step) => 0.3 + step / 150, 0.05))).toEqual([]);
    expect(rewards(noisy(seed, 100, () => 0.03, 0.01)).filter((alert) => alert.step > 20)).toEqual([]);
  }
});

test("a slow fall is caught too", () => {
  const found = rewards(noisy(3, 120, (step) => Math.max(0.02, 0.6 - step / 100), 0.05));
  expect(found[0]).toMatchObject({ code: "RLVR_ALERT_COLLAPSE", level: "return" });
  expect(found[0].step).toBeLessThan(60);
});

test("groups without a signal: lost ability goes back, a solved or impossible task set is only told", () => {
  const mixed = { "reward/mean": 0.3, "groups/mixed": 4, "groups/all-fail": 2, "groups/all-pass": 2 };
  const fail = { "reward/mean": 0, "groups/mixed": 0, "groups/all-fail": 8, "groups/all-pass": 0 };
  const pass = { "reward/mean": 1, "groups/mixed": 0, "groups/all-fail": 0, "groups/all-pass": 8 };
  const repeat = <T>(value: T, times: number) => Array.from({ length: times }, () => value);
  expect(run([mixed, mixed, ...repeat(fail, 5)])).toMatchObject([
    { code: "RLVR_ALERT_DEAD_GROUPS", level: "return", step: 7, values: { streak: 5, healthyStep: 2 } },
  ]);
  expect(run([mixed, mixed, ...repeat(pass, 5)])).toMatchObject([{ level: "warn", step: 7 }]);
  expect(run(repeat(fail, 11))).toMatchObject([
    { level: "warn", step: 5 },
    { level: "warn", step: 10 },
  ]);
  expect(run([mixed, ...repeat(fail, 4), mixed])).toEqual([]);
});

test("numbers that are not finite, also as null from the file", () => {
  for (const value of [Number.NaN, Number.POSITIVE_INFINITY, null]) {
    expect(run([{ loss: 0.1 }, { loss: value, "length/right": null }])).toMatchObject([
      { code: "RLVR_ALERT_NOT_FINITE", level: "return", step: 2, values: { healthyStep: 1 } },
    ]);
  }
  expect(run([{ "optimizer/grad-norm": Number.NaN, entropy: Number.NaN }])[0].message).toContain("grad-norm, entropy");
});

test("the gap between decoding and training warns once for a stretch, and stops when it is large", () => {
  const gaps = [1e-6, 2e-3, 3e-3, 1e-5, 2e-3, 0.2].map((gap) => ({ "logprob/gap": gap }));
  expect(run(gaps).map((alert) => [alert.step, alert.level])).toEqual([
    [2, "warn"],
    [5, "warn"],
    [6, "stop"],
  ]);
});
