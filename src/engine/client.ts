import { Worker } from "node:worker_threads";
import { errorMessage, RlvrError } from "../base/errors.ts";
import { scriptPath } from "../base/files.ts";
import type { Engine, EngineOptions, EngineSource } from "./engine.ts";

/** Methods of `Engine` that can be called through the worker. */
export type EngineMethod =
  | "info"
  | "hash"
  | "generate"
  | "logprobs"
  | "backward"
  | "update"
  | "setReference"
  | "moveReference"
  | "saveReference"
  | "resetOptimizer"
  | "setTeacher"
  | "teacherLogprobs"
  | "gradients"
  | "parameters"
  | "saveModel"
  | "saveOptimizer"
  | "loadCheckpoint"
  | "statistics"
  | "close";

export interface CallMessage {
  id: number;
  method: EngineMethod;
  args: unknown[];
}

export interface ReplyMessage {
  id: number;
  value?: unknown;
  error?: { message: string; code: string; next?: string };
}

interface Pending {
  resolve(value: unknown): void;
  reject(error: unknown): void;
}

/**
 * An `Engine` in a worker thread, with the same methods, all asynchronous. Calls run in the order they were made.
 * Errors arrive as they were thrown; a worker that dies rejects what is pending with `RLVR_ENGINE`.
 */
export class EngineClient {
  readonly #worker: Worker;
  readonly #pending = new Map<number, Pending>();
  #nextId = 0;
  #failure: RlvrError | undefined;

  private constructor(worker: Worker) {
    this.#worker = worker;
    worker.on("message", (reply: ReplyMessage) => this.#settle(reply));
    worker.on("error", (error) => this.#fail(errorMessage(error), error));
    worker.on("exit", (code) => this.#fail(`worker ended with code ${code}`));
    worker.unref();
  }

  /** Starts the worker and loads the model. Throws what `Engine.create` throws. */
  static async create(source: EngineSource, options: EngineOptions): Promise<EngineClient> {
    const worker = new Worker(scriptPath(import.meta.url, "worker"), { workerData: { source, options } });
    const client = new EngineClient(worker);
    try {
      await client.call("info");
    } catch (error) {
      await worker.terminate();
      throw error;
    }
    return client;
  }

  /** Calls a method of the engine. */
  call<M extends EngineMethod>(method: M, ...args: Parameters<Engine[M]>): Promise<Awaited<ReturnType<Engine[M]>>> {
    if (this.#failure) return Promise.reject(this.#failure);
    const id = this.#nextId++;
    // The worker alone must not keep a program alive, a call must.
    this.#worker.ref();
    return new Promise((resolve, reject) => {
      this.#pending.set(id, { resolve: resolve as (value: unknown) => void, reject });
      this.#worker.postMessage({ id, method, args } satisfies CallMessage);
    });
  }

  #settle({ id, value, error }: ReplyMessage): void {
    const pending = this.#pending.get(id);
    this.#pending.delete(id);
    if (this.#pending.size === 0) this.#worker.unref();
    if (error) pending?.reject(new RlvrError(error.code, error.message, { next: error.next }));
    else pending?.resolve(value);
  }

  #fail(reason: string, cause?: unknown): void {
    this.#failure ??= new RlvrError("RLVR_ENGINE", `engine: expected the worker thread to run, got ${reason}`, {
      next: "if memory ran out, lower engine.microBatchTokens, engine.activationMegabytes or engine.decodeSlots",
      cause,
    });
    for (const pending of this.#pending.values()) pending.reject(this.#failure);
    this.#pending.clear();
  }

  /** Frees the sessions and ends the worker. */
  async close(): Promise<void> {
    if (this.#failure) return;
    const ended = new Promise((resolve) => this.#worker.once("exit", resolve));
    await this.call("close").catch(() => {});
    // The last reply let the worker off; the program must not end before the worker has.
    this.#worker.ref();
    await ended;
  }
}
