export { errorMessage, RlvrError } from "./base/errors.ts";
export { RandomStream } from "./base/random.ts";
export * from "./config/index.ts";
export { type BootstrapOptions, bootstrapDifference, bootstrapMean, pairedGain } from "./evaluate/intervals.ts";
export { passAtK, passHatK } from "./evaluate/pass-at-k.ts";
export {
  type AdvantageOptions,
  batchAdvantages,
  groupAdvantages,
  spreadAdvantages,
  standardDeviation,
} from "./learning/advantages.ts";
export { type Aggregation, batchTotals, sliceBatch } from "./learning/aggregation.ts";
export { type CombinedRewards, type ComponentOptions, combineRewards } from "./learning/components.ts";
export type { CorrectionOptions } from "./learning/correction.ts";
export { type DiagnosedRollout, diagnoseGroups, type GroupDiagnosis } from "./learning/diagnosis.ts";
export {
  type KlControllerOptions,
  type KlEstimator,
  type KlPenaltyOptions,
  klPenalty,
  klTerm,
  nextKlCoefficient,
} from "./learning/kl.ts";
export type { BatchTotals, Floats, Objective, ObjectiveBatch, ObjectiveResult } from "./learning/objective.ts";
export { createObjective, objectiveOptions } from "./learning/objectives.ts";
export { ADVANTAGE_PRESETS, type ObjectiveName, type ObjectiveOptions, PRESETS } from "./learning/presets.ts";
export {
  type ProcessOptions,
  type ProcessRollout,
  processAdvantages,
  type ScoredSpan,
} from "./learning/process.ts";
export type { RatioKind } from "./learning/ratio.ts";
export {
  maskTruncated,
  overlongPenalty,
  type ReferenceAction,
  type ReferenceOptions,
  referenceAction,
  splitByStaleness,
} from "./learning/schedule.ts";
export type { SurrogateKind, SurrogateOptions } from "./learning/surrogate.ts";
export type * from "./runs/events.ts";
export * from "./runs/index.ts";
export type { CodeReference, CodeTest, PlainValue } from "./tasks/code.ts";
export type { Demonstration } from "./tasks/demonstration.ts";
export { type Shares, splitBySource, validateTasks } from "./tasks/splits.ts";
export type { ChatMessage, Split, Task, TaskSet } from "./tasks/task.ts";
export { type JavaScriptVerifierOptions, javascriptVerifier } from "./verifiers/code/javascript.ts";
export type {
  Attack,
  Contract,
  Limit,
  Outcome,
  ScoredStep,
  Verdict,
  Verifier,
  VerifyItem,
  VerifyPurpose,
} from "./verifiers/verifier.ts";
