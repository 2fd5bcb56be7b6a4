import type { Task } from "../tasks/task.ts";

/**
 * `pass` / `fail`: the answer was judged. `invalid`: there is no answer of the required form.
 * `error`: the verifier itself failed; never a reward, never in group statistics.
 */
export type Outcome = "pass" | "fail" | "invalid" | "error";

/** A limit of the contract that ended the check. */
export type Limit = "time" | "memory" | "stack" | "output";

export interface Verdict {
  outcome: Outcome;
  /** In [0, 1]; 0 unless something was judged correct. */
  score: number;
  /** Named parts of the judgement in [0, 1], logged apart (for example `visible`, `hidden`, `format`). */
  components: Record<string, number>;
  /** Why, in plain data: enough to explain the verdict without running anything again. */
  evidence: Record<string, unknown>;
  limit?: Limit;
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
  /** Releases processes and handles. */
  close(): Promise<void>;
}
