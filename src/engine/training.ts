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
import { buildHead, buildLayer, causalMask, type HeadGraphs, type LayerGraphs } from "./decoder.ts";
import type { Value } from "./graph.ts";
import { type RotaryTables, rotaryFeeds, rotaryTables } from "./rotary.ts";
import { addInto, type BatchRows, eachScored, gatherEmbedding, scatterEmbedding } from "./rows.ts";
import { Arena, type Feeds, floatTensor, intTensor, Session } from "./session.ts";
import type { WeightStore } from "./weights.ts";

export interface LogprobOptions {
  /** The distribution is softmax(logits / temperature), for sequences without a temperature of their own. */
  temperature: number;
  /** Keep what `backward` needs. */
  keep: boolean;
}

export interface LogprobResult {
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

interface Batch extends BatchRows {
  plan: MicroBatch[];
  kept: (Kept | undefined)[];
  temperature: number;
}

interface TrainingSessions {
  layerForward: Session;
  layerBackward: Session;
  headForward: Session;
  headBackward: Session;
  headBackwardWithEntropy: Session;
}

/** Largest product rows × vocabulary of a head chunk: 16 Mi floats are 64 MiB of logits. */
const HEAD_CHUNK_FLOATS = 1 << 24;

export interface TrainingOptions {
  threads: number;
  microBatchTokens: number;
  activationBytes: number;
}

export class Training {
  readonly #config: ModelConfig;
  readonly #options: TrainingOptions;
  readonly #layer: LayerGraphs;
  readonly #sessions: TrainingSessions;
  readonly #kept = new Arena();
  readonly #scratch = new Arena();
  readonly #backwardScratch = new Arena();
  readonly #masks = new Map<number, Tensor>();
  readonly #rotary: RotaryTables;
  #batch: Batch | undefined;

  private constructor(config: ModelConfig, options: TrainingOptions, layer: LayerGraphs, sessions: TrainingSessions) {
    this.#config = config;
    this.#options = options;
    this.#layer = layer;
    this.#sessions = sessions;
    this.#rotary = rotaryTables(config, config.maxPositions);
  }

  static async create(config: ModelConfig, options: TrainingOptions): Promise<Training> {
    const layer = buildLayer(config);
    const head: HeadGraphs = buildHead(config);
    const session = (graph: Parameters<typeof Session.create>[0]) => Session.create(graph, options.threads);
    return new Training(config, options, layer, {
      layerForward: await session(layer.forward),
      layerBackward: await session(layer.backward),
      headForward: await session(head.forward),
      headBackward: await session(head.backward),
      headBackwardWithEntropy: await session(head.backwardWithEntropy),
    });
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
    const result = { logprobs: new Float32Array(total), entropies: new Float32Array(total), offsets };
    const plan = planMicroBatches(sequences, this.#options.microBatchTokens);
    const batch: Batch = { sequences, offsets, plan, kept: [], temperature: options.temperature };
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
      await this.#head(weights, batch, micro, kept, result);
    }
    return result;
  }

  /**
   * Adds the gradient of Σ dLogprobs·logprob + Σ dEntropies·entropy over the last `logprobs(…, { keep: true })`
   * batch to `gradients` (parallel to `weights.flat`). Linear in both; the weights must be the same as then.
   */
  async backward(
    weights: WeightStore,
    gradients: WeightStore,
    dLogprobs: Float32Array,
    dEntropies?: Float32Array,
  ): Promise<void> {
    const batch = this.#batch;
    const total = batch?.offsets[batch.sequences.length];
    if (batch === undefined || dLogprobs.length !== total || (dEntropies && dEntropies.length !== total)) {
      throw new RlvrError(
        "RLVR_BATCH",
        `backward: expected ${total ?? "a batch from logprobs and"} cotangents, got ${dLogprobs.length}`,
        {
          next: "call logprobs with keep: true first and give one cotangent for each scored token",
        },
      );
    }
    this.#batch = undefined;
    for (const [index, micro] of batch.plan.entries()) {
      if (micro.frozen) continue;
      let kept = batch.kept[index];
      if (kept === undefined) {
        this.#scratch.reset();
        kept = await this.#forward(weights, batch, micro, this.#scratch);
      }
      this.#backwardScratch.reset();
      const dHidden = await this.#headBackward(weights, gradients, batch, micro, kept, dLogprobs, dEntropies);
      await this.#layersBackward(weights, gradients, batch, micro, kept, dHidden);
    }
  }

  #activationFloats(micro: MicroBatch): number {
    const tokens = micro.sequences.length * micro.length;
    const layer = this.#layer.saved.reduce(
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
    let x = floatTensor(arena.take(rows * micro.length * d), shape);
    gatherEmbedding(weights.embedding, d, batch, micro, x.data as Float32Array);
    const layers: Feeds[] = [];
    for (const feeds of weights.layerFeeds) {
      const y = floatTensor(arena.take(rows * micro.length * d), shape);
      const kept: Feeds = { x };
      for (const value of this.#layer.saved) {
        kept[value.name as string] = floatTensor(arena.take(this.#size(value, micro)), this.#shape(value, micro));
      }
      const { x: _, ...saved } = kept;
      await this.#sessions.layerForward.run({ y, ...saved }, feeds, common, { x });
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

  /** Calls `run` with the inputs of each chunk of scored tokens; `flat` maps them to the batch's flat arrays. */
  async #headChunks(
    weights: WeightStore,
    batch: Batch,
    micro: MicroBatch,
    kept: Kept,
    run: (inputs: Feeds, flat: Int32Array, from: number) => Promise<void>,
  ): Promise<void> {
    const { hiddenSize: d, vocabularySize } = this.#config;
    const total = kept.hidden.length / d;
    const flat = new Int32Array(total);
    const targets = new BigInt64Array(total);
    eachScored(batch, micro, (_row, at, i, token) => {
      flat[i] = at;
      targets[i] = BigInt(token);
    });
    const chunk = Math.max(1, Math.floor(HEAD_CHUNK_FLOATS / vocabularySize));
    const inverseTemperatures = new Float32Array(total);
    eachScored(batch, micro, (_row, _at, i, _token, sequence) => {
      inverseTemperatures[i] = 1 / (sequence.temperature ?? batch.temperature);
    });
    for (let from = 0; from < total; from += chunk) {
      const to = Math.min(total, from + chunk);
      const inputs: Feeds = {
        ...weights.headFeeds,
        inverseTemperature: floatTensor(inverseTemperatures.subarray(from, to), [to - from, 1]),
        h: floatTensor(kept.hidden.subarray(from * d, to * d), [to - from, d]),
        targets: intTensor(targets.subarray(from, to), [to - from, 1]),
      };
      await run(inputs, flat.subarray(from, to), from);
    }
  }

  async #head(weights: WeightStore, batch: Batch, micro: MicroBatch, kept: Kept, result: LogprobResult): Promise<void> {
    await this.#headChunks(weights, batch, micro, kept, async (inputs, flat) => {
      const logprobs = new Float32Array(flat.length);
      const entropies = new Float32Array(flat.length);
      const shape = [flat.length, 1];
      await this.#sessions.headForward.run(
        { logprobs: floatTensor(logprobs, shape), entropies: floatTensor(entropies, shape) },
        inputs,
      );
      for (let i = 0; i < flat.length; i++) {
        result.logprobs[flat[i]] = logprobs[i];
        result.entropies[flat[i]] = entropies[i];
      }
    });
  }

  async #headBackward(
    weights: WeightStore,
    gradients: WeightStore,
    batch: Batch,
    micro: MicroBatch,
    kept: Kept,
    dLogprobs: Float32Array,
    dEntropies: Float32Array | undefined,
  ): Promise<Float32Array> {
    const { hiddenSize: d, vocabularySize, tieEmbeddings } = this.#config;
    const dHidden = this.#backwardScratch.take(kept.hidden.length);
    const dNorm = this.#backwardScratch.take(d);
    const dHead = this.#backwardScratch.take(vocabularySize * d);
    const gradientNorm = gradients.array(gradients.view("finalNorm"));
    const gradientHead = gradients.array(gradients.view(tieEmbeddings ? "embedding" : "head"));
    const session = dEntropies ? this.#sessions.headBackwardWithEntropy : this.#sessions.headBackward;
    await this.#headChunks(weights, batch, micro, kept, async (inputs, flat, from) => {
      const cotangent = (all: Float32Array) =>
        floatTensor(
          Float32Array.from(flat, (at) => all[at]),
          [flat.length, 1],
        );
      const outputs: Feeds = {
        dh: floatTensor(dHidden.subarray(from * d, (from + flat.length) * d), [flat.length, d]),
        "d.finalNorm": floatTensor(dNorm, [d]),
        "d.head": floatTensor(dHead, [vocabularySize, d]),
      };
      const cotangents: Feeds = { dLogprobs: cotangent(dLogprobs) };
      if (dEntropies) cotangents.dEntropies = cotangent(dEntropies);
      await session.run(outputs, inputs, cotangents);
      addInto(gradientNorm, dNorm);
      addInto(gradientHead, dHead);
    });
    return dHidden;
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
    const views = gradients.views.filter((view) => view.layer === 0);
    const parts = views.map((view) => this.#backwardScratch.take(view.to - view.from));
    const outputs: Feeds = Object.fromEntries(
      views.map((view, i) => [`d.${view.role}`, floatTensor(parts[i], view.shape)]),
    );
    for (let layer = this.#config.layers - 1; layer >= 0; layer--) {
      await this.#sessions.layerBackward.run(
        { dx, ...outputs },
        weights.layerFeeds[layer],
        common,
        kept.layers[layer],
        { dy },
      );
      for (const [i, view] of views.entries()) {
        const target = gradients.views.find((other) => other.layer === layer && other.role === view.role);
        addInto(gradients.array(target as typeof view), parts[i]);
      }
      [dx, dy] = [dy, dx];
    }
    scatterEmbedding(gradients.embedding, d, batch, micro, dy.data as Float32Array);
  }

  async close(): Promise<void> {
    for (const session of Object.values(this.#sessions)) await (session as Session).close();
  }
}
