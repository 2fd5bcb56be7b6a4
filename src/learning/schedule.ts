/** Decisions over a run that need no model: when the reference moves, which rollouts are too old, what length costs. */
import { RlvrError } from "../base/errors.ts";
import type { Floats } from "./objective.ts";

export interface ReferenceOptions {
  /** Steps between mixes of the policy into the reference; null: never. */
  syncEvery: number | null;
  /** Share of the policy in the mix: π_ref ← rate·π + (1 − rate)·π_ref, over weights (Polyak averaging). */
  syncRate: number;
  /** Steps between hard resets, π_ref ← π; null: never. */
  resetEvery: number | null;
  /** Whether a hard reset clears the optimiser's moments too, as prolonged training does (ProRL, arXiv 2505.24864). */
  resetOptimizer: boolean;
}

export type ReferenceAction =
  | { kind: "keep" }
  | { kind: "sync"; rate: number }
  | { kind: "reset"; resetOptimizer: boolean };

/** What happens to the reference after step `step` (the first is 1). A reset goes before a sync of the same step. */
export function referenceAction(step: number, options: ReferenceOptions): ReferenceAction {
  const due = (every: number | null) => every !== null && step > 0 && step % every === 0;
  if (due(options.resetEvery)) return { kind: "reset", resetOptimizer: options.resetOptimizer };
  if (due(options.syncEvery)) return { kind: "sync", rate: options.syncRate };
  return { kind: "keep" };
}

/**
 * Soft overlong punishment, added to the reward: 0 up to limit − buffer tokens, then falling in a line to −1 at `limit`,
 * and −1 beyond. DAPO, arXiv 2503.14476, eq. 13.
 */
export function overlongPenalty(length: number, { limit, buffer }: { limit: number; buffer: number }): number {
  if (!(buffer > 0 && buffer <= limit)) {
    throw new RlvrError("RLVR_REWARD", `overlong penalty: expected a buffer within 0 and ${limit}, got ${buffer}`);
  }
  return Math.max(-1, Math.min(0, (limit - buffer - length) / buffer));
}

/** A copy of the mask in which sequences that were cut at the length limit have no token that counts. */
export function maskTruncated<A extends Floats>(mask: A, offsets: ArrayLike<number>, truncated: ArrayLike<boolean>): A {
  const result = mask.slice() as A;
  for (let s = 0; s + 1 < offsets.length; s++) if (truncated[s]) result.fill(0, offsets[s], offsets[s + 1]);
  return result;
}

/**
 * Sorts rollouts by the age of their weights: at most `bound` steps behind `step` is fresh. `stepOf` gives the step whose
 * weights sampled a rollout. What is stale is to be dropped and counted.
 */
export function splitByStaleness<R>(
  rollouts: readonly R[],
  stepOf: (rollout: R) => number,
  { step, bound }: { step: number; bound: number },
): { fresh: R[]; stale: R[] } {
  const fresh: R[] = [];
  const stale: R[] = [];
  for (const rollout of rollouts) (step - stepOf(rollout) <= bound ? fresh : stale).push(rollout);
  return { fresh, stale };
}
