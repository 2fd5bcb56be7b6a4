import type { CallResult, CandidateForm, JobResult } from "../../sandbox/javascript-job.ts";
import {
  createJavaScriptPool,
  type JavaScriptPool,
  type JavaScriptPoolOptions,
} from "../../sandbox/javascript-pool.ts";
import { DEFAULT_LIMITS } from "../../sandbox/limits.ts";
import type { CodeReference, CodeTest } from "../../tasks/code.ts";
import type { Task } from "../../tasks/task.ts";
import type { Contract, Verdict, Verifier, VerifyPurpose } from "../verifier.ts";
import { sameValue, showValue } from "./compare.ts";
import { type Extraction, extractCode } from "./extract.ts";
import { referenceFault, type TestSet } from "./reference.ts";

export interface JavaScriptVerifierOptions extends JavaScriptPoolOptions {
  /** What a completion must be; an expression whose value is a function if left out. */
  form?: CandidateForm | ((task: Task<CodeReference>) => CandidateForm);
  /** Where the code is in a completion; all of it if left out. */
  extraction?: Extraction;
  /** Score by the share of deciding tests that pass instead of 1 for all and 0 otherwise. The outcome stays the same. */
  partial?: boolean;
  /** A pool to share; `close` leaves it open, and the pool options here are not used. */
  pool?: JavaScriptPool;
}

/**
 * A verifier for JavaScript completions. The candidate runs in a process of its own, gets the arguments of the tests and
 * nothing else, and its values are compared here. Hidden tests decide for purpose "reward", held-out tests for
 * "evaluation". Components: `format` (1 when it came to something callable), `visible`, `hidden`, and, for evaluation,
 * `heldOut`, as shares of tests that pass.
 */
export function javascriptVerifier(options: JavaScriptVerifierOptions = {}): Verifier<CodeReference> {
  const { form = { kind: "function" }, extraction = "completion", partial = false } = options;
  const formOf = typeof form === "function" ? form : () => form;
  let own: JavaScriptPool | undefined;
  const pool = () => {
    own ??= options.pool ?? createJavaScriptPool(options);
    return own;
  };
  return {
    name: "javascript",
    version: "1",
    contract: contractOf(options, extraction),
    async verify(items, purpose = "reward") {
      const deciding: TestSet = purpose === "evaluation" ? "heldOut" : "hidden";
      const verdicts: Verdict[] = new Array(items.length);
      const running: { index: number; source: string; tests: PlacedTest[] }[] = [];
      const faults = new Map<CodeReference, string | undefined>();
      for (const [index, { task, completion }] of items.entries()) {
        const { reference } = task;
        if (!faults.has(reference)) faults.set(reference, referenceFault(reference, deciding));
        const fault = faults.get(reference);
        const source = extractCode(completion, extraction);
        if (fault !== undefined) verdicts[index] = verdict("error", purpose, { error: fault });
        else if (source === "") verdicts[index] = verdict("invalid", purpose, { reason: "there is no code" });
        else running.push({ index, source, tests: placedTests(reference, purpose) });
      }
      const results = await pool().run(
        running.map(({ index, source, tests }) => ({
          source,
          form: formOf(items[index].task),
          calls: tests.map(({ test }) => test.args),
        })),
      );
      for (const [at, result] of results.entries()) {
        const judged = judge(result, running[at].tests, deciding, purpose, partial);
        judged.evidence.isolation = pool().isolation;
        verdicts[running[at].index] = judged;
      }
      return verdicts;
    },
    async close() {
      if (options.pool === undefined) await own?.close();
    },
  };
}

interface PlacedTest {
  set: TestSet;
  index: number;
  test: CodeTest;
}

function placedTests(reference: CodeReference, purpose: VerifyPurpose): PlacedTest[] {
  const sets: TestSet[] = purpose === "evaluation" ? ["visible", "hidden", "heldOut"] : ["visible", "hidden"];
  return sets.flatMap((set) => reference[set].map((test, index) => ({ set, index, test })));
}

function verdict(outcome: Verdict["outcome"], purpose: VerifyPurpose, evidence: Record<string, unknown>): Verdict {
  const components = { format: 0, visible: 0, hidden: 0, ...(purpose === "evaluation" ? { heldOut: 0 } : {}) };
  return { outcome, score: 0, components, evidence };
}

function judge(
  result: JobResult,
  tests: PlacedTest[],
  deciding: TestSet,
  purpose: VerifyPurpose,
  partial: boolean,
): Verdict {
  switch (result.kind) {
    case "error":
      return verdict("error", purpose, { error: result.message });
    case "syntax":
      return verdict("invalid", purpose, { reason: result.message });
    case "not-a-function":
      return verdict("invalid", purpose, { reason: `expected a function, got ${result.got}` });
    case "thrown":
      return verdict("fail", purpose, { reason: `thrown while loading: ${result.name}: ${result.message}` });
    case "limit": {
      const reason = `the ${result.limit} limit ended the candidate or its process`;
      return { ...verdict("fail", purpose, { reason, limits: [result.limit] }), limit: result.limit };
    }
  }
  const passed = tests.map(({ test }, at) => passes(result.calls[at], test));
  const share = (set: TestSet): number => {
    const mine = passed.filter((_, at) => tests[at].set === set);
    return mine.length === 0 ? 1 : mine.filter(Boolean).length / mine.length;
  };
  const components: Record<string, number> = { format: 1, visible: share("visible"), hidden: share("hidden") };
  if (purpose === "evaluation") components.heldOut = share("heldOut");
  const pass = components[deciding] === 1;
  const limits = [...new Set(result.calls.flatMap((call) => (call.kind === "limit" ? [call.limit] : [])))];
  const hasVisible = tests.some(({ set }) => set === "visible");
  const evidence: Record<string, unknown> = {
    hardcodedSuspect: hasVisible && components.visible === 1 && components.hidden < 1,
  };
  const failing = passed.indexOf(false);
  if (failing !== -1) evidence.firstFailure = describeFailure(tests[failing], result.calls[failing]);
  if (limits.length > 0) evidence.limits = limits;
  return {
    outcome: pass ? "pass" : "fail",
    score: partial ? components[deciding] : pass ? 1 : 0,
    components,
    evidence,
    ...(limits.length > 0 ? { limit: limits[0] } : {}),
  };
}

function passes(call: CallResult | undefined, test: CodeTest): boolean {
  return call?.kind === "value" && sameValue(call.value, test.expected);
}

function describeFailure({ set, index, test }: PlacedTest, call: CallResult | undefined): Record<string, unknown> {
  return { set, index, args: showValue(test.args), expected: showValue(test.expected), got: describeCall(call) };
}

function describeCall(call: CallResult | undefined): string {
  switch (call?.kind) {
    case "value":
      return showValue(call.value);
    case "thrown":
      return `thrown ${call.name}: ${call.message}`;
    case "unencodable":
      return `not plain data: ${call.what}`;
    case "limit":
      return `${call.limit} limit`;
    default:
      return "nothing";
  }
}

function contractOf(options: JavaScriptVerifierOptions, extraction: Extraction): Contract {
  const where = extraction === "completion" ? "the whole completion" : "the last closed fenced block";
  const limits = options.pool?.limits ?? { ...DEFAULT_LIMITS, ...options.limits };
  return {
    observes:
      "the plain values that the candidate returns for each test's arguments, compared outside by type and structure " +
      "(-0 equals 0, NaN equals NaN, arrays exact, objects by keys in any order); hidden tests decide the reward, held-out tests the evaluation",
    extracts: `${where}, trimmed; one closing semicolon of an expression is dropped; nothing is taken from what it prints`,
    limits: { ...limits },
    doesNotCheck: [
      "inputs outside the tests: passing every test is not a proof",
      "that each call starts fresh: calls of one candidate share its state (never another candidate's)",
      "the difference between -0 and 0, and named properties of a returned array",
      "changes that a candidate makes to its arguments",
      "results of promises: an async function's promise is not plain data",
      "style, length, and running time below the limit",
      "escapes from the WebAssembly engine itself, beyond the process limits around it",
    ],
  };
}
