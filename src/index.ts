export { errorMessage, RlvrError } from "./base/errors.ts";
export { RandomStream } from "./base/random.ts";
export * from "./config/index.ts";
export { type BootstrapOptions, bootstrapDifference, bootstrapMean, pairedGain } from "./evaluate/intervals.ts";
export { passAtK, passHatK } from "./evaluate/pass-at-k.ts";
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
