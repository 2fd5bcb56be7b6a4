/** Numbers of a run that studies compare, by the names of their columns. */
import { type MetricRecord, readRun } from "../../src/runs/index.ts";

export const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;

/** A metric at each step; `clip/total` is the share clipped on either side. */
export function curve(metrics: readonly MetricRecord[], name: string): number[] {
  const value = (record: MetricRecord, key: string) => record[key] ?? Number.NaN;
  if (name === "clip/total") return metrics.map((record) => value(record, "clip/low") + value(record, "clip/high"));
  return metrics.map((record) => value(record, name));
}

/** First step at which the mean reward of five steps is at least `limit`; Infinity where it never is. */
function reaches(metrics: readonly MetricRecord[], limit: number): number {
  const rewards = curve(metrics, "reward/mean");
  const index = rewards.findIndex((_, i) => i >= 4 && mean(rewards.slice(i - 4, i + 1)) >= limit);
  return index < 0 ? Number.POSITIVE_INFINITY : index + 1;
}

const COLUMNS: Record<string, (metrics: MetricRecord[], run: string) => number> = {
  "pass@1 after": (_, run) => readRun(run).evaluation("after")?.passAt1.estimate ?? Number.NaN,
  "steps to reward 0.65": (metrics) => reaches(metrics, 0.65),
  "rollouts to reward 0.65": (metrics) => {
    const steps = reaches(metrics, 0.65);
    return Number.isFinite(steps) ? sum(curve(metrics.slice(0, steps), "rollouts/sampled")) : steps;
  },
  "rollouts sampled": (metrics) => sum(curve(metrics, "rollouts/sampled")),
  "reward, last 5 steps": (metrics) => mean(curve(metrics, "reward/mean").slice(-5)),
  "entropy, last 5 steps": (metrics) => mean(curve(metrics, "entropy").slice(-5)),
  "length of wrong, first 5 steps": (metrics) => mean(curve(metrics, "length/wrong").slice(0, 5)),
  "length of wrong, last 5 steps": (metrics) => mean(curve(metrics, "length/wrong").slice(-5)),
  "clipped above, mean": (metrics) => mean(curve(metrics, "clip/high")),
  "clipped, mean": (metrics) => mean(curve(metrics, "clip/total")),
  "kl to the reference, last 5 steps": (metrics) => mean(curve(metrics, "kl/k3").slice(-5)),
};

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}

export function column(name: string, run: string): number {
  return COLUMNS[name](readRun(run).metrics(), run);
}

/** Quantiles of Student's t at 97.5 % by degrees of freedom, 1 to 9. */
const T = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262];

/** Mean over seeds with its 95 % interval (Student's t), as text. */
export function meanText(values: readonly number[]): string {
  if (values.some((value) => !Number.isFinite(value))) {
    return values.map((value) => (Number.isFinite(value) ? digits(value) : "never")).join(", ");
  }
  const center = mean(values);
  const deviation = Math.sqrt(sum(values.map((value) => (value - center) ** 2)) / (values.length - 1));
  const half = (T[values.length - 2] * deviation) / Math.sqrt(values.length);
  return `${digits(center)} ± ${digits(half)}`;
}

function digits(value: number): string {
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size >= 100
    ? value.toFixed(0)
    : size >= 1
      ? value.toFixed(1)
      : size >= 0.01
        ? value.toFixed(3)
        : value.toPrecision(2);
}
