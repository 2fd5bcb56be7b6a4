/**
 * What a policy is updated by: a pure function from token log-probabilities to a loss and its derivative.
 *
 * Arrays are flat over the completion tokens of all sequences; `offsets` holds the start of each sequence and, last, the
 * total (suffix `_T`: one value a token; `_S`: one value a sequence).
 */
import { RlvrError } from "../base/errors.ts";

export type Floats = Float32Array | Float64Array;

export interface ObjectiveBatch {
  /** log π of each token under the policy being trained. */
  logprobs: Floats;
  /** log μ under the policy that sampled. */
  rolloutLogprobs: Floats;
  /** log π_ref under the reference policy; needed by a KL term. */
  referenceLogprobs?: Floats;
  /** Advantage of each token. */
  advantages: Floats;
  /** 1 for tokens that count, 0 for those left out. */
  mask: Floats;
  /** Start of each sequence, and the end: S + 1 values. */
  offsets: ArrayLike<number>;
}

export interface ObjectiveResult {
  /** The quantity that is minimised. */
  loss: number;
  /** dLoss/dlogprobs, one value a token. */
  gradient: Float64Array;
  /** Named numbers that explain the update, for the log. */
  stats: Record<string, number>;
}

export type Objective = (batch: ObjectiveBatch) => ObjectiveResult;

/** Throws `RLVR_OBJECTIVE` unless all arrays of a batch belong together. */
export function checkBatch(name: string, batch: ObjectiveBatch): void {
  const fail = (expected: string, got: string) =>
    new RlvrError("RLVR_OBJECTIVE", `${name}: expected ${expected}, got ${got}`, {
      next: "all arrays are flat over the same tokens; offsets has the start of each sequence and the end",
    });
  const { offsets, logprobs } = batch;
  const total = logprobs.length;
  if (offsets.length === 0 || offsets[0] !== 0 || offsets[offsets.length - 1] !== total) {
    throw fail(`offsets from 0 to ${total}`, `[${offsets[0]}, …, ${offsets[offsets.length - 1]}]`);
  }
  for (let s = 1; s < offsets.length; s++) {
    if (offsets[s] < offsets[s - 1]) throw fail("offsets that do not fall", `${offsets[s - 1]}, ${offsets[s]}`);
  }
  for (const key of ["rolloutLogprobs", "referenceLogprobs", "advantages", "mask"] as const) {
    const array = batch[key];
    if (array !== undefined && array.length !== total) throw fail(`${total} values of ${key}`, `${array.length}`);
  }
}
