import {
  describeKind,
  describeThrown,
  OutputError,
  UnencodableError,
  ValueReader,
  writeValue,
} from "./guest-values.ts";
import type { CandidateForm, WireCallResult, WireJob, WireResult } from "./javascript-job.ts";
import type { SandboxLimit, SandboxLimits } from "./limits.ts";
import { MemoryError, QuickJS } from "./quickjs.ts";
import type { Handle, WasmModule } from "./quickjs-exports.ts";

/** Candidates may print; nothing is listening. */
const PRELUDE = `(() => {
  const quiet = () => {};
  globalThis.console = { log: quiet, info: quiet, warn: quiet, error: quiet, debug: quiet, trace: quiet, dir: quiet };
})()`;

/** Bytes of all values of one candidate together, so that a result always fits one frame. */
const TOTAL_OUTPUT_BYTES = 2 * 1024 * 1024;

/** A call of the engine that did not return a value. */
type Failure = { kind: "thrown"; name: string; message: string } | { kind: "limit"; limit: SandboxLimit };

/** Runs candidates one after the other, each in the same fresh state. */
export class CandidateRunner {
  readonly #engine: QuickJS;
  readonly #limits: SandboxLimits;
  #discard = false;
  #deadline = 0;

  constructor(module: WasmModule, limits: SandboxLimits) {
    this.#engine = new QuickJS(module, limits, PRELUDE);
    this.#limits = limits;
  }

  /**
   * Compiles the candidate and makes its calls. Never throws for what candidate code does; an exception from here means
   * that the engine itself is broken, and the next candidate gets a new instance.
   */
  run(job: WireJob): WireResult {
    if (Buffer.byteLength(job.source) > this.#limits.sourceBytes) {
      return { kind: "syntax", message: `expected at most ${this.#limits.sourceBytes} bytes of source, got more` };
    }
    this.#engine.restore(this.#discard);
    this.#discard = true;
    const result = this.#run(job);
    // After a limit the engine's inner state is not worth trusting, cheap as a new instance is.
    const limited = result.kind === "limit" || (result.kind === "ran" && result.calls.some((c) => c.kind === "limit"));
    this.#discard = limited;
    return result;
  }

  #run({ source, form, calls }: WireJob): WireResult {
    const engine = this.#engine;
    // Arguments are made before candidate code runs: no setter it may define can see them.
    const argumentLists = calls.map((args) => args.map((value) => writeValue(engine, value)));
    this.#deadline = performance.now() + this.#limits.wallMs;
    engine.runUntil(this.#deadline);

    const script = formScript(source, form);
    for (const check of script.checks) {
      const compiled = this.#attempt(() => engine.compile(check));
      if (typeof compiled !== "number") {
        return compiled.kind === "limit"
          ? compiled
          : { kind: "syntax", message: `${compiled.name}: ${compiled.message}` };
      }
    }
    const completion = this.#attempt(() => engine.eval(script.run));
    if (typeof completion !== "number") return completion;
    const fn = script.entry === undefined ? completion : this.#attempt(() => engine.eval(script.entry as string));
    if (typeof fn !== "number") {
      return fn.kind === "limit" ? fn : { kind: "not-a-function", got: `${fn.name}: ${fn.message}` };
    }
    if (!engine.isFunction(fn)) return { kind: "not-a-function", got: describeKind(engine, fn) };
    return { kind: "ran", calls: this.#callAll(fn, argumentLists, form.kind === "expression") };
  }

  #callAll(fn: Handle, argumentLists: Handle[][], unwrap: boolean): WireCallResult[] {
    const reader = new ValueReader(this.#engine, this.#limits);
    const results: WireCallResult[] = [];
    let bytes = 0;
    for (const args of argumentLists) {
      const result = this.#call(fn, args, unwrap, reader);
      bytes += reader.bytes;
      results.push(result.kind === "value" && bytes > TOTAL_OUTPUT_BYTES ? { kind: "limit", limit: "output" } : result);
      if (result.kind === "limit" && (result.limit === "time" || result.limit === "memory")) {
        // The candidate's time is over, or its heap is full: the remaining calls would meet the same limit.
        while (results.length < argumentLists.length) results.push(result);
        break;
      }
    }
    return results;
  }

  #call(fn: Handle, args: Handle[], unwrap: boolean, reader: ValueReader): WireCallResult {
    let value = this.#attempt(() => this.#engine.call(fn, args));
    if (unwrap && typeof value === "number" && this.#engine.isFunction(value)) {
      const inner = value;
      value = this.#attempt(() => this.#engine.call(inner, args));
    }
    if (typeof value !== "number") return value;
    try {
      return { kind: "value", value: reader.read(value) };
    } catch (error) {
      if (error instanceof UnencodableError) return { kind: "unencodable", what: error.message };
      if (error instanceof OutputError) return { kind: "limit", limit: "output" };
      if (error instanceof MemoryError) return { kind: "limit", limit: "memory" };
      throw error;
    }
  }

  /** A step that may run candidate code, with every way it can fail. */
  #attempt(step: () => Handle): Handle | Failure {
    const engine = this.#engine;
    let value: Handle;
    try {
      value = step();
    } catch (error) {
      if (error instanceof MemoryError) return { kind: "limit", limit: "memory" };
      // V8's own stack ran out under deep native recursion (a parser, for example).
      if (error instanceof RangeError) return { kind: "limit", limit: "stack" };
      throw error;
    }
    // A native loop is not interrupted; that it came to an end in time to spare it the kill earns it nothing.
    if (performance.now() > this.#deadline) return { kind: "limit", limit: "time" };
    if (!engine.isException(value)) return value;
    const exception = engine.takeException();
    if (exception.uncatchable) return { kind: "limit", limit: "memory" };
    const { name, message } = describeThrown(engine, exception.value);
    if (name === "RangeError" && message === "Maximum call stack size exceeded")
      return { kind: "limit", limit: "stack" };
    return { kind: "thrown", name, message };
  }
}

/**
 * The scripts for a form. An expression is put in brackets, and must also parse in brackets of another kind: text that
 * closes the one kind early (`x); evil(`) is an error in the other.
 */
function formScript(source: string, form: CandidateForm): { checks: string[]; run: string; entry?: string } {
  if (form.kind === "program") return { checks: [source], run: source, entry: form.entry };
  const expression = source.trim().replace(/;$/, "");
  const inBrackets = `(${expression}\n)`;
  const run = form.kind === "expression" ? `((${form.parameters.join(", ")}) => ${inBrackets})` : inBrackets;
  return { checks: [`[${expression}\n]`, run], run };
}
