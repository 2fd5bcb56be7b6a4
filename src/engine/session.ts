import { InferenceSession, Tensor } from "onnxruntime-node";
import { errorMessage, RlvrError } from "../base/errors.ts";
import type { CompiledGraph } from "./graph.ts";

/** Milliseconds spent inside ONNX Runtime since the process started; the benchmarks read it. */
export const runtimeClock = { wallMs: 0, runs: 0 };

export function floatTensor(data: Float32Array, shape: readonly number[]): Tensor {
  return new Tensor("float32", data, shape);
}

export function intTensor(data: BigInt64Array, shape: readonly number[]): Tensor {
  return new Tensor("int64", data, shape);
}

export type Feeds = Record<string, Tensor>;

/**
 * A compiled graph, ready to run. Outputs are written into the arrays that the caller gives: nothing is allocated or
 * copied on the JavaScript side.
 */
export class Session {
  readonly #session: InferenceSession;
  readonly #inputs: readonly string[];

  private constructor(session: InferenceSession, inputs: readonly string[]) {
    this.#session = session;
    this.#inputs = inputs;
  }

  static async create(graph: CompiledGraph, threads: number): Promise<Session> {
    try {
      const session = await InferenceSession.create(graph.model, {
        intraOpNumThreads: threads,
        interOpNumThreads: 1,
        graphOptimizationLevel: "all",
        // Shapes change from batch to batch; a pattern kept for each of them would only hold memory.
        enableMemPattern: false,
        logSeverityLevel: 3,
      });
      return new Session(session, graph.inputs);
    } catch (cause) {
      throw new RlvrError(
        "RLVR_ENGINE",
        `engine: expected ONNX Runtime to accept a graph, got ${errorMessage(cause)}`,
        {
          cause,
        },
      );
    }
  }

  /** Runs with the inputs the graph uses out of `feeds` (later sources win) and writes `outputs` in place. */
  async run(outputs: Feeds, ...sources: Feeds[]): Promise<void> {
    const feeds: Feeds = {};
    for (const name of this.#inputs) {
      for (let i = sources.length - 1; i >= 0; i--) {
        const tensor = sources[i][name];
        if (tensor !== undefined) {
          feeds[name] = tensor;
          break;
        }
      }
    }
    const start = performance.now();
    try {
      await this.#session.run(feeds, outputs);
    } catch (cause) {
      throw new RlvrError("RLVR_ENGINE", `engine: expected a graph to run, got ${errorMessage(cause)}`, { cause });
    }
    runtimeClock.wallMs += performance.now() - start;
    runtimeClock.runs++;
  }

  async close(): Promise<void> {
    await this.#session.release();
  }
}

/** Hands out Float32Arrays from large blocks that are reused; `reset` takes all of them back. */
export class Arena {
  readonly #blocks: Float32Array[] = [];
  #block = 0;
  #offset = 0;
  static readonly #BLOCK = 1 << 22;

  take(length: number): Float32Array {
    for (;;) {
      const block = this.#blocks[this.#block];
      if (block === undefined) {
        this.#blocks.push(new Float32Array(Math.max(length, Arena.#BLOCK)));
        continue;
      }
      if (this.#offset + length <= block.length) {
        const view = block.subarray(this.#offset, this.#offset + length);
        // Views start on cache lines.
        this.#offset += (length + 15) & ~15;
        return view;
      }
      if (this.#offset === 0) {
        // An unused block that is too small makes room for one that fits.
        this.#blocks[this.#block] = new Float32Array(length);
        continue;
      }
      this.#block++;
      this.#offset = 0;
    }
  }

  reset(): void {
    this.#block = 0;
    this.#offset = 0;
  }
}

/** Tensors of the same names and shapes in memory of an arena. */
export function tensorsLike(tensors: Feeds, arena: Arena): Feeds {
  return Object.fromEntries(
    Object.entries(tensors).map(([name, { size, dims }]) => [name, floatTensor(arena.take(size), dims)]),
  );
}
