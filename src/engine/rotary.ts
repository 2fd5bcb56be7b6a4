import type { ModelConfig } from "../model/config.ts";
import { type Feeds, floatTensor } from "./session.ts";

export interface RotaryTables {
  /** [positions, headDim / 2] */
  cos: Float32Array;
  sin: Float32Array;
  positions: number;
}

/**
 * Frequencies in radians a position, [headDim / 2]: θ^(−2i / headDim) (Su et al., 2021), then the model's scaling.
 * `linear` divides all by the factor. `llama3` (Llama 3.1) keeps wavelengths below originalMaxPositions /
 * highFrequencyFactor, divides those above originalMaxPositions / lowFrequencyFactor, and blends in between.
 */
export function rotaryFrequencies(config: ModelConfig): Float64Array {
  const { headDim, ropeTheta, ropeScaling } = config;
  return Float64Array.from({ length: headDim / 2 }, (_, i) => {
    const frequency = ropeTheta ** ((-2 * i) / headDim);
    if (ropeScaling === null) return frequency;
    if (ropeScaling.type === "linear") return frequency / ropeScaling.factor;
    const { factor, lowFrequencyFactor: low, highFrequencyFactor: high, originalMaxPositions } = ropeScaling;
    const turns = (originalMaxPositions * frequency) / (2 * Math.PI);
    const kept = Math.min(1, Math.max(0, (turns - low) / (high - low)));
    return kept * frequency + ((1 - kept) * frequency) / factor;
  });
}

/** Tables for positions 0 to `positions` − 1. */
export function rotaryTables(config: ModelConfig, positions: number): RotaryTables {
  const frequencies = rotaryFrequencies(config);
  const half = frequencies.length;
  const cos = new Float32Array(positions * half);
  const sin = new Float32Array(positions * half);
  for (let p = 0; p < positions; p++) {
    for (let i = 0; i < half; i++) {
      cos[p * half + i] = Math.cos(p * frequencies[i]);
      sin[p * half + i] = Math.sin(p * frequencies[i]);
    }
  }
  return { cos, sin, positions };
}

/** The inputs `cos` and `sin` of the graphs. */
export function rotaryFeeds({ cos, sin, positions }: RotaryTables): Feeds {
  const shape = [positions, cos.length / positions];
  return { cos: floatTensor(cos, shape), sin: floatTensor(sin, shape) };
}
