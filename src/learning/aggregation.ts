/**
 * From token terms to one loss: L = Σ_t w_t·term_t. The aggregation is the choice of w_t, for token t of sequence i in
 * group g; L_i, N_g and N are the tokens of the sequence, of the group and of the batch, S and G count sequences and
 * groups:
 *
 *   sequence-mean     1 / (S·L_i)          mean over sequences of token means: GRPO, arXiv 2402.03300; GSPO, 2507.18071
 *   token-mean        1 / N                mean over all tokens: as DAPO is usually implemented
 *   prompt-mean       1 / (G·N_g)          mean over groups of their token means: DAPO, arXiv 2503.14476, eq. 8
 *   constant-length   1 / (S·constant)     token sums over a constant: Dr.GRPO, arXiv 2503.20783
 *
 * A sequence whose tokens are all masked still counts in S (and its group in G), so that leaving out truncated
 * completions does not give the others more weight.
 */
import { RlvrError } from "../base/errors.ts";
import type { BatchTotals, ObjectiveBatch } from "./objective.ts";

export type Aggregation = "sequence-mean" | "token-mean" | "prompt-mean" | "constant-length";

type Shape = Pick<ObjectiveBatch, "mask" | "offsets" | "groups" | "total">;

/** Counts what means over this batch divide by. Without `groups`, all sequences are one group. */
export function batchTotals({ mask, offsets, groups }: Shape): BatchTotals {
  const sequences = offsets.length - 1;
  const groupTokens: number[] = [];
  const present = new Set<number>();
  let tokens = 0;
  for (let s = 0; s < sequences; s++) {
    const group = groups?.[s] ?? 0;
    present.add(group);
    while (groupTokens.length <= group) groupTokens.push(0);
    for (let t = offsets[s]; t < offsets[s + 1]; t++) {
      groupTokens[group] += mask[t];
      tokens += mask[t];
    }
  }
  return { sequences, tokens, groups: present.size, groupTokens };
}

/** Weight of each token in the loss [T]; 0 where masked. Throws `RLVR_OBJECTIVE` for `prompt-mean` without groups. */
export function tokenWeights(
  batch: Shape,
  options: { aggregation: Aggregation; constantLength: number },
): Float64Array {
  const { mask, offsets, groups } = batch;
  if (options.aggregation === "prompt-mean" && groups === undefined) {
    throw new RlvrError("RLVR_OBJECTIVE", "aggregation prompt-mean: expected groups, got none", {
      next: "give the number of each sequence's group, from 0",
    });
  }
  const total = batch.total ?? batchTotals(batch);
  const weights = new Float64Array(mask.length);
  for (let s = 0; s + 1 < offsets.length; s++) {
    const denominator = denominatorOf(s);
    if (!(denominator > 0)) continue;
    for (let t = offsets[s]; t < offsets[s + 1]; t++) weights[t] = mask[t] / denominator;
  }
  return weights;

  function denominatorOf(s: number): number {
    if (options.aggregation === "token-mean") return total.tokens;
    if (options.aggregation === "prompt-mean") return total.groups * total.groupTokens[groups?.[s] ?? 0];
    if (options.aggregation === "constant-length") return total.sequences * options.constantLength;
    let length = 0;
    for (let t = offsets[s]; t < offsets[s + 1]; t++) length += mask[t];
    return total.sequences * length;
  }
}

/**
 * Sequences `from` … `to` − 1 of a batch, as a batch that knows the whole's totals: losses and gradients of consecutive
 * slices add up to those of the whole, whatever the slices.
 */
export function sliceBatch(batch: ObjectiveBatch, from: number, to: number): ObjectiveBatch {
  const { offsets, groups } = batch;
  const start = offsets[from];
  const end = offsets[to];
  const part = <A extends Float32Array | Float64Array | undefined>(array: A) => array?.subarray(start, end) as A;
  return {
    logprobs: part(batch.logprobs),
    rolloutLogprobs: part(batch.rolloutLogprobs),
    oldLogprobs: part(batch.oldLogprobs),
    referenceLogprobs: part(batch.referenceLogprobs),
    advantages: part(batch.advantages),
    entropies: part(batch.entropies),
    mask: part(batch.mask),
    offsets: Array.from({ length: to - from + 1 }, (_, i) => offsets[from + i] - start),
    groups: groups && Array.from({ length: to - from }, (_, i) => groups[from + i]),
    total: batch.total ?? batchTotals(batch),
  };
}
