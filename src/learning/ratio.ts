/**
 * The importance ratio of the policy being trained to the one before the update, π_old: `oldLogprobs` where given, else
 * what the sampler recorded. With d_t = log π(y_t) − log π_old(y_t):
 *
 *   token            ρ_t = exp(d_t)                          GRPO, arXiv 2402.03300
 *   sequence         s   = exp(mean_t d_t)                   GSPO, arXiv 2507.18071: one ratio for all tokens
 *   sequence-token   s_t = sg[s]·π(y_t) / sg[π(y_t)]         GSPO-token: the value s, the derivative of each token's own
 *
 * A sequence's log-probability is a sum over tokens; exp of that sum is not what GSPO uses, the mean is. Log-ratios are
 * clamped to ±20 and have no derivative beyond.
 */
import { LOG_RATIO_LIMIT } from "./kl.ts";
import type { ObjectiveBatch } from "./objective.ts";

export type RatioKind = "token" | "sequence" | "sequence-token";

export interface Ratios {
  /** Ratio of each token [T]; 1 where masked. */
  ratio: Float64Array;
  /** 1 where the ratio moves with the log-probabilities, 0 where it is clamped or masked. [T] */
  live: Float64Array;
}

/** exp of a log-ratio, clamped so that one far-off token cannot make the batch infinite. */
export function clampedExp(logRatio: number): number {
  return Math.exp(Math.min(LOG_RATIO_LIMIT, Math.max(-LOG_RATIO_LIMIT, logRatio)));
}

/** Ratios of all tokens. */
export function policyRatios(kind: RatioKind, batch: ObjectiveBatch): Ratios {
  const { logprobs, mask, offsets } = batch;
  const old = batch.oldLogprobs ?? batch.rolloutLogprobs;
  const ratio = new Float64Array(logprobs.length).fill(1);
  const live = new Float64Array(logprobs.length);
  const set = (t: number, logRatio: number) => {
    if (mask[t] === 0) return;
    ratio[t] = clampedExp(logRatio);
    live[t] = Number(Math.abs(logRatio) <= LOG_RATIO_LIMIT);
  };
  for (let s = 0; s + 1 < offsets.length; s++) {
    const mean = kind === "token" ? 0 : maskedMean(logprobs, old, mask, offsets[s], offsets[s + 1]);
    for (let t = offsets[s]; t < offsets[s + 1]; t++) set(t, kind === "token" ? logprobs[t] - old[t] : mean);
  }
  return { ratio, live };
}

function maskedMean(a: ArrayLike<number>, b: ArrayLike<number>, mask: ArrayLike<number>, from: number, to: number) {
  let sum = 0;
  let count = 0;
  for (let t = from; t < to; t++) {
    // Masked tokens may hold anything, NaN too.
    if (mask[t] !== 0) sum += mask[t] * (a[t] - b[t]);
    count += mask[t];
  }
  return count > 0 ? sum / count : 0;
}

/**
 * Derivatives with respect to log-ratios [T] → with respect to log-probabilities [T], in place: a sequence's ratio is
 * moved by each of its tokens by 1 / L_i.
 */
export function spreadOverSequences(slopes: Float64Array, { mask, offsets }: ObjectiveBatch): void {
  for (let s = 0; s + 1 < offsets.length; s++) {
    let sum = 0;
    let count = 0;
    for (let t = offsets[s]; t < offsets[s + 1]; t++) {
      sum += slopes[t];
      count += mask[t];
    }
    for (let t = offsets[s]; t < offsets[s + 1]; t++) slopes[t] = count > 0 ? (sum * mask[t]) / count : 0;
  }
}
