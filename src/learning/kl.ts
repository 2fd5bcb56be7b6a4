/**
 * Estimators of the divergence KL(π ‖ π_ref) from one sample, with d = log π − log π_ref
 * (J. Schulman, "Approximating KL divergence", 2020): k1 = d, k2 = d²/2, k3 = exp(−d) − 1 + d.
 * k1 is unbiased and may be negative; k3 is unbiased and never negative; k2 is biased with a small variance.
 *
 * Differentiated as a loss, on samples of π, the mean of k2's gradient is that of KL(π ‖ π_ref); k1's is 0, and k3's is
 * that of KL(π_ref ‖ π). `k1+` and `k3+` report k1 and k3 and have the gradient of k2.
 */
import { RlvrError } from "../base/errors.ts";
import type { Floats } from "./objective.ts";

export type KlEstimator = "k1" | "k2" | "k3" | "k1+" | "k3+";

/** exp(20): beyond this, an exponential says only that the policies have nothing in common. */
export const LOG_RATIO_LIMIT = 20;

/** Value of the estimator at d, and its derivative with respect to log π. */
export function klTerm(estimator: KlEstimator, d: number): { value: number; derivative: number } {
  if (estimator === "k1") return { value: d, derivative: 1 };
  if (estimator === "k2") return { value: (d * d) / 2, derivative: d };
  if (estimator === "k1+") return { value: d, derivative: d };
  // Clamped so that one far-off token cannot make the batch infinite; flat beyond the limit.
  const far = d < -LOG_RATIO_LIMIT;
  const value = far ? Math.exp(LOG_RATIO_LIMIT) - 1 - LOG_RATIO_LIMIT : Math.expm1(-d) + d;
  if (estimator === "k3+") return { value, derivative: d };
  return { value, derivative: far ? 0 : -Math.expm1(-d) };
}

export interface KlPenaltyOptions {
  /** β. */
  coefficient: number;
  estimator: "k1" | "k2" | "k3";
  /** Subtract the mean over the tokens that count, so that penalties add to advantages without moving their mean. */
  center: boolean;
}

/**
 * The divergence as a part of the reward: −β·k(d_t) for every token that counts [T], with d from the log-probabilities of
 * the policy that sampled. Uncentred: add the sum of each sequence to its reward before advantages are made. Centred: add
 * to the tokens' advantages.
 */
export function klPenalty(
  batch: { rolloutLogprobs: Floats; referenceLogprobs: Floats; mask: Floats },
  options: KlPenaltyOptions,
): Float64Array {
  const { rolloutLogprobs, referenceLogprobs, mask } = batch;
  const penalty = new Float64Array(mask.length);
  let sum = 0;
  let count = 0;
  for (let t = 0; t < mask.length; t++) {
    if (mask[t] === 0) continue;
    penalty[t] = -options.coefficient * klTerm(options.estimator, rolloutLogprobs[t] - referenceLogprobs[t]).value;
    sum += penalty[t];
    count++;
  }
  if (options.center) for (let t = 0; t < mask.length; t++) if (mask[t] !== 0) penalty[t] -= sum / count;
  return penalty;
}

export interface KlControllerOptions {
  /** Divergence to hold, in nats a token. */
  target: number;
  /** Units (of `progress`) in which the coefficient can change by the factor 1 ± limit. */
  horizon: number;
  /** Largest relative error that is acted on; 0.2 in the paper. */
  limit?: number;
}

/**
 * The next β from the measured divergence: β·(1 + clip(measured / target − 1, ±limit)·progress / horizon), as Ziegler et
 * al. hold a divergence (arXiv 1909.08593, section 2.2). `progress`: steps or rollouts since the last call, in the units
 * of `horizon`. Throws `RLVR_OBJECTIVE` where target or horizon is not positive. A divergence that is not finite leaves β.
 */
export function nextKlCoefficient(
  coefficient: number,
  measured: number,
  { target, horizon, limit = 0.2 }: KlControllerOptions,
  progress = 1,
): number {
  if (!(target > 0 && horizon > 0)) {
    throw new RlvrError(
      "RLVR_OBJECTIVE",
      `KL controller: expected target and horizon above 0, got ${target}, ${horizon}`,
    );
  }
  if (!Number.isFinite(measured)) return coefficient;
  const error = Math.min(limit, Math.max(-limit, measured / target - 1));
  return Math.max(0, coefficient * (1 + (error * progress) / horizon));
}
