/**
 * Sampling with continuous batching: rows of different prompts and lengths decode side by side, and a finished row's
 * place goes to the next sample at once. A prompt is run through the layers once, for all of its samples.
 */

import { RlvrError } from "../base/errors.ts";
import type { RandomStream } from "../base/random.ts";
import type { ModelConfig } from "../model/config.ts";
import { DecodeCache, type PromptCache } from "./cache.ts";
import { buildDecodeStep, buildLayer, causalMask } from "./decoder.ts";
import { type RotaryTables, rotaryTables } from "./rotary.ts";
import { draw, type SampleKey, type SamplerSettings, sampleStream } from "./sampling.ts";
import { type Feeds, floatTensor, intTensor, Session } from "./session.ts";
import type { WeightStore } from "./weights.ts";

export interface GenerationRequest {
  /** Token ids of each prompt. */
  prompts: readonly (readonly number[])[];
  /** What to sample: the index of a prompt, and the names of the sample's random stream. */
  samples: readonly { prompt: number; key: SampleKey }[];
  /** Longest completion, in tokens; shorter where the model's context ends. */
  maxTokens: number;
  sampler: SamplerSettings;
  /** Tokens that end a completion; they are part of it. */
  eosIds: readonly number[];
}

export interface Generated {
  /** Sampled tokens, the ending one included. */
  tokens: number[];
  /** Log-probability of each under the distribution it was sampled from. */
  logprobs: number[];
  /** `stop`: an ending token was sampled. `length`: cut off. */
  finish: "stop" | "length";
}

interface Row {
  sample: number;
  random: RandomStream;
  next: number;
  limit: number;
  result: Generated;
}

export class Generation {
  readonly #config: ModelConfig;
  readonly #slots: number;
  readonly #promptTokens: number;
  readonly #prefill: Session;
  readonly #step: Session;
  readonly #rotary: RotaryTables;

  private constructor(config: ModelConfig, slots: number, promptTokens: number, prefill: Session, step: Session) {
    this.#config = config;
    this.#slots = slots;
    this.#promptTokens = promptTokens;
    this.#prefill = prefill;
    this.#step = step;
    this.#rotary = rotaryTables(config, config.maxPositions);
  }

  /** `slots`: rows decoded side by side. `promptTokens`: tokens of prompts run through the layers together. */
  static async create(
    config: ModelConfig,
    options: { threads: number; slots: number; promptTokens: number },
  ): Promise<Generation> {
    const prefill = await Session.create(buildLayer(config).prefill, options.threads);
    const step = await Session.create(buildDecodeStep(config), options.threads);
    return new Generation(config, options.slots, options.promptTokens, prefill, step);
  }

  /** Samples all of the request; results are in its order. Throws `RLVR_BATCH` for a prompt that leaves no room. */
  async generate(weights: WeightStore, request: GenerationRequest): Promise<Generated[]> {
    const { samples, sampler } = request;
    checkRequest(request, this.#config);
    const results: Generated[] = new Array(samples.length);
    const prompts = new PromptQueue(this, weights, request);
    const cache = new DecodeCache(this.#config, Math.min(this.#slots, samples.length));
    const rows: Row[] = [];
    const buffers = new StepBuffers(this.#config, Math.min(this.#slots, samples.length));
    const constants = this.#stepConstants(weights, sampler);
    const eos = new Set(request.eosIds);
    let nextSample = 0;

    const start = async (slot: number): Promise<boolean> => {
      if (nextSample >= samples.length) return false;
      const sample = nextSample++;
      const { prompt: p, key } = samples[sample];
      const prompt = request.prompts[p];
      if (slot === cache.rows) cache.rows++;
      cache.lengths[slot] = 0;
      cache.place(slot, await prompts.take(p));
      const result: Generated = { tokens: [], logprobs: [], finish: "length" };
      const limit = Math.min(request.maxTokens, this.#config.maxPositions - prompt.length);
      rows[slot] = { sample, random: sampleStream(key), next: prompt[prompt.length - 1], limit, result };
      return true;
    };

    while (cache.rows < this.#slots && (await start(cache.rows)));
    while (cache.rows > 0) {
      cache.reserve(Math.max(...cache.lengths.subarray(0, cache.rows)) + 1);
      const outputs = buffers.prepare(rows, cache);
      await this.#step.run(outputs, weights.headFeeds, constants, cache.feeds(), buffers.inputs);
      cache.append(buffers.keys, buffers.values);
      const probabilities = buffers.probabilities;
      const size = this.#config.vocabularySize;
      // Downwards: a removed row is replaced by one that was already looked at.
      for (let slot = cache.rows - 1; slot >= 0; slot--) {
        const row = rows[slot];
        const { token, logprob } = draw(probabilities, slot * size, size, sampler, row.random.uniform());
        if (!Number.isFinite(logprob)) throw nonFinite(row.sample);
        row.result.tokens.push(token);
        row.result.logprobs.push(logprob);
        row.next = token;
        const ended = eos.has(token);
        if (!ended && row.result.tokens.length < row.limit) continue;
        if (ended) row.result.finish = "stop";
        results[row.sample] = row.result;
        if (await start(slot)) continue;
        rows[slot] = rows[cache.rows - 1];
        cache.remove(slot);
        rows.length = cache.rows;
      }
    }
    return results;
  }

  #stepConstants(weights: WeightStore, sampler: SamplerSettings): Feeds {
    const feeds: Feeds = {
      ...this.#rotaryFeeds(),
      inverseTemperature: floatTensor(new Float32Array([sampler.temperature === 0 ? 1 : 1 / sampler.temperature]), []),
      embedding: floatTensor(weights.embedding, [this.#config.vocabularySize, this.#config.hiddenSize]),
    };
    weights.layerFeeds.forEach((layer, l) => {
      for (const [role, tensor] of Object.entries(layer)) feeds[`${l}.${role}`] = tensor;
    });
    return feeds;
  }

  #rotaryFeeds(): Feeds {
    const shape = [this.#rotary.positions, this.#config.headDim / 2];
    return { cos: floatTensor(this.#rotary.cos, shape), sin: floatTensor(this.#rotary.sin, shape) };
  }

  /**
   * Keys and values of all tokens but the last of each prompt: the first decoding step takes that one.
   * Runs prompts of similar length together, in chunks.
   */
  async prefill(weights: WeightStore, prompts: readonly (readonly number[])[]): Promise<PromptCache[]> {
    const { hiddenSize: d, keyValueHeads, headDim, layers } = this.#config;
    const caches: PromptCache[] = prompts.map((prompt) => {
      const make = () =>
        Array.from({ length: layers }, () => new Float32Array(keyValueHeads * (prompt.length - 1) * headDim));
      return { length: prompt.length - 1, keys: make(), values: make() };
    });
    const order = prompts.map((_, i) => i).sort((a, b) => prompts[b].length - prompts[a].length || a - b);
    while (order.length > 0) {
      const length = prompts[order[0]].length - 1;
      if (length === 0) break;
      const chunk = order.splice(0, Math.max(1, Math.floor(this.#promptTokens / length)));
      const rows = chunk.length;
      let x = floatTensor(new Float32Array(rows * length * d), [rows, length, d]);
      chunk.forEach((p, row) => {
        for (let t = 0; t < prompts[p].length - 1; t++) {
          const id = prompts[p][t];
          (x.data as Float32Array).set(weights.embedding.subarray(id * d, (id + 1) * d), (row * length + t) * d);
        }
      });
      const common: Feeds = {
        ...this.#rotaryFeeds(),
        mask: floatTensor(causalMask(length), [length, length]),
        positions: intTensor(new BigInt64Array(1), [1]),
      };
      const buffer = () =>
        floatTensor(new Float32Array(rows * keyValueHeads * length * headDim), [rows, keyValueHeads, length, headDim]);
      let y = floatTensor(new Float32Array(rows * length * d), [rows, length, d]);
      const k = buffer();
      const v = buffer();
      for (let l = 0; l < layers; l++) {
        await this.#prefill.run({ y, newK: k, newV: v }, weights.layerFeeds[l], common, { x });
        [x, y] = [y, x];
        chunk.forEach((p, row) => {
          const size = caches[p].length * headDim;
          for (let h = 0; h < keyValueHeads; h++) {
            const from = (row * keyValueHeads + h) * length * headDim;
            caches[p].keys[l].set((k.data as Float32Array).subarray(from, from + size), h * size);
            caches[p].values[l].set((v.data as Float32Array).subarray(from, from + size), h * size);
          }
        });
      }
    }
    return caches;
  }

  /** Tokens of prompts that one `prefill` chunk should hold at most. */
  get promptTokens(): number {
    return this.#promptTokens;
  }

  async close(): Promise<void> {
    await this.#prefill.close();
    await this.#step.close();
  }
}

/** Runs prompts shortly before they are needed and forgets each after its last sample. */
class PromptQueue {
  readonly #generation: Generation;
  readonly #weights: WeightStore;
  readonly #request: GenerationRequest;
  readonly #uses: number[];
  /** Prompts in the order in which samples need them. */
  readonly #order: number[];
  readonly #ready = new Map<number, PromptCache>();

  constructor(generation: Generation, weights: WeightStore, request: GenerationRequest) {
    this.#generation = generation;
    this.#weights = weights;
    this.#request = request;
    this.#uses = request.prompts.map(() => 0);
    for (const { prompt } of request.samples) this.#uses[prompt]++;
    this.#order = [...new Set(request.samples.map(({ prompt }) => prompt))];
  }

  async take(prompt: number): Promise<PromptCache> {
    if (!this.#ready.has(prompt)) await this.#run();
    const cache = this.#ready.get(prompt) as PromptCache;
    if (--this.#uses[prompt] === 0) this.#ready.delete(prompt);
    return cache;
  }

  async #run(): Promise<void> {
    const { prompts } = this.#request;
    const chunk: number[] = [];
    let tokens = 0;
    while (
      this.#order.length > 0 &&
      (chunk.length === 0 || tokens + prompts[this.#order[0]].length <= this.#generation.promptTokens)
    ) {
      tokens += prompts[this.#order[0]].length;
      chunk.push(this.#order.shift() as number);
    }
    const caches = await this.#generation.prefill(
      this.#weights,
      chunk.map((p) => prompts[p]),
    );
    chunk.forEach((p, i) => this.#ready.set(p, caches[i]));
  }
}

/** Inputs and outputs of the decoding step, allocated once for the largest number of rows. */
class StepBuffers {
  readonly #config: ModelConfig;
  readonly #ids: BigInt64Array;
  readonly #positions: BigInt64Array;
  readonly probabilities: Float32Array;
  readonly keys: Float32Array[];
  readonly values: Float32Array[];
  inputs: Feeds = {};
  #outputs: Feeds = {};
  #rows = -1;

  constructor(config: ModelConfig, slots: number) {
    this.#config = config;
    this.#ids = new BigInt64Array(slots);
    this.#positions = new BigInt64Array(slots);
    this.probabilities = new Float32Array(slots * config.vocabularySize);
    const make = () =>
      Array.from({ length: config.layers }, () => new Float32Array(slots * config.keyValueHeads * config.headDim));
    this.keys = make();
    this.values = make();
  }

  /** Sets `inputs` for the rows in use and returns the outputs to fill. */
  prepare(rows: readonly Row[], cache: DecodeCache): Feeds {
    const n = cache.rows;
    for (let i = 0; i < n; i++) {
      this.#ids[i] = BigInt(rows[i].next);
      this.#positions[i] = BigInt(cache.lengths[i]);
    }
    if (n !== this.#rows) {
      const { vocabularySize, keyValueHeads, headDim } = this.#config;
      const shape = [n, keyValueHeads, 1, headDim];
      const size = n * keyValueHeads * headDim;
      this.#rows = n;
      this.inputs = {
        ids: intTensor(this.#ids.subarray(0, n), [n]),
        positions: intTensor(this.#positions.subarray(0, n), [n, 1]),
      };
      this.#outputs = {
        probabilities: floatTensor(this.probabilities.subarray(0, n * vocabularySize), [n, vocabularySize]),
      };
      this.keys.forEach((array, l) => {
        this.#outputs[`newK${l}`] = floatTensor(array.subarray(0, size), shape);
        this.#outputs[`newV${l}`] = floatTensor(this.values[l].subarray(0, size), shape);
      });
    }
    return this.#outputs;
  }
}

function checkRequest(request: GenerationRequest, config: ModelConfig): void {
  request.prompts.forEach((prompt, i) => {
    if (prompt.length < 1 || prompt.length >= config.maxPositions) {
      throw new RlvrError(
        "RLVR_PROMPT_LENGTH",
        `prompt ${i}: expected 1 to ${config.maxPositions - 1} tokens (the model's context less one), got ${prompt.length}`,
        { next: "shorten the prompt, drop the task, or use a model with a longer context" },
      );
    }
    const bad = prompt.find((id) => !(id >= 0 && id < config.vocabularySize));
    if (bad !== undefined) {
      throw new RlvrError("RLVR_BATCH", `prompt ${i}: expected token ids below ${config.vocabularySize}, got ${bad}`, {
        next: "use the tokenizer that belongs to the model",
      });
    }
  });
}

function nonFinite(sample: number): RlvrError {
  return new RlvrError("RLVR_NON_FINITE", `generate: expected finite probabilities, got NaN for sample ${sample}`, {
    next: "the weights are damaged: return to an earlier checkpoint and lower the learning rate",
  });
}
