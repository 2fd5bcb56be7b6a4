export { errorMessage, RlvrError } from "./base/errors.ts";
export { RandomStream } from "./base/random.ts";
export * from "./config/index.ts";
export { type BootstrapOptions, bootstrapDifference, bootstrapMean, pairedGain } from "./evaluate/intervals.ts";
export { passAtK, passHatK } from "./evaluate/pass-at-k.ts";
export { type AdvantageOptions, batchAdvantages, groupAdvantages } from "./learning/advantages.ts";
export { type DiagnosedRollout, diagnoseGroups, type GroupDiagnosis } from "./learning/diagnosis.ts";
export { createGrpo, GRPO_DEFAULTS, type GrpoOptions } from "./learning/grpo.ts";
export { type KlEstimator, klTerm } from "./learning/kl.ts";
export type { Objective, ObjectiveBatch, ObjectiveResult } from "./learning/objective.ts";
export { createObjective, type ObjectiveName } from "./learning/objectives.ts";
export type * from "./runs/events.ts";
export * from "./runs/index.ts";
export type { CodeReference, CodeTest, PlainValue } from "./tasks/code.ts";
export type { Demonstration } from "./tasks/demonstration.ts";
export { type Shares, splitBySource, validateTasks } from "./tasks/splits.ts";
export type { ChatMessage, Split, Task, TaskSet } from "./tasks/task.ts";
export { type JavaScriptVerifierOptions, javascriptVerifier } from "./verifiers/code/javascript.ts";
export type {
  Contract,
  Limit,
  Outcome,
  Verdict,
  Verifier,
  VerifyItem,
  VerifyPurpose,
} from "./verifiers/verifier.ts";
