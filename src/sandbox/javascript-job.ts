import type { SandboxLimit } from "./limits.ts";
import type { PlainValue, TaggedValue } from "./values.ts";

/**
 * How a candidate's source becomes the function that is called:
 * - `function`: the source is one expression whose value is a function (`xs => xs.map(x => x * 2)`);
 * - `expression`: the source is one expression over the named parameters (`xs.map(x => x * 2)` with `["xs"]`);
 *   an expression whose value is a function is also called with the arguments, so both ways of writing are taken;
 * - `program`: the source is a script that declares a function named `entry`.
 */
export type CandidateForm =
  | { kind: "function" }
  | { kind: "expression"; parameters: readonly string[] }
  | { kind: "program"; entry: string };

/** One candidate with the argument lists it is called with. Calls of one candidate share its state, not arguments. */
export interface JavaScriptJob {
  source: string;
  form: CandidateForm;
  calls: PlainValue[][];
}

/** What one call came to. `thrown` and `unencodable` texts are capped and were read without running candidate code. */
export type CallResult =
  | { kind: "value"; value: PlainValue }
  | { kind: "thrown"; name: string; message: string }
  | { kind: "unencodable"; what: string }
  | { kind: "limit"; limit: SandboxLimit };

/**
 * What a candidate came to. `ran` has one result a call. `syntax`: the source is not of the required form.
 * `thrown` and `limit`: it ended before the first call, or (for `limit`) its process had to be killed.
 * `error`: the sandbox itself failed, twice; this says nothing about the candidate.
 */
export type JobResult =
  | { kind: "ran"; calls: CallResult[] }
  | { kind: "syntax"; message: string }
  | { kind: "not-a-function"; got: string }
  | { kind: "thrown"; name: string; message: string }
  | { kind: "limit"; limit: SandboxLimit }
  | { kind: "error"; message: string };

/** Exit code of a child that has used up its share of CPU time and wants to be replaced. */
export const RETIRED_EXIT_CODE = 10;

/** A job and its result as they travel. */
export interface WireJob {
  id: number;
  source: string;
  form: CandidateForm;
  calls: TaggedValue[][];
}
export type WireCallResult = { kind: "value"; value: TaggedValue } | Exclude<CallResult, { kind: "value" }>;
export type WireResult = { kind: "ran"; calls: WireCallResult[] } | Exclude<JobResult, { kind: "ran" }>;
