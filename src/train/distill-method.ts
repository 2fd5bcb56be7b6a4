import type { RlvrConfig } from "../config/index.ts";
import type { LocalPolicy } from "../policy/local.ts";
import type { RunFolder } from "../runs/index.ts";
import type { Task } from "../tasks/task.ts";
import type { Verifier } from "../verifiers/verifier.ts";
import type { Costs, FlopCounts } from "./costs.ts";
import type { LoopOptions } from "./setup.ts";

/** What every method of distillation starts from. */
export interface DistillSetup {
  config: RlvrConfig;
  options: LoopOptions;
  student: LocalPolicy;
  verifier: Verifier;
  /** Training tasks, `distill.tasks` of them. */
  tasks: readonly Task[];
}

/** One way of distillation, between its two evaluations. */
export interface DistillMethod {
  /** For the manifest; names that end in `Hash` must be the same when a run is resumed. */
  details: Record<string, unknown>;
  /** Sizes to say before the first step. */
  plan: Record<string, number | string>;
  /** Brings the student to where the run left it; the step that a resumed run continues from. */
  start(run: RunFolder): Promise<number | undefined>;
  /** Trains; false when interrupted, with the state saved. */
  train(run: RunFolder): Promise<boolean>;
  /** Steps done. */
  step(): number;
  costs(run: RunFolder): Omit<Costs, "method" | "flops"> & FlopCounts;
  close?(): Promise<void>;
}
