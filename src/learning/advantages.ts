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
  /**
   * What a reward is compared with: the mean of its group (the default), or the mean of the others of its group (RLOO,
   * arXiv 2402.14740), which is unbiased and n / (n − 1) times as large.
   */
  baseline?: "mean" | "leave-one-out";
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
 * Whether values are equal but for rounding: 0.1 + 0.2 is 0.3. Compared, not told by the deviation: the mean rounds too,
 * and ε may be 0, which would make a deviation of 1e-17 into advantages of ±1.
 */
export function allEqual(values: readonly number[]): boolean {
  let low = Number.POSITIVE_INFINITY;
  let high = Number.NEGATIVE_INFINITY;
  for (const value of values) {
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  return high - low <= 1e-12 * Math.max(Math.abs(low), Math.abs(high)) || values.length < 2;
}

/**
 * Advantages of one group: (rᵢ − baseline) / (std + ε), or rᵢ − baseline for scale `none`. A group of one, or of equal
 * rewards, has advantages 0. For scale `batch`, `batchDeviation` is the standard deviation over the whole batch; without
 * it the group is taken as the batch. Rewards can be of any range: 0 and 1, or −1 and 1.
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
  if (allEqual(rewards)) return rewards.map(() => 0);
  const center = mean(rewards);
  const stretch = options.baseline === "leave-one-out" ? rewards.length / (rewards.length - 1) : 1;
  const centred = rewards.map((reward) => (reward - center) * stretch);
  if (options.scale === "none") return centred;
  const deviation =
    options.scale === "batch" && batchDeviation !== undefined
      ? batchDeviation
      : standardDeviation(rewards, options.ddof);
  return centred.map((advantage) => advantage / (deviation + options.epsilon));
}

/** Advantages of all groups of a batch; only scale `batch` looks across groups. */
export function batchAdvantages(groups: readonly (readonly number[])[], options: AdvantageOptions): number[][] {
  const deviation = options.scale === "batch" ? standardDeviation(groups.flat(), options.ddof) : undefined;
  return groups.map((rewards) => groupAdvantages(rewards, options, deviation));
}

/** One value a sequence [S] → one a token [T], as an objective takes it. */
export function spreadAdvantages(advantages: ArrayLike<number>, offsets: ArrayLike<number>): Float64Array {
  const tokens = new Float64Array(offsets[offsets.length - 1]);
  for (let s = 0; s + 1 < offsets.length; s++) tokens.fill(advantages[s], offsets[s], offsets[s + 1]);
  return tokens;
}
