import type { ModelConfig } from "../model/config.ts";
import { rotaryFrequencies } from "../model/rope.ts";

export interface RotaryTables {
  /** [positions, headDim / 2] */
  cos: Float32Array;
  sin: Float32Array;
  positions: number;
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
