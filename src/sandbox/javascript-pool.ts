import { availableParallelism } from "node:os";
import { RlvrError } from "../base/errors.ts";
import { isolationLayers } from "./child-process.ts";
import { MAX_FRAME_BYTES } from "./frames.ts";
import type { CandidateForm, JavaScriptJob, JobResult, WireJob, WireResult } from "./javascript-job.ts";
import { JavaScriptWorker, type PendingJob, takeBatch, type WorkerEnd } from "./javascript-worker.ts";
import { DEFAULT_LIMITS, type SandboxLimits } from "./limits.ts";
import { decodeValue, encodeValue, type PlainValue, type TaggedValue, ValueError } from "./values.ts";

export interface JavaScriptPoolOptions {
  /** Number of child processes; the number of cores if left out. */
  workers?: number;
  limits?: Partial<SandboxLimits>;
  /** Node executable of the children; this process's own if left out. */
  nodePath?: string;
}

/** Child processes that run JavaScript candidates in a QuickJS engine, and nothing else. */
export interface JavaScriptPool {
  readonly limits: Readonly<SandboxLimits>;
  /** The layers between a candidate and this machine. */
  readonly isolation: readonly string[];
  /** Resolves when every worker has started; throws `RLVR_SANDBOX_START` when one cannot. */
  ready(): Promise<void>;
  /**
   * Runs candidates and returns one result each, in order. Nothing a candidate does makes this throw.
   * Throws `RLVR_SANDBOX_INPUT` for a job that cannot be sent, `RLVR_SANDBOX_CLOSED` after `close`.
   */
  run(jobs: JavaScriptJob[]): Promise<JobResult[]>;
  /** Process ids of the living children. */
  processes(): number[];
  /** Kills the children and waits until they are gone. Jobs that still run come to `error`. */
  close(): Promise<void>;
}

/** Jobs in one message, and the load below which a worker is sent more. */
const BATCH = 32;
/** Starts in a row that may fail before waiting jobs are given up. */
const START_ATTEMPTS = 3;

/** Throws `RLVR_SANDBOX_INPUT` for limits or a number of workers that make no sense. */
export function createJavaScriptPool(options: JavaScriptPoolOptions = {}): JavaScriptPool {
  const limits = { ...DEFAULT_LIMITS, ...options.limits };
  const workers = options.workers ?? availableParallelism();
  for (const [name, value] of [["workers", workers], ...Object.entries(limits)] as [string, number][]) {
    if (!Number.isSafeInteger(value) || value < 1) {
      throw inputError(`${name}: expected a whole number above 0, got ${value}`, "check the options of the pool");
    }
  }
  if (limits.stackBytes > 512 * 1024) {
    throw inputError(
      `stackBytes: expected at most 524288, got ${limits.stackBytes}`,
      "the engine's own stack is 1 MiB",
    );
  }
  return new Pool(workers, limits, options.nodePath ?? process.execPath);
}

class Pool implements JavaScriptPool {
  readonly limits: SandboxLimits;
  readonly isolation = isolationLayers();
  readonly #size: number;
  readonly #nodePath: string;
  readonly #workers = new Set<JavaScriptWorker>();
  #queue: PendingJob[] = [];
  #unfinished = 0;
  #nextId = 1;
  #failedStarts = 0;
  #closed = false;
  #startWaiters: { resolve(): void; reject(error: Error): void }[] = [];

  constructor(size: number, limits: SandboxLimits, nodePath: string) {
    this.limits = limits;
    this.#size = size;
    this.#nodePath = nodePath;
    this.#fill();
  }

  ready(): Promise<void> {
    return new Promise((resolve, reject) => {
      if (this.#closed) return reject(closedError());
      this.#startWaiters.push({ resolve, reject });
      this.#fill();
      this.#hold();
      this.#announce();
    });
  }

  async run(jobs: JavaScriptJob[]): Promise<JobResult[]> {
    if (this.#closed) throw closedError();
    // Many candidates of one task share their argument lists: each is encoded once.
    const encoded = new Map<PlainValue[], TaggedValue[]>();
    const prepared = jobs.map((job) => this.#prepare(job, encoded));
    const results = await Promise.all(
      prepared.map((job) => (job === undefined ? tooLong(this.limits) : this.#submit(job))),
    );
    return results.map(decodeResult);
  }

  processes(): number[] {
    return [...this.#workers].flatMap((worker) => worker.pid ?? []);
  }

  async close(): Promise<void> {
    this.#closed = true;
    const leaving = [...this.#workers];
    for (const worker of leaving) worker.close();
    for (const job of this.#queue.splice(0)) job.settle({ kind: "error", message: "the pool was closed" });
    for (const waiter of this.#startWaiters.splice(0)) waiter.reject(closedError());
    await Promise.all(leaving.map((worker) => worker.gone));
  }

  /** The wire form of a job; undefined for a source above the limit, which need not be sent to be judged. */
  #prepare(job: JavaScriptJob, encoded: Map<PlainValue[], TaggedValue[]>): WireJob | undefined {
    checkForm(job.form);
    if (Buffer.byteLength(job.source) > this.limits.sourceBytes) return undefined;
    try {
      const calls = job.calls.map((args) => {
        const known = encoded.get(args) ?? args.map((value) => encodeValue(value));
        encoded.set(args, known);
        return known;
      });
      return { id: this.#nextId++, source: job.source, form: job.form, calls };
    } catch (error) {
      if (error instanceof ValueError) throw inputError(`arguments: ${error.message}`, "pass plain data only");
      throw error;
    }
  }

  #submit(wire: WireJob): Promise<WireResult> {
    const text = JSON.stringify(wire);
    if (text.length * 3 + 2 > MAX_FRAME_BYTES && Buffer.byteLength(text) + 2 > MAX_FRAME_BYTES) {
      throw inputError(`job: expected at most ${MAX_FRAME_BYTES} bytes, got more`, "pass smaller arguments");
    }
    return new Promise((resolve) => {
      this.#unfinished++;
      const settle = (result: WireResult) => {
        this.#unfinished--;
        if (this.#unfinished === 0) this.#hold();
        resolve(result);
      };
      this.#queue.push({ wire, text, failures: 0, settle });
      // All jobs of one `run` are queued before the first is sent, so that they share messages.
      if (this.#queue.length === 1) queueMicrotask(() => this.#dispatch());
    });
  }

  #dispatch(): void {
    if (this.#closed) return;
    this.#fill();
    this.#hold();
    for (const worker of this.#workers) this.#feed(worker);
  }

  #feed(worker: JavaScriptWorker): void {
    if (!worker.ready || this.#queue.length === 0 || worker.load >= BATCH) return;
    const share = Math.ceil(this.#queue.length / (2 * this.#size));
    worker.send(takeBatch(this.#queue, Math.min(BATCH, share)));
  }

  /** Starts workers until the pool is full. */
  #fill(): void {
    while (!this.#closed && this.#workers.size < this.#size) {
      this.#workers.add(
        new JavaScriptWorker(this.#nodePath, this.limits, {
          onReady: (worker) => this.#onReady(worker),
          onEnd: (worker, end, unfinished) => this.#onEnd(worker, end, unfinished),
        }),
      );
    }
  }

  #onReady(worker: JavaScriptWorker): void {
    this.#failedStarts = 0;
    this.#announce();
    this.#feed(worker);
  }

  #onEnd(worker: JavaScriptWorker, end: WorkerEnd, unfinished: PendingJob[]): void {
    this.#workers.delete(worker);
    const again = unfinished.filter((job, index) => index > 0 || !this.#blame(job, end));
    this.#queue.unshift(...again);
    if (this.#closed) {
      for (const job of this.#queue.splice(0)) job.settle({ kind: "error", message: "the pool was closed" });
      return;
    }
    if (!worker.ready && end.kind === "failed" && ++this.#failedStarts >= START_ATTEMPTS) {
      this.#giveUp(end.message);
      return;
    }
    this.#dispatch();
  }

  /** Settles the job that ran when its worker ended, if that end is its own doing or the second failure. */
  #blame(job: PendingJob, end: WorkerEnd): boolean {
    if (end.kind === "time") {
      job.settle({ kind: "limit", limit: "time" });
      return true;
    }
    if (end.kind !== "failed" || ++job.failures < 2) return false;
    job.settle({ kind: "error", message: end.message });
    return true;
  }

  /** No worker can be started: everything that waits comes to an error. The next `run` tries again. */
  #giveUp(message: string): void {
    this.#failedStarts = 0;
    for (const job of this.#queue.splice(0)) job.settle({ kind: "error", message });
    const error = new RlvrError("RLVR_SANDBOX_START", `sandbox: expected a child process to start, got: ${message}`, {
      next: "check the node executable of the pool, and that memory and process limits leave room for it",
    });
    for (const waiter of this.#startWaiters.splice(0)) waiter.reject(error);
  }

  #announce(): void {
    const all = [...this.#workers];
    if (all.length < this.#size || !all.every((worker) => worker.ready)) return;
    for (const waiter of this.#startWaiters.splice(0)) waiter.resolve();
    this.#hold();
  }

  /** An idle pool does not keep the program alive. */
  #hold(): void {
    const busy = this.#unfinished > 0 || this.#startWaiters.length > 0;
    for (const worker of this.#workers) worker.hold(busy);
  }
}

function tooLong(limits: SandboxLimits): WireResult {
  return { kind: "syntax", message: `expected at most ${limits.sourceBytes} bytes of source, got more` };
}

function decodeResult(result: WireResult): JobResult {
  if (result.kind !== "ran") return result;
  try {
    const calls = result.calls.map((c) => (c.kind === "value" ? { kind: c.kind, value: decodeValue(c.value) } : c));
    return { kind: "ran", calls };
  } catch (error) {
    return { kind: "error", message: `expected plain values, got: ${(error as Error).message}` };
  }
}

const IDENTIFIER = /^[A-Za-z_$][A-Za-z0-9_$]*$/;

function checkForm(form: CandidateForm): void {
  const names = form.kind === "expression" ? form.parameters : form.kind === "program" ? [form.entry] : [];
  for (const name of names) {
    if (!IDENTIFIER.test(name))
      throw inputError(`form: expected an identifier, got ${JSON.stringify(name)}`, "rename it");
  }
}

function inputError(message: string, next: string): RlvrError {
  return new RlvrError("RLVR_SANDBOX_INPUT", `sandbox: ${message}`, { next });
}

function closedError(): RlvrError {
  return new RlvrError("RLVR_SANDBOX_CLOSED", "sandbox: expected an open pool, got one that was closed", {
    next: "make a new pool",
  });
}
