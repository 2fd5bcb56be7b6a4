/**
 * Correction for a sampler that is not quite the trainer: other kernels, other precision, older weights. With
 * w = exp(log π_old − log μ), a token's or, as a product over tokens, a sequence's:
 *
 *   truncate   min(w, correctionCap)                                truncated importance sampling, as in IMPALA, 1802.01561
 *   mask       w within [correctionFloor, correctionCap], else 0    masked importance sampling
 *
 * The weight multiplies J_t and has no derivative. Tokens with weight 0 still count where means divide.
 */
import { RlvrError } from "../base/errors.ts";
import type { ObjectiveBatch } from "./objective.ts";
import { clampedExp } from "./ratio.ts";

export interface CorrectionOptions {
  correction: "none" | "truncate" | "mask";
  correctionLevel: "token" | "sequence";
  /** Largest weight. */
  correctionCap: number;
  /** `mask`: smallest weight that is kept; null: 1 / correctionCap. */
  correctionFloor: number | null;
}

export interface Correction {
  /** Weight of each token [T]; 1 where masked. */
  weights: Float64Array;
  /** Tokens whose weight was truncated or set to 0. */
  cut: number;
}

/** Weights of the sampler correction; undefined for `none`. Throws `RLVR_OBJECTIVE` without `oldLogprobs`. */
export function samplerCorrection(batch: ObjectiveBatch, options: CorrectionOptions): Correction | undefined {
  if (options.correction === "none") return undefined;
  const { oldLogprobs, rolloutLogprobs, mask, offsets } = batch;
  if (oldLogprobs === undefined) {
    throw new RlvrError("RLVR_OBJECTIVE", `correction ${options.correction}: expected oldLogprobs, got none`, {
      next: "score the rollouts with the trainer before the first update, or set correction to none",
    });
  }
  const cap = options.correctionCap;
  const floor = options.correctionFloor ?? 1 / cap;
  const weights = new Float64Array(mask.length).fill(1);
  let cut = 0;
  const set = (t: number, logWeight: number) => {
    const weight = clampedExp(logWeight);
    const isCut = weight > cap || (options.correction === "mask" && weight < floor);
    cut += Number(isCut);
    weights[t] = !isCut ? weight : options.correction === "truncate" ? cap : 0;
  };
  for (let s = 0; s + 1 < offsets.length; s++) {
    let sum = 0;
    for (let t = offsets[s]; t < offsets[s + 1]; t++) if (mask[t] !== 0) sum += oldLogprobs[t] - rolloutLogprobs[t];
    for (let t = offsets[s]; t < offsets[s + 1]; t++) {
      if (mask[t] === 0) continue;
      set(t, options.correctionLevel === "sequence" ? sum : oldLogprobs[t] - rolloutLogprobs[t]);
    }
  }
  return { weights, cut };
}
