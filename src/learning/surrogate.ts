/**
 * What is maximised at each token, J_t, with ratio ρ and advantage A:
 *
 *   clipped    min(ρ·A, clip(ρ, 1 − clipLow, 1 + clipHigh)·A)        PPO, arXiv 1707.06347; two widths: DAPO, 2503.14476
 *              with dualClip c, where A < 0: max(that, c·A)          Ye et al., arXiv 1912.09729
 *   capped     sg[clip(ρ, ratioFloor, ratioCap)]·A·log π             CISPO, arXiv 2506.13585; both bounds are ratios
 *   weighted   ρ·A                                                   importance weighting without a clip
 *   plain      A·log π                                               REINFORCE (Williams, 1992); ρ has no part
 *
 * `clipped` and `weighted` move through the ratio, dρ/dlog π = ρ; `capped` and `plain` through log π alone, so every
 * token keeps a gradient.
 */
import type { ObjectiveBatch } from "./objective.ts";
import type { Ratios } from "./ratio.ts";

export type SurrogateKind = "clipped" | "capped" | "weighted" | "plain";

export interface SurrogateOptions {
  surrogate: SurrogateKind;
  /** `clipped`: the ratio is clipped below at 1 − clipLow. */
  clipLow: number;
  /** `clipped`: the ratio is clipped above at 1 + clipHigh. */
  clipHigh: number;
  /** `clipped`: for negative advantages the ratio is clipped at this value, above 1; null: not at all. */
  dualClip: number | null;
  /** `capped`: largest weight. It is the ratio itself, not a distance from 1. */
  ratioCap: number;
  /** `capped`: smallest weight. */
  ratioFloor: number;
}

export interface Surrogate {
  /** J_t. [T] */
  value: Float64Array;
  /** dJ_t/dlog ρ_t for `clipped` and `weighted`, dJ_t/dlog π_t for the others. [T] */
  slope: Float64Array;
  /** Tokens bounded from below, from above, and by the dual clip. */
  low: number;
  high: number;
  dual: number;
}

/** J and its slope at every token that counts. */
export function surrogate(batch: ObjectiveBatch, { ratio, live }: Ratios, options: SurrogateOptions): Surrogate {
  const { advantages, logprobs, mask } = batch;
  const result: Surrogate = {
    value: new Float64Array(ratio.length),
    slope: new Float64Array(ratio.length),
    low: 0,
    high: 0,
    dual: 0,
  };
  const { value, slope } = result;
  for (let t = 0; t < ratio.length; t++) {
    if (mask[t] === 0) continue;
    const a = advantages[t];
    if (options.surrogate === "clipped") clipped(t, a);
    else if (options.surrogate === "weighted") {
      value[t] = ratio[t] * a;
      slope[t] = live[t] * value[t];
    } else {
      slope[t] = options.surrogate === "capped" ? capped(t, a) * a : a;
      value[t] = slope[t] * logprobs[t];
    }
  }
  return result;

  function clipped(t: number, a: number): void {
    const low = 1 - options.clipLow;
    const high = 1 + options.clipHigh;
    // The minimum takes the clipped branch, which has no derivative, exactly where moving on would gain nothing more.
    const isLow = a < 0 && ratio[t] < low;
    const isHigh = a > 0 && ratio[t] > high;
    const isDual = options.dualClip !== null && a < 0 && ratio[t] > options.dualClip;
    const bounded = isLow ? low : isHigh ? high : isDual ? (options.dualClip as number) : ratio[t];
    value[t] = bounded * a;
    slope[t] = isLow || isHigh || isDual ? 0 : live[t] * value[t];
    result.low += Number(isLow);
    result.high += Number(isHigh);
    result.dual += Number(isDual);
  }

  function capped(t: number, a: number): number {
    const weight = Math.min(options.ratioCap, Math.max(options.ratioFloor, ratio[t]));
    result.low += Number(a !== 0 && weight > ratio[t]);
    result.high += Number(a !== 0 && weight < ratio[t]);
    return weight;
  }
}
