/**
 * What a policy is updated by: a pure function from token log-probabilities to a loss and its derivative.
 *
 * Arrays are flat over the completion tokens of all sequences; `offsets` holds the start of each sequence and, last, the
 * total. T: tokens, S: sequences.
 */
import { RlvrError } from "../base/errors.ts";

export type Floats = Float32Array | Float64Array;

export interface ObjectiveBatch {
  /** log π of each token under the policy being trained. [T] */
  logprobs: Floats;
  /** log μ under the policy that sampled. [T] */
  rolloutLogprobs: Floats;
  /**
   * log π of the trainer itself before the step's first update [T]. Where given, the ratio is taken against it, and
   * `correction` weighs the gap to `rolloutLogprobs`.
   */
  oldLogprobs?: Floats;
  /** log π_ref under the reference policy [T]; needed by a KL term. */
  referenceLogprobs?: Floats;
  /** Advantage of each token. [T] */
  advantages: Floats;
  /** Entropy in nats of the distribution that each token came from [T]; needed by an entropy bonus. */
  entropies?: Floats;
  /** 1 for tokens that count, 0 for those left out. [T] */
  mask: Floats;
  /** Start of each sequence, and the end. [S + 1] */
  offsets: ArrayLike<number>;
  /** Number of each sequence's group, from 0 [S]; needed by the aggregation `prompt-mean`. */
  groups?: ArrayLike<number>;
  /** What the whole batch has, where this is a part of one; without it, counted from `mask`. See `sliceBatch`. */
  total?: BatchTotals;
}

/** What means divide by. With the whole batch's numbers, losses and gradients of its parts add up to the whole's. */
export interface BatchTotals {
  sequences: number;
  /** Sum of `mask`. */
  tokens: number;
  groups: number;
  /** Sum of `mask` in each group, by its number. */
  groupTokens: ArrayLike<number>;
}

export interface ObjectiveResult {
  /** The quantity that is minimised. */
  loss: number;
  /** dLoss/dlogprobs. [T] */
  gradient: Float64Array;
  /** dLoss/dentropies [T]; only with an entropy bonus. */
  entropyGradient?: Float64Array;
  /** Named numbers that explain the update, for the log; means are over the tokens that count. */
  stats: Record<string, number>;
}

export type Objective = (batch: ObjectiveBatch) => ObjectiveResult;

/** Throws `RLVR_OBJECTIVE` unless all arrays of a batch belong together. */
export function checkBatch(name: string, batch: ObjectiveBatch): void {
  const fail = (expected: string, got: string) =>
    new RlvrError("RLVR_OBJECTIVE", `${name}: expected ${expected}, got ${got}`, {
      next: "all arrays are flat over the same tokens; offsets has the start of each sequence and the end",
    });
  const { offsets, logprobs, groups } = batch;
  const total = logprobs.length;
  if (offsets.length === 0 || offsets[0] !== 0 || offsets[offsets.length - 1] !== total) {
    throw fail(`offsets from 0 to ${total}`, `[${offsets[0]}, …, ${offsets[offsets.length - 1]}]`);
  }
  for (let s = 1; s < offsets.length; s++) {
    if (offsets[s] < offsets[s - 1]) throw fail("offsets that do not fall", `${offsets[s - 1]}, ${offsets[s]}`);
  }
  for (const key of [
    "rolloutLogprobs",
    "oldLogprobs",
    "referenceLogprobs",
    "advantages",
    "entropies",
    "mask",
  ] as const) {
    const array = batch[key];
    if (array !== undefined && array.length !== total) throw fail(`${total} values of ${key}`, `${array.length}`);
  }
  if (groups === undefined) return;
  if (groups.length !== offsets.length - 1) throw fail(`${offsets.length - 1} values of groups`, `${groups.length}`);
  for (let s = 0; s < groups.length; s++) {
    if (!Number.isInteger(groups[s]) || groups[s] < 0) throw fail("group numbers from 0", `${groups[s]}`);
  }
}
