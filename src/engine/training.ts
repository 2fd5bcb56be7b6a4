/**
 * Log-probabilities of token sequences and their vector-Jacobian product, layer by layer.
 *
 * `logprobs` runs micro-batches forwards and keeps their activations while they fit the memory budget;
 * `backward` takes dLoss/dlogprob for each scored token and adds the weights' gradients, running the micro-batches
 * that were not kept forwards again.
 */
import type { Tensor } from "onnxruntime-node";
import { RlvrError } from "../base/errors.ts";
import type { ModelConfig } from "../model/config.ts";
import { checkSequences, type MicroBatch, planMicroBatches, scoredOffsets, type TokenSequence } from "./batch.ts";
import { buildLayer, causalMask, type LayerGraphs, type LayerOptions } from "./decoder.ts";
import type { Divergence } from "./divergence.ts";
import type { Value } from "./graph.ts";
import { Head, type HeadBatch, type HeadCotangents, type HeadResult, type TeacherStates } from "./head.ts";
import { type RotaryTables, rotaryFeeds, rotaryTables } from "./rotary.ts";
import { addInto, eachScored, gatherEmbedding, scatterEmbedding } from "./rows.ts";
import { Arena, type Feeds, floatTensor, intTensor, Session, tensorsLike } from "./session.ts";
import type { WeightStore } from "./weights.ts";

export interface LogprobOptions {
  /** The distribution is softmax(logits / temperature), for sequences without a temperature of their own. */
  temperature: number;
  /** Keep what `backward` needs. */
  keep: boolean;
  /** Also the divergence from the teacher's distribution at each scored token. */
  divergence?: Divergence;
}

export interface LogprobResult extends HeadResult {
  /** Log-probability of each scored token. */
  logprobs: Float32Array;
  /** Entropy (nats) of the distribution each was drawn from. */
  entropies: Float32Array;
  /** Start of each sequence in both, and the end. */
  offsets: Int32Array;
}

interface Kept {
  /** Tensors [rows, length, …] of each layer: its input x and its saved values. */
  layers: Feeds[];
  /** Final hidden states of the scored tokens, [scored, hidden]. */
  hidden: Float32Array;
}

interface Batch extends HeadBatch {
  plan: MicroBatch[];
  kept: (Kept | undefined)[];
  head: Head;
  /** One a micro-batch, where a divergence was asked for. */
  teacher: (TeacherStates | undefined)[];
}

/** A layer forwards and backwards, keeping some of its values in between. */
class LayerPass {
  readonly saved: readonly Value[];
  readonly forward: Session;
  readonly backward: Session;

  private constructor(graphs: LayerGraphs, forward: Session, backward: Session) {
    this.saved = graphs.saved;
    this.forward = forward;
    this.backward = backward;
  }

  static async create(config: ModelConfig, options: LayerOptions, threads: number): Promise<LayerPass> {
    const graphs = buildLayer(config, options);
    const forward = await Session.create(graphs.forward, threads);
    return new LayerPass(graphs, forward, await Session.create(graphs.backward, threads));
  }

  async close(): Promise<void> {
    await this.forward.close();
    await this.backward.close();
  }
}

/** For short sequences attention weights are kept, for long ones they would take more memory than all else. */
interface LayerPasses {
  short: LayerPass;
  long: LayerPass;
}

/** Another model, through sessions of its own. */
export interface Teacher {
  training: Training;
  weights: WeightStore;
}

export interface TrainingOptions {
  threads: number;
  microBatchTokens: number;
  activationBytes: number;
}

export class Training {
  readonly #config: ModelConfig;
  readonly #options: TrainingOptions;
  readonly #passes: LayerPasses;
  readonly #head: Head;
  #teacher: Teacher | undefined;
  #divergenceHead: { of: string; head: Head } | undefined;
  readonly #kept = new Arena();
  readonly #scratch = new Arena();
  readonly #backwardScratch = new Arena();
  readonly #masks = new Map<number, Tensor>();
  readonly #rotary: RotaryTables;
  #batch: Batch | undefined;

  private constructor(config: ModelConfig, options: TrainingOptions, passes: LayerPasses, head: Head) {
    this.#config = config;
    this.#options = options;
    this.#passes = passes;
    this.#head = head;
    this.#rotary = rotaryTables(config, config.maxPositions);
  }

  static async create(config: ModelConfig, options: TrainingOptions): Promise<Training> {
    const passes = {
      short: await LayerPass.create(config, { keepAttention: true }, options.threads),
      long: await LayerPass.create(config, { keepAttention: false }, options.threads),
    };
    return new Training(config, options, passes, await Head.create(config, options.threads));
  }

  #pass({ length }: MicroBatch): LayerPass {
    const { heads, hiddenSize } = this.#config;
    return length * heads <= 4 * hiddenSize ? this.#passes.short : this.#passes.long;
  }

  /** Makes a model the one that divergences are taken from. */
  async setTeacher(teacher: Teacher): Promise<void> {
    await this.#divergenceHead?.head.close();
    this.#divergenceHead = undefined;
    this.#teacher = teacher;
  }

  async #headFor(divergence: Divergence | undefined): Promise<Head> {
    if (divergence === undefined) return this.#head;
    const teacher = this.#teacher;
    if (teacher === undefined) {
      throw new RlvrError("RLVR_ENGINE", "logprobs: expected a teacher to take a divergence from, got none", {
        next: "call setTeacher first",
      });
    }
    const of = JSON.stringify(divergence);
    if (this.#divergenceHead?.of !== of) {
      await this.#divergenceHead?.head.close();
      const { threads } = this.#options;
      const head = await Head.withDivergence(this.#config, teacher.weights.config, divergence, threads);
      this.#divergenceHead = { of, head };
    }
    return this.#divergenceHead.head;
  }

  /** Log-probabilities and entropies of all scored tokens under `weights`. Throws `RLVR_BATCH` for bad sequences. */
  async logprobs(
    weights: WeightStore,
    sequences: readonly TokenSequence[],
    options: LogprobOptions,
  ): Promise<LogprobResult> {
    checkSequences(sequences, this.#config);
    const offsets = scoredOffsets(sequences);
    const total = offsets[sequences.length];
    const result: LogprobResult = { logprobs: new Float32Array(total), entropies: new Float32Array(total), offsets };
    const plan = planMicroBatches(sequences, this.#options.microBatchTokens);
    const head = await this.#headFor(options.divergence);
    const batch: Batch = { sequences, offsets, plan, kept: [], head, teacher: [], temperature: options.temperature };
    const teacher = options.divergence && this.#teacher;
    if (teacher) {
      checkSequences(sequences, teacher.weights.config);
      result.divergences = new Float32Array(total);
      result.teacherLogprobs = new Float32Array(total);
    }
    if (options.keep) {
      this.#kept.reset();
      this.#batch = batch;
    }
    let floats = 0;
    for (const micro of plan) {
      if (!micro.frozen) floats += this.#activationFloats(micro);
      const keep = options.keep && !micro.frozen && floats * 4 <= this.#options.activationBytes;
      if (!keep) this.#scratch.reset();
      const kept = await this.#forward(weights, batch, micro, keep ? this.#kept : this.#scratch);
      if (options.keep) batch.kept.push(keep ? kept : undefined);
      const states = teacher && (await teacher.training.#states(teacher.weights, batch, micro));
      if (options.keep) batch.teacher.push(states);
      await head.forward(weights, batch, micro, kept.hidden, result, states);
    }
    return result;
  }

  /** The final hidden states of a micro-batch's scored tokens, copied out of the arena. */
  async #states(weights: WeightStore, batch: Batch, micro: MicroBatch): Promise<TeacherStates> {
    this.#scratch.reset();
    const { hidden } = await this.#forward(weights, batch, micro, this.#scratch);
    return { weights, hidden: hidden.slice() };
  }

  /**
   * Adds the gradient of Σ dLogprobs·logprob + Σ dEntropies·entropy + Σ dDivergences·divergence over the last
   * `logprobs(…, { keep: true })` batch to `gradients` (parallel to `weights.flat`). Linear in all three; the weights
   * must be the same as then. Divergences must have been asked for, and go without entropies.
   */
  async backward(weights: WeightStore, gradients: WeightStore, cotangents: HeadCotangents): Promise<void> {
    const batch = this.#batch;
    const total = batch?.offsets[batch.sequences.length];
    const lengths = (Object.values(cotangents) as (Float32Array | undefined)[]).map((array) => array?.length);
    const wrong = lengths.find((length) => length !== undefined && length !== total);
    if (batch === undefined || wrong !== undefined) {
      throw new RlvrError(
        "RLVR_BATCH",
        `backward: expected ${total ?? "a batch from logprobs and"} cotangents, got ${wrong ?? lengths[0]}`,
        {
          next: "call logprobs with keep: true first and give one cotangent for each scored token",
        },
      );
    }
    const divergent = batch.head !== this.#head;
    if (divergent !== (cotangents.dDivergences !== undefined) || (divergent && cotangents.dEntropies !== undefined)) {
      const expected = divergent ? "cotangents of divergences and none of entropies" : "no cotangents of divergences";
      throw new RlvrError("RLVR_BATCH", `backward: expected ${expected}, got others`, {
        next: "ask logprobs for a divergence to give cotangents of one",
      });
    }
    this.#batch = undefined;
    for (const [index, micro] of batch.plan.entries()) {
      if (micro.frozen) continue;
      let kept = batch.kept[index];
      if (kept === undefined) {
        this.#scratch.reset();
        kept = await this.#forward(weights, batch, micro, this.#scratch);
      }
      const arena = this.#backwardScratch;
      arena.reset();
      const states = batch.teacher[index];
      const { hidden } = kept;
      const dHidden = await batch.head.backward(weights, gradients, batch, micro, hidden, arena, cotangents, states);
      await this.#layersBackward(weights, gradients, batch, micro, kept, dHidden);
    }
  }

  #activationFloats(micro: MicroBatch): number {
    const tokens = micro.sequences.length * micro.length;
    const layer = this.#pass(micro).saved.reduce(
      (sum, value) => sum + this.#size(value, micro),
      tokens * this.#config.hiddenSize,
    );
    return this.#config.layers * layer + tokens * this.#config.hiddenSize;
  }

  #shape(value: Value, micro: MicroBatch): number[] {
    return value.shape.map((dim) =>
      dim === "B" ? micro.sequences.length : dim === "L" ? micro.length : (dim as number),
    );
  }

  #size(value: Value, micro: MicroBatch): number {
    return this.#shape(value, micro).reduce((a, b) => a * b, 1);
  }

  #common(length: number): Feeds {
    let mask = this.#masks.get(length);
    if (mask === undefined) {
      if (this.#masks.size > 64) this.#masks.clear();
      mask = floatTensor(causalMask(length), [length, length]);
      this.#masks.set(length, mask);
    }
    return {
      mask,
      positions: intTensor(new BigInt64Array(1), [1]),
      ...rotaryFeeds(this.#rotary),
    };
  }

  async #forward(weights: WeightStore, batch: Batch, micro: MicroBatch, arena: Arena): Promise<Kept> {
    const d = this.#config.hiddenSize;
    const rows = micro.sequences.length;
    const shape = [rows, micro.length, d];
    const common = this.#common(micro.length);
    const pass = this.#pass(micro);
    let x = floatTensor(arena.take(rows * micro.length * d), shape);
    gatherEmbedding(weights.embedding, d, batch, micro, x.data as Float32Array);
    const layers: Feeds[] = [];
    for (const feeds of weights.layerFeeds) {
      const y = floatTensor(arena.take(rows * micro.length * d), shape);
      const kept: Feeds = { x };
      for (const value of pass.saved) {
        kept[value.savedAs as string] = floatTensor(arena.take(this.#size(value, micro)), this.#shape(value, micro));
      }
      const { x: _, ...saved } = kept;
      await pass.forward.run({ y, ...saved }, feeds, common, { x });
      layers.push(kept);
      x = y;
    }
    const scored = micro.sequences.reduce((n, s) => n + batch.offsets[s + 1] - batch.offsets[s], 0);
    const hidden = arena.take(scored * d);
    eachScored(batch, micro, (row, _flat, i) => {
      const from = row * d;
      hidden.set((x.data as Float32Array).subarray(from, from + d), i * d);
    });
    return { layers, hidden };
  }

  async #layersBackward(
    weights: WeightStore,
    gradients: WeightStore,
    batch: Batch,
    micro: MicroBatch,
    kept: Kept,
    dHidden: Float32Array,
  ): Promise<void> {
    const d = this.#config.hiddenSize;
    const rows = micro.sequences.length;
    const shape = [rows, micro.length, d];
    const common = this.#common(micro.length);
    const take = () => floatTensor(this.#backwardScratch.take(rows * micro.length * d), shape);
    let dy = take();
    let dx = take();
    const spread = dy.data as Float32Array;
    spread.fill(0);
    eachScored(batch, micro, (row, _flat, i) => spread.set(dHidden.subarray(i * d, (i + 1) * d), row * d));
    let part: Feeds | undefined;
    for (let layer = this.#config.layers - 1; layer >= 0; layer--) {
      const target = Object.fromEntries(
        Object.entries(gradients.layerFeeds[layer]).map(([role, tensor]) => [`d.${role}`, tensor]),
      );
      if (!gradients.empty) part ??= tensorsLike(target, this.#backwardScratch);
      await this.#pass(micro).backward.run(
        { dx, ...(part ?? target) },
        weights.layerFeeds[layer],
        common,
        kept.layers[layer],
        { dy },
      );
      if (part) addInto(target, part);
      [dx, dy] = [dy, dx];
    }
    gradients.empty = false;
    scatterEmbedding(gradients.embedding, d, batch, micro, dy.data as Float32Array);
  }

  async close(): Promise<void> {
    await this.#passes.short.close();
    await this.#passes.long.close();
    await this.#head.close();
    await this.#divergenceHead?.head.close();
  }
}
