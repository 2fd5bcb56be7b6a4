import { RlvrError } from "../base/errors.ts";
import type { ModelConfig } from "../model/config.ts";

/**
 * Token sequences for `logprobs` and `backward`. A sequence's tokens from `scoreFrom` on are scored, each given all
 * before it; results are flat over the scored tokens of all sequences, in order.
 */
export interface TokenSequence {
  tokens: ArrayLike<number>;
  /** Index of the first scored token, at least 1: the first token has nothing before it. */
  scoreFrom: number;
  /** Temperature of the distribution it is scored under; the batch's where absent. */
  temperature?: number;
  /** Scored, but left out of `backward`: for sequences whose cotangents are 0 anyway. */
  frozen?: boolean;
}

/** Sequences that go through the layers together: `rows` sequences, padded on the right to `length` tokens. */
export interface MicroBatch {
  /** Indices into the batch. */
  sequences: number[];
  length: number;
  /** All its sequences are frozen. */
  frozen: boolean;
}

/** Start of each sequence in the flat array of scored tokens, and the end. */
export function scoredOffsets(sequences: readonly TokenSequence[]): Int32Array {
  const offsets = new Int32Array(sequences.length + 1);
  sequences.forEach(({ tokens, scoreFrom }, i) => {
    offsets[i + 1] = offsets[i] + Math.max(0, tokens.length - scoreFrom);
  });
  return offsets;
}

/** Throws `RLVR_BATCH` for a sequence that the model cannot take. */
export function checkSequences(sequences: readonly TokenSequence[], config: ModelConfig): void {
  sequences.forEach(({ tokens, scoreFrom }, i) => {
    const bad = (expected: string, got: string) =>
      new RlvrError("RLVR_BATCH", `sequence ${i}: expected ${expected}, got ${got}`, {
        next: "shorten the prompt or the completion, or use a model with a longer context",
      });
    if (tokens.length > config.maxPositions) throw bad(`at most ${config.maxPositions} tokens`, `${tokens.length}`);
    if (tokens.length === 0) throw bad("at least one token", "none");
    if (!Number.isInteger(scoreFrom) || scoreFrom < 1) throw bad("scoreFrom of at least 1", `${scoreFrom}`);
    for (let t = 0; t < tokens.length; t++) {
      if (!(tokens[t] >= 0 && tokens[t] < config.vocabularySize)) {
        throw bad(`token ids below ${config.vocabularySize}`, `${tokens[t]} at ${t}`);
      }
    }
  });
}

/**
 * Splits a batch into micro-batches of at most `budget` tokens, padding included. Sequences of similar length go
 * together, so that little is padded, and frozen ones apart; a sequence longer than the budget gets one of its own.
 */
export function planMicroBatches(sequences: readonly TokenSequence[], budget: number): MicroBatch[] {
  const length = (i: number) => sequences[i].tokens.length;
  const frozen = (i: number) => sequences[i].frozen === true;
  const order = sequences.map((_, i) => i);
  order.sort((a, b) => Number(frozen(a)) - Number(frozen(b)) || length(b) - length(a) || a - b);
  const plan: MicroBatch[] = [];
  let current: MicroBatch | undefined;
  for (const i of order) {
    // Longest first, so the first sequence of a micro-batch decides its length.
    const fits = current && current.frozen === frozen(i) && (current.sequences.length + 1) * current.length <= budget;
    if (current === undefined || !fits) {
      current = { sequences: [], length: length(i), frozen: frozen(i) };
      plan.push(current);
    }
    current.sequences.push(i);
  }
  return plan;
}

/** Share of the positions in those micro-batches that are padding, in [0, 1). */
export function paddingShare(sequences: readonly TokenSequence[], budget: number): number {
  const positions = planMicroBatches(sequences, budget).reduce(
    (n, micro) => n + micro.sequences.length * micro.length,
    0,
  );
  const tokens = sequences.reduce((n, sequence) => n + sequence.tokens.length, 0);
  return positions === 0 ? 0 : 1 - tokens / positions;
}
