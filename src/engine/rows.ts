/** How the tokens of a batch map to the rows [rows · length] of a micro-batch, outside the graphs. */
import type { MicroBatch, TokenSequence } from "./batch.ts";
import type { Feeds } from "./session.ts";

/** The sequences of a batch, and where the scored tokens of each start in the flat arrays. */
export interface BatchRows {
  sequences: readonly TokenSequence[];
  offsets: Int32Array;
}

/** Calls back for each scored token: the row of the position before it in [rows · length], its flat index, a counter. */
export function eachScored(
  batch: BatchRows,
  micro: MicroBatch,
  call: (row: number, flat: number, index: number, token: number, sequence: TokenSequence) => void,
): void {
  let index = 0;
  micro.sequences.forEach((s, r) => {
    const sequence = batch.sequences[s];
    const { tokens, scoreFrom } = sequence;
    for (let t = scoreFrom; t < tokens.length; t++) {
      call(r * micro.length + t - 1, batch.offsets[s] + t - scoreFrom, index++, tokens[t], sequence);
    }
  });
}

/** Adds tensors to those of the same names. */
export function addInto(targets: Feeds, sources: Feeds): void {
  for (const [name, { data }] of Object.entries(targets)) {
    const target = data as Float32Array;
    const source = sources[name].data as Float32Array;
    for (let i = 0; i < target.length; i++) target[i] += source[i];
  }
}

export function gatherEmbedding(
  table: Float32Array,
  d: number,
  batch: BatchRows,
  micro: MicroBatch,
  x: Float32Array,
): void {
  micro.sequences.forEach((s, r) => {
    const { tokens } = batch.sequences[s];
    const start = r * micro.length * d;
    for (let t = 0; t < tokens.length; t++) x.set(table.subarray(tokens[t] * d, (tokens[t] + 1) * d), start + t * d);
    // Padding is never attended to by a real token; zeros keep what it computes finite.
    x.fill(0, start + tokens.length * d, start + micro.length * d);
  });
}

export function scatterEmbedding(
  gradient: Float32Array,
  d: number,
  batch: BatchRows,
  micro: MicroBatch,
  dx: Float32Array,
): void {
  micro.sequences.forEach((s, r) => {
    const { tokens } = batch.sequences[s];
    for (let t = 0; t < tokens.length; t++) {
      const from = (r * micro.length + t) * d;
      const to = tokens[t] * d;
      for (let i = 0; i < d; i++) gradient[to + i] += dx[from + i];
    }
  });
}
