/**
 * Process rewards: a verifier scores steps, each a span of tokens, and every token gets an advantage of its own. Scores
 * are centred and scaled over all steps of the group, R̃ = (R − mean) / (std + ε), and a token of step k gets
 *
 *   step      R̃_k
 *   return    Σ_{j ≥ k} γ^(j−k)·R̃_j        DeepSeekMath's process supervision has γ = 1 (arXiv 2402.03300, section 4.1.3)
 *
 * A token between two steps is in none: it gets 0 for `step`, and for `return` that of the next step. After the last step
 * tokens get 0.
 */
import { RlvrError } from "../base/errors.ts";
import { type AdvantageOptions, batchAdvantages } from "./advantages.ts";

/** Tokens `start` … `end` − 1 of a completion, and how good they are. */
export interface ScoredSpan {
  start: number;
  end: number;
  score: number;
}

export interface ProcessRollout {
  /** Tokens of the completion. */
  length: number;
  /** In order, without overlap. */
  spans: readonly ScoredSpan[];
}

export interface ProcessOptions extends AdvantageOptions {
  credit: "step" | "return";
  /** γ of `return`: the discount from one step to the next; 1 unless set. */
  gamma?: number;
}

/**
 * Advantage of every token, by group and rollout; scale `batch` divides by the deviation of all steps of all groups.
 * Throws `RLVR_REWARD` for spans that overlap, are out of order or leave the completion, and for scores that are not
 * finite.
 */
export function processAdvantages(
  groups: readonly (readonly ProcessRollout[])[],
  options: ProcessOptions,
): Float64Array[][] {
  for (const group of groups) for (const rollout of group) checkSpans(rollout);
  const scores = groups.map((group) => group.flatMap(({ spans }) => spans.map(({ score }) => score)));
  const normalized = batchAdvantages(scores, options);
  return groups.map((group, g) => {
    let next = 0;
    return group.map((rollout) => {
      const steps = normalized[g].slice(next, next + rollout.spans.length);
      next += rollout.spans.length;
      return creditTokens(rollout, steps, options);
    });
  });
}

function creditTokens({ length, spans }: ProcessRollout, steps: number[], options: ProcessOptions): Float64Array {
  const tokens = new Float64Array(length);
  const gamma = options.gamma ?? 1;
  let following = 0;
  for (let k = spans.length - 1; k >= 0; k--) {
    const { start, end } = spans[k];
    if (options.credit === "step") {
      tokens.fill(steps[k], start, end);
      continue;
    }
    following = steps[k] + gamma * following;
    tokens.fill(following, k > 0 ? spans[k - 1].end : 0, end);
  }
  return tokens;
}

function checkSpans({ length, spans }: ProcessRollout): void {
  let last = 0;
  for (const { start, end, score } of spans) {
    const inOrder = Number.isInteger(start) && Number.isInteger(end) && start >= last && end >= start && end <= length;
    if (!inOrder || !Number.isFinite(score)) {
      throw new RlvrError(
        "RLVR_REWARD",
        `process rewards: expected a span from ${last} to at most ${length} with a finite score, got ${start} to ${end} with ${score}`,
        { next: "spans are token positions in the completion, in order and without overlap" },
      );
    }
    last = end;
  }
}
