/**
 * GRPO: group relative policy optimisation (Shao et al., "DeepSeekMath", arXiv 2402.03300, section 4.1).
 *
 *   ρ_t = π(y_t) / μ(y_t) = exp(log π − log μ)
 *   L   = − agg_t [ min(ρ_t·A_t, clip(ρ_t, 1 − clipLow, 1 + clipHigh)·A_t) − β·KL_t ]
 *
 * with agg the mean over sequences of the mean over their tokens (`sequence-mean`, the paper's), the mean over all
 * tokens (`token-mean`), or the token sum over sequences × a constant length (`constant-length`).
 *
 * Where this differs from the paper: β is 0 unless set (the paper has 0.04), the two clip widths can differ, μ is the
 * distribution that was really sampled from (temperature included), and log ρ is clamped to ±20.
 */
import { RlvrError } from "../base/errors.ts";
import { type KlEstimator, klTerm, LOG_RATIO_LIMIT } from "./kl.ts";
import { checkBatch, type Objective, type ObjectiveBatch } from "./objective.ts";

export interface GrpoOptions {
  /** The ratio is clipped below at 1 − clipLow. */
  clipLow: number;
  /** The ratio is clipped above at 1 + clipHigh. */
  clipHigh: number;
  aggregation: "sequence-mean" | "token-mean" | "constant-length";
  /** Tokens that `constant-length` divides each sequence's sum by; the completion limit, usually. */
  constantLength: number;
  /** β: weight of the divergence to the reference policy. */
  klCoefficient: number;
  klEstimator: KlEstimator;
}

export const GRPO_DEFAULTS: Readonly<GrpoOptions> = {
  clipLow: 0.2,
  clipHigh: 0.2,
  aggregation: "sequence-mean",
  constantLength: 1,
  klCoefficient: 0,
  klEstimator: "k3",
};

/**
 * Weight of each token in the aggregate; Σ weights is 1 for the two means. A sequence whose tokens are all masked
 * still counts as a sequence, so that leaving out truncated completions does not give the others more weight.
 */
export function tokenWeights(
  batch: Pick<ObjectiveBatch, "mask" | "offsets">,
  options: Pick<GrpoOptions, "aggregation" | "constantLength">,
): Float64Array {
  const { mask, offsets } = batch;
  const sequences = offsets.length - 1;
  const weights = new Float64Array(mask.length);
  let all = 0;
  for (let t = 0; t < mask.length; t++) all += mask[t];
  for (let s = 0; s < sequences; s++) {
    let length = 0;
    for (let t = offsets[s]; t < offsets[s + 1]; t++) length += mask[t];
    const denominator =
      options.aggregation === "sequence-mean"
        ? sequences * length
        : options.aggregation === "token-mean"
          ? all
          : sequences * options.constantLength;
    for (let t = offsets[s]; t < offsets[s + 1]; t++) weights[t] = denominator > 0 ? mask[t] / denominator : 0;
  }
  return weights;
}

/**
 * The GRPO objective with these constants.
 *
 * @example
 * const objective = createGrpo({ clipLow: 0.2, clipHigh: 0.28 });
 * const { loss, gradient } = objective({ logprobs, rolloutLogprobs, advantages, mask, offsets });
 */
export function createGrpo(options: Partial<GrpoOptions> = {}): Objective {
  const settings: GrpoOptions = { ...GRPO_DEFAULTS, ...options };
  const low = 1 - settings.clipLow;
  const high = 1 + settings.clipHigh;
  const beta = settings.klCoefficient;
  return (batch) => {
    checkBatch("grpo", batch);
    const { logprobs, rolloutLogprobs, referenceLogprobs, advantages, mask } = batch;
    if (beta !== 0 && referenceLogprobs === undefined) {
      throw new RlvrError("RLVR_OBJECTIVE", `grpo: expected referenceLogprobs for klCoefficient ${beta}, got none`, {
        next: "give the reference policy's log-probabilities, or set klCoefficient to 0",
      });
    }
    const weights = tokenWeights(batch, settings);
    const gradient = new Float64Array(logprobs.length);
    let loss = 0;
    let tokens = 0;
    let clippedLow = 0;
    let clippedHigh = 0;
    let ratioSum = 0;
    let ratioMax = 0;
    let rolloutK1 = 0;
    let rolloutK3 = 0;
    let referenceK1 = 0;
    let referenceK3 = 0;
    for (let t = 0; t < logprobs.length; t++) {
      if (mask[t] === 0) continue;
      const logRatio = logprobs[t] - rolloutLogprobs[t];
      const clamped = Math.min(LOG_RATIO_LIMIT, Math.max(-LOG_RATIO_LIMIT, logRatio));
      const ratio = Math.exp(clamped);
      const a = advantages[t];
      // The minimum takes the clipped branch, which has no derivative, exactly where moving on would gain nothing more.
      const isLow = a < 0 && ratio < low;
      const isHigh = a > 0 && ratio > high;
      const surrogate = isLow ? low * a : isHigh ? high * a : ratio * a;
      const slope = isLow || isHigh || clamped !== logRatio ? 0 : ratio * a;
      loss -= weights[t] * surrogate;
      gradient[t] = -weights[t] * slope;
      tokens++;
      clippedLow += Number(isLow);
      clippedHigh += Number(isHigh);
      ratioSum += ratio;
      ratioMax = Math.max(ratioMax, ratio);
      rolloutK1 -= logRatio;
      rolloutK3 += klTerm("k3", -clamped).value;
      if (referenceLogprobs === undefined) continue;
      const d = logprobs[t] - referenceLogprobs[t];
      referenceK1 += d;
      referenceK3 += klTerm("k3", d).value;
      if (beta !== 0) {
        const { value, derivative } = klTerm(settings.klEstimator, d);
        loss += weights[t] * beta * value;
        gradient[t] += weights[t] * beta * derivative;
      }
    }
    const share = (sum: number) => (tokens > 0 ? sum / tokens : 0);
    const stats: Record<string, number> = {
      "clip/low": share(clippedLow),
      "clip/high": share(clippedHigh),
      "ratio/mean": share(ratioSum),
      "ratio/max": ratioMax,
      // KL(μ ‖ π), estimated on μ's own samples: how far this update has moved from the policy that sampled.
      "kl/rollout-k1": share(rolloutK1),
      "kl/rollout-k3": share(rolloutK3),
    };
    if (referenceLogprobs !== undefined) {
      stats["kl/k1"] = share(referenceK1);
      stats["kl/k3"] = share(referenceK3);
    }
    return { loss, gradient, stats };
  };
}
