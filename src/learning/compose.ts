/**
 * The one composition behind every objective:
 *
 *   L = − Σ_t w_t·c_t·J_t  +  β·Σ_t w_t·KL_t  −  η·Σ_t w_t·H_t
 *
 *   J_t    surrogate of the ratio and the advantage          surrogate.ts, ratio.ts
 *   c_t    correction for the sampler, constant              correction.ts
 *   w_t    aggregation                                       aggregation.ts
 *   KL_t   divergence from the reference, not corrected      kl.ts; with klRatio, ρ_t·KL_t
 *   H_t    entropy, of which the caller knows the derivative
 */
import { RlvrError } from "../base/errors.ts";
import { tokenWeights } from "./aggregation.ts";
import { samplerCorrection } from "./correction.ts";
import { klTerm } from "./kl.ts";
import { checkBatch, type Floats, type Objective, type ObjectiveBatch, type ObjectiveResult } from "./objective.ts";
import type { ObjectiveOptions } from "./presets.ts";
import { policyRatios, type Ratios, spreadOverSequences } from "./ratio.ts";
import { type Surrogate, surrogate } from "./surrogate.ts";

/** The objective with these constants; `name` is for errors. It throws `RLVR_OBJECTIVE` for a batch that lacks a part. */
export function composeObjective(name: string, options: ObjectiveOptions): Objective {
  return (batch) => {
    checkBatch(name, batch);
    const weights = tokenWeights(batch, options);
    const ratios = policyRatios(options.ratio, batch);
    const terms = surrogate(batch, ratios, options);
    const correction = samplerCorrection(batch, options);
    const result = policyTerm(batch, options, weights, terms, correction?.weights);
    if (options.klCoefficient !== 0) addKl(result, name, batch, options, weights, ratios);
    if (options.entropyCoefficient !== 0) addEntropy(result, name, batch, options, weights);

    const count = countTokens(batch.mask);
    const share = (sum: number) => (count > 0 ? sum / count : 0);
    result.stats["clip/low"] = share(terms.low);
    result.stats["clip/high"] = share(terms.high);
    if (options.dualClip !== null) result.stats["clip/dual"] = share(terms.dual);
    result.stats["ratio/mean"] = share(sumOf(ratios.ratio, batch.mask));
    result.stats["ratio/max"] = maxOf(ratios.ratio, batch.mask);
    if (correction) {
      result.stats["correction/mean"] = share(sumOf(correction.weights, batch.mask));
      result.stats["correction/cut"] = share(correction.cut);
    }
    // KL(μ ‖ π), estimated on μ's own samples: how far this update has moved from the policy that sampled.
    const rollout = divergence(batch.rolloutLogprobs, batch.logprobs, batch.mask);
    result.stats["kl/rollout-k1"] = share(rollout.k1);
    result.stats["kl/rollout-k3"] = share(rollout.k3);
    if (batch.referenceLogprobs !== undefined) {
      const reference = divergence(batch.logprobs, batch.referenceLogprobs, batch.mask);
      result.stats["kl/k1"] = share(reference.k1);
      result.stats["kl/k3"] = share(reference.k3);
    }
    return result;
  };
}

function policyTerm(
  batch: ObjectiveBatch,
  options: ObjectiveOptions,
  weights: Float64Array,
  { value, slope }: Surrogate,
  correction: Float64Array | undefined,
): ObjectiveResult {
  let loss = 0;
  const gradient = new Float64Array(weights.length);
  for (let t = 0; t < weights.length; t++) {
    if (weights[t] === 0) continue;
    const weight = weights[t] * (correction?.[t] ?? 1);
    loss -= weight * value[t];
    gradient[t] = -weight * slope[t];
  }
  const throughRatio = options.surrogate === "clipped" || options.surrogate === "weighted";
  if (options.ratio === "sequence" && throughRatio) spreadOverSequences(gradient, batch);
  return { loss, gradient, stats: {} };
}

function addKl(
  result: ObjectiveResult,
  name: string,
  batch: ObjectiveBatch,
  { klCoefficient, klEstimator, klRatio, ratio: kind }: ObjectiveOptions,
  weights: Float64Array,
  { ratio, live }: Ratios,
): void {
  const { logprobs } = batch;
  const throughRatio = new Float64Array(klRatio ? weights.length : 0);
  const reference = required(name, batch.referenceLogprobs, "referenceLogprobs", `klCoefficient ${klCoefficient}`);
  for (let t = 0; t < weights.length; t++) {
    if (weights[t] === 0) continue;
    const { value, derivative } = klTerm(klEstimator, logprobs[t] - reference[t]);
    const weight = weights[t] * klCoefficient * (klRatio ? ratio[t] : 1);
    result.loss += weight * value;
    result.gradient[t] += weight * derivative;
    if (klRatio) throughRatio[t] = live[t] * weight * value;
  }
  if (!klRatio) return;
  if (kind === "sequence") spreadOverSequences(throughRatio, batch);
  for (let t = 0; t < weights.length; t++) result.gradient[t] += throughRatio[t];
}

function addEntropy(
  result: ObjectiveResult,
  name: string,
  batch: ObjectiveBatch,
  { entropyCoefficient }: ObjectiveOptions,
  weights: Float64Array,
): void {
  const entropies = required(name, batch.entropies, "entropies", `entropyCoefficient ${entropyCoefficient}`);
  result.entropyGradient = new Float64Array(weights.length);
  for (let t = 0; t < weights.length; t++) {
    if (weights[t] === 0) continue;
    result.loss -= entropyCoefficient * weights[t] * entropies[t];
    result.entropyGradient[t] = -entropyCoefficient * weights[t];
  }
}

function required(name: string, array: Floats | undefined, key: string, reason: string): Floats {
  if (array !== undefined) return array;
  throw new RlvrError("RLVR_OBJECTIVE", `${name}: expected ${key} for ${reason}, got none`, {
    next: `give ${key}, or set ${reason.split(" ")[0]} to 0`,
  });
}

function countTokens(mask: Floats): number {
  let count = 0;
  for (let t = 0; t < mask.length; t++) count += Number(mask[t] !== 0);
  return count;
}

function sumOf(values: Float64Array, mask: Floats): number {
  let sum = 0;
  for (let t = 0; t < values.length; t++) if (mask[t] !== 0) sum += values[t];
  return sum;
}

function maxOf(values: Float64Array, mask: Floats): number {
  let max = 0;
  for (let t = 0; t < values.length; t++) if (mask[t] !== 0) max = Math.max(max, values[t]);
  return max;
}

/** Sums of k1 and k3 of KL(p ‖ q) over the tokens that count. */
function divergence(p: Floats, q: Floats, mask: Floats): { k1: number; k3: number } {
  let k1 = 0;
  let k3 = 0;
  for (let t = 0; t < mask.length; t++) {
    if (mask[t] === 0) continue;
    const d = p[t] - q[t];
    k1 += d;
    k3 += klTerm("k3", d).value;
  }
  return { k1, k3 };
}
