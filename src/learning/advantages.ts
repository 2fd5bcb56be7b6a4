import { RlvrError } from "../base/errors.ts";

/** How a group's rewards become advantages. */
export interface AdvantageOptions {
  /**
   * What the centred rewards are divided by: the standard deviation of the group (GRPO, arXiv 2402.03300), of all
   * rewards of the batch (arXiv 2508.08221), or nothing (Dr.GRPO, arXiv 2503.20783).
   */
  scale: "group" | "batch" | "none";
  /** Delta degrees of freedom of that standard deviation: 0 population, 1 sample (TRL, verl). */
  ddof: 0 | 1;
  /** Added to that standard deviation. */
  epsilon: number;
}

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

/** Standard deviation with `ddof`; 0 where there are too few values for it. */
export function standardDeviation(values: readonly number[], ddof: 0 | 1): number {
  if (values.length <= ddof) return 0;
  const center = mean(values);
  return Math.sqrt(values.reduce((sum, value) => sum + (value - center) ** 2, 0) / (values.length - ddof));
}

/**
 * Advantages of one group: (rᵢ − mean) / (std + ε), or rᵢ − mean for scale `none`. A group of one, or of equal rewards,
 * has advantages 0. For scale `batch`, `batchDeviation` is the standard deviation over the whole batch; without it the
 * group is taken as the batch.
 *
 * Throws `RLVR_REWARD` for a reward that is not finite.
 *
 * @example
 * groupAdvantages([1, 1, 0, 0], { scale: "group", ddof: 0, epsilon: 0 }); // [1, 1, -1, -1]
 */
export function groupAdvantages(
  rewards: readonly number[],
  options: AdvantageOptions,
  batchDeviation?: number,
): number[] {
  const bad = rewards.findIndex((reward) => !Number.isFinite(reward));
  if (bad >= 0) {
    throw new RlvrError("RLVR_REWARD", `advantages: expected finite rewards, got ${rewards[bad]} at ${bad}`, {
      next: "give a verdict of error for what cannot be judged; it leaves the group",
    });
  }
  if (rewards.length === 0) return [];
  // Compared, not by the deviation: rounding of the mean leaves 0.1, 0.1, 0.1 with one of 1e-17, and ε may be 0.
  if (rewards.every((reward) => reward === rewards[0])) return rewards.map(() => 0);
  const center = mean(rewards);
  if (options.scale === "none") return rewards.map((reward) => reward - center);
  const deviation =
    options.scale === "batch" && batchDeviation !== undefined
      ? batchDeviation
      : standardDeviation(rewards, options.ddof);
  return rewards.map((reward) => (reward - center) / (deviation + options.epsilon));
}

/** Advantages of all groups of a batch; only scale `batch` looks across groups. */
export function batchAdvantages(groups: readonly (readonly number[])[], options: AdvantageOptions): number[][] {
  const deviation = options.scale === "batch" ? standardDeviation(groups.flat(), options.ddof) : undefined;
  return groups.map((rewards) => groupAdvantages(rewards, options, deviation));
}
