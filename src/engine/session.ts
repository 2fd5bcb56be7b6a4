import { InferenceSession, Tensor } from "onnxruntime-node";
import { errorMessage, RlvrError } from "../base/errors.ts";
import type { CompiledGraph } from "./graph.ts";
import { encodeModel, MARKER } from "./onnx.ts";

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
 * What the binding says of the marker. ONNX Runtime writes outputs straight into the arrays it is given, but its binding
 * for Node (1.30) then copies each of them into a new array for the result, which costs about as much as computing an
 * elementwise operation. A first output that the binding cannot convert, an empty sequence, ends that conversion before
 * anything is copied; the run is complete by then.
 */
const MARKER_ERROR = "Non tensor type is temporarily not supported.";

/** Whether the marker does what it is there for in this version of the binding; found out once. */
let markerWorks: Promise<boolean> | undefined;

/** Runs a small graph with the marker and looks whether its output arrives. */
async function probeMarker(): Promise<boolean> {
  const value = { name: "x", type: "float32", shape: [2] } as const;
  const result = { name: "y", type: "float32", shape: [2] } as const;
  const node = { op: "Neg", domain: "", inputs: ["x"], outputs: ["y"], attributes: {} };
  const model = encodeModel({ marker: true, nodes: [node], inputs: [value], outputs: [result], constants: [] });
  const y = floatTensor(new Float32Array(2), [2]);
  try {
    const session = await InferenceSession.create(model);
    const message = await session.run({ x: floatTensor(new Float32Array([1, 2]), [2]) }, { [MARKER]: null, y }).then(
      () => "",
      (error: unknown) => errorMessage(error),
    );
    await session.release();
    return message === MARKER_ERROR && y.data[0] === -1 && y.data[1] === -2;
  } catch {
    return false;
  }
}

/** A compiled graph, ready to run. Outputs are written into the arrays that the caller gives. */
export class Session {
  readonly #session: InferenceSession;
  readonly #inputs: readonly string[];
  readonly #marked: boolean;

  private constructor(session: InferenceSession, inputs: readonly string[], marked: boolean) {
    this.#session = session;
    this.#inputs = inputs;
    this.#marked = marked;
  }

  static async create(graph: CompiledGraph, threads: number): Promise<Session> {
    markerWorks ??= probeMarker();
    const marker = await markerWorks;
    try {
      const session = await InferenceSession.create(encodeModel({ ...graph.model, marker }), {
        intraOpNumThreads: threads,
        interOpNumThreads: 1,
        graphOptimizationLevel: "all",
        // Shapes change from batch to batch; a pattern kept for each of them would only hold memory.
        enableMemPattern: false,
        logSeverityLevel: 3,
      });
      return new Session(session, graph.inputs, marker);
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
      await this.#session.run(feeds, this.#marked ? { [MARKER]: null, ...outputs } : outputs);
    } catch (cause) {
      if (!this.#marked || errorMessage(cause) !== MARKER_ERROR)
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
