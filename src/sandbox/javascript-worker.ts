import type { ChildProcessWithoutNullStreams } from "node:child_process";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { errorMessage } from "../base/errors.ts";
import { killGroup, RETIRE_AFTER_CPU_SECONDS, spawnJavaScriptChild } from "./child-process.ts";
import { FrameReader, frame, MAX_FRAME_BYTES } from "./frames.ts";
import { RETIRED_EXIT_CODE, type WireJob, type WireResult } from "./javascript-job.ts";
import type { SandboxLimits } from "./limits.ts";

const START_TIMEOUT_MS = 30_000;

/** A job on its way: its text, how often the sandbox failed it, and where its result goes. */
export interface PendingJob {
  wire: WireJob;
  text: string;
  failures: number;
  settle(result: WireResult): void;
}

/** Why a worker is gone. `time`: killed because its first unfinished job ran past the outer limit. */
export type WorkerEnd =
  | { kind: "time" }
  | { kind: "retired" }
  | { kind: "closed" }
  | { kind: "failed"; message: string };

export interface WorkerEvents {
  /** Room for more jobs. */
  onReady(worker: JavaScriptWorker): void;
  /** The process has ended; `unfinished` are its jobs without a result, in order, the running one first. */
  onEnd(worker: JavaScriptWorker, end: WorkerEnd, unfinished: PendingJob[]): void;
}

let wasmBytes: Buffer | undefined;

/** One child process and the jobs that were sent to it. The first unfinished job is the one that runs. */
export class JavaScriptWorker {
  /** Whether the child has said that it is ready. */
  ready = false;
  /** Resolves when the process is gone and its pipes are closed. */
  readonly gone: Promise<void>;
  readonly #child: ChildProcessWithoutNullStreams;
  readonly #events: WorkerEvents;
  readonly #reader = new FrameReader();
  readonly #outerLimitMs: number;
  #inflight: PendingJob[] = [];
  #progress = 0;
  #timer: NodeJS.Timeout;
  #end: WorkerEnd | undefined;
  #errors = "";

  constructor(nodePath: string, limits: SandboxLimits, events: WorkerEvents) {
    this.#events = events;
    this.#outerLimitMs = limits.wallMs + limits.killGraceMs;
    this.#child = spawnJavaScriptChild(nodePath, limits);
    this.#timer = setTimeout(
      () => this.#stop({ kind: "failed", message: "it did not start in time" }),
      START_TIMEOUT_MS,
    );
    this.gone = new Promise((resolve) => this.#listen(resolve));
    wasmBytes ??= readFileSync(createRequire(import.meta.url).resolve("quickjs-wasi/quickjs.wasm"));
    const options = { limits, retireAfterCpuSeconds: RETIRE_AFTER_CPU_SECONDS };
    this.#child.stdin.write(frame(Buffer.from(JSON.stringify(options))));
    this.#child.stdin.write(frame(wasmBytes));
  }

  get pid(): number | undefined {
    return this.#child.pid;
  }

  /** Number of jobs sent and not answered. */
  get load(): number {
    return this.#inflight.length;
  }

  /** Sends jobs; their texts together must fit a frame. */
  send(jobs: PendingJob[]): void {
    if (this.#inflight.length === 0) this.#arm();
    this.#inflight.push(...jobs);
    this.#child.stdin.write(frame(Buffer.from(`[${jobs.map((job) => job.text).join(",")}]`)));
  }

  /** Kills the process; `gone` says when it is. */
  close(): void {
    this.hold(true);
    this.#stop({ kind: "closed" });
  }

  /** Whether this worker keeps the program from ending. */
  hold(hold: boolean): void {
    const child = this.#child;
    for (const part of [child, child.stdin, child.stdout, child.stderr, this.#timer] as {
      ref?(): void;
      unref?(): void;
    }[]) {
      if (hold) part.ref?.();
      else part.unref?.();
    }
  }

  #listen(gone: () => void): void {
    const child = this.#child;
    // A write to a child that has just died fails here; its end is reported by "close".
    child.stdin.on("error", () => {});
    child.on("error", (error) => {
      this.#end ??= { kind: "failed", message: errorMessage(error) };
      if (child.pid === undefined) this.#finish(gone);
    });
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      this.#errors = (this.#errors + text).slice(-2000);
    });
    child.stdout.on("data", (chunk: Buffer) => this.#receive(chunk));
    child.on("close", (code, signal) => {
      this.#end ??=
        code === RETIRED_EXIT_CODE
          ? { kind: "retired" }
          : { kind: "failed", message: `it ended with ${signal ?? `exit code ${code}`} ${this.#errors.trim()}`.trim() };
      this.#finish(gone);
    });
  }

  #finish(gone: () => void): void {
    clearTimeout(this.#timer);
    const unfinished = this.#inflight;
    this.#inflight = [];
    gone();
    this.#events.onEnd(this, this.#end as WorkerEnd, unfinished);
  }

  #receive(chunk: Buffer): void {
    if (this.#end !== undefined) return;
    try {
      for (const bytes of this.#reader.push(chunk)) this.#answer(JSON.parse(bytes.toString()));
    } catch (error) {
      this.#stop({ kind: "failed", message: `it sent something that is not an answer (${errorMessage(error)})` });
      return;
    }
    if (this.#end === undefined) this.#events.onReady(this);
  }

  #answer(message: { ready?: string; id?: number; result?: WireResult }): void {
    this.#progress++;
    if (!this.ready) {
      if (typeof message.ready !== "string") throw new Error("expected a greeting");
      this.ready = true;
      clearTimeout(this.#timer);
      return;
    }
    const job = this.#inflight[0];
    if (job === undefined || message.id !== job.wire.id || message.result === undefined) {
      throw new Error("expected the result of the running job");
    }
    if (message.result.kind === "error") {
      // The engine broke in a way that no limit explains: the same as a process that died.
      this.#stop({ kind: "failed", message: message.result.message });
      return;
    }
    this.#inflight.shift();
    job.settle(message.result);
    if (this.#inflight.length > 0) this.#timer.refresh();
    else clearTimeout(this.#timer);
  }

  #arm(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      // This timer may be late because this process was busy: let waiting answers in before blaming the child.
      const seen = this.#progress;
      setImmediate(() => {
        if (this.#inflight.length === 0 || this.#end !== undefined) return;
        if (this.#progress === seen) this.#stop({ kind: "time" });
        else this.#timer.refresh();
      });
    }, this.#outerLimitMs);
  }

  #stop(end: WorkerEnd): void {
    if (this.#end !== undefined) return;
    this.#end = end;
    clearTimeout(this.#timer);
    killGroup(this.#child);
  }
}

/** As many jobs from the front of a queue as fit `count` and one frame. */
export function takeBatch(queue: PendingJob[], count: number): PendingJob[] {
  let bytes = 2;
  let taken = 0;
  while (taken < Math.min(count, queue.length)) {
    // Three bytes hold any UTF-16 unit.
    bytes += queue[taken].text.length * 3 + 1;
    if (taken > 0 && bytes > MAX_FRAME_BYTES) break;
    taken++;
  }
  return queue.splice(0, taken);
}
