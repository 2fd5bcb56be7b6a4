import { RlvrError } from "../base/errors.ts";
import { RandomStream } from "../base/random.ts";
import type { Evaluation, Interval } from "../runs/events.ts";

export interface BootstrapOptions {
  seed: number;
  /** 10,000 when absent. */
  resamples?: number;
  /** Confidence level; 0.95 when absent. */
  level?: number;
}

/** The value below which a share of sorted numbers lies, by linear interpolation. */
function quantile(sorted: Float64Array, share: number): number {
  const position = share * (sorted.length - 1);
  const below = Math.floor(position);
  const above = Math.min(below + 1, sorted.length - 1);
  return sorted[below] + (position - below) * (sorted[above] - sorted[below]);
}

/**
 * The mean of one value a task, with a percentile bootstrap interval over tasks: samples of one task are not
 * independent, so tasks are what is drawn again. The same values and seed give the same interval.
 *
 * When every value is equal the interval has no width: the data then say nothing about the spread.
 * Throws `RLVR_EVALUATE_EMPTY` without values.
 */
export function bootstrapMean(values: ArrayLike<number>, options: BootstrapOptions): Interval {
  const { seed, resamples = 10_000, level = 0.95 } = options;
  const tasks = values.length;
  if (tasks === 0) {
    throw new RlvrError("RLVR_EVALUATE_EMPTY", "bootstrap: expected at least one task, got none", {
      next: "evaluate on a split that has tasks",
    });
  }
  let sum = 0;
  for (let i = 0; i < tasks; i++) sum += values[i];
  const random = new RandomStream(seed, "bootstrap");
  const means = new Float64Array(resamples);
  for (let resample = 0; resample < resamples; resample++) {
    let drawn = 0;
    for (let i = 0; i < tasks; i++) drawn += values[Math.floor((random.uint32() / 2 ** 32) * tasks)];
    means[resample] = drawn / tasks;
  }
  means.sort();
  const tail = (1 - level) / 2;
  return { estimate: sum / tasks, low: quantile(means, tail), high: quantile(means, 1 - tail) };
}

/**
 * The mean of `after - before` over tasks judged both times, with its interval: differences of the same task are drawn
 * together, so what the tasks have in common cancels. Both lists are in the same order of tasks.
 */
export function bootstrapDifference(
  before: ArrayLike<number>,
  after: ArrayLike<number>,
  options: BootstrapOptions,
): Interval {
  if (before.length !== after.length) {
    throw new RlvrError(
      "RLVR_EVALUATE_UNPAIRED",
      `paired difference: expected values of the same tasks, got ${before.length} and ${after.length}`,
      { next: "evaluate both models on the same tasks" },
    );
  }
  return bootstrapMean(
    Array.from(before, (value, index) => after[index] - value),
    options,
  );
}

/** The mean difference over the tasks that both evaluations judged, with its interval; null where they do not tell their tasks. */
export function pairedGain(before: Evaluation, after: Evaluation): Interval | null {
  const earlier = new Map((before.perTask ?? []).map((task) => [task.id, task]));
  const pairs = (after.perTask ?? []).flatMap((task) => {
    const other = earlier.get(task.id);
    return other && other.samples > 0 && task.samples > 0 ? [[other, task]] : [];
  });
  if (pairs.length === 0) return null;
  const share = (side: number) => pairs.map((pair) => pair[side].passed / pair[side].samples);
  return bootstrapDifference(share(0), share(1), { seed: 0 });
}
