import type { Task } from "../tasks/task.ts";

/**
 * `pass` / `fail`: the answer was judged. `invalid`: there is no answer of the required form.
 * `error`: the verifier itself failed; never a reward, never in group statistics.
 */
export type Outcome = "pass" | "fail" | "invalid" | "error";

/** A limit of the contract that ended the check. */
export type Limit = "time" | "memory" | "stack" | "output";

/** A part of a completion, from character `start` to before `end` (UTF-16 units), with its own score in [0, 1]. */
export interface ScoredStep {
  start: number;
  end: number;
  score: number;
}

export interface Verdict {
  outcome: Outcome;
  /** In [0, 1]; 0 unless something was judged correct. */
  score: number;
  /** Named parts of the judgement in [0, 1], logged apart (for example `visible`, `hidden`, `format`). */
  components: Record<string, number>;
  /** Why, in plain data: enough to explain the verdict without running anything again. */
  evidence: Record<string, unknown>;
  limit?: Limit;
  /** Scores of the completion's steps, in order and without overlap, from verifiers that judge steps. */
  steps?: ScoredStep[];
}

/** A completion made to try a verifier, and what an honest verifier does with it. */
export interface Attack {
  /** Which trick it is, in a word or two. */
  kind: string;
  completion: string;
  /** `pass`: right, so anything else is a false negative. `reject`: must not pass, so a pass is a false positive. */
  expected: "pass" | "reject";
  why?: string;
}

/** What a verifier promises, stored with every run and printed before training. */
export interface Contract {
  observes: string;
  extracts: string;
  /** Limits with their units in the name, for example `{ wallMs: 200 }`. */
  limits: Record<string, number>;
  doesNotCheck: string[];
}

export interface VerifyItem<Reference = unknown> {
  task: Task<Reference>;
  completion: string;
}

/** Which of a task's test sets decides: the reward's, or the one kept for evaluation. */
export type VerifyPurpose = "reward" | "evaluation";

/**
 * A checker with its contract. `verify` judges a batch and returns one verdict per item, in order. It does not throw
 * for anything a completion does: a failure of the checker itself is a verdict `error`.
 */
export interface Verifier<Reference = unknown> {
  name: string;
  version: string;
  contract: Contract;
  verify(items: VerifyItem<Reference>[], purpose?: VerifyPurpose): Promise<Verdict[]>;
  /** Attacks on this verifier for one task of its own, for the audit. The same task gives the same attacks. */
  attacks?(task: Task<Reference>): Attack[];
  /** Releases processes and handles. */
  close(): Promise<void>;
}
