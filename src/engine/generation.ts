/**
 * Sampling with continuous batching: rows of different prompts and lengths decode side by side, and a finished row's
 * place goes to the next sample at once. A prompt is run through the layers once, for all of its samples.
 */

import { RlvrError } from "../base/errors.ts";
import type { RandomStream } from "../base/random.ts";
import type { ModelConfig } from "../model/config.ts";
import { DecodeCache } from "./cache.ts";
import { buildDecodeStep } from "./decoder.ts";
import { Prefill, PromptQueue } from "./prefill.ts";
import { type RotaryTables, rotaryFeeds, rotaryTables } from "./rotary.ts";
import { draw, type SampleKey, type SamplerSettings, sampleStream } from "./sampling.ts";
import { type Feeds, floatTensor, Session } from "./session.ts";
import { StepBuffers } from "./step-buffers.ts";
import type { WeightStore } from "./weights.ts";

export interface GenerationRequest {
  /** Token ids of each prompt. */
  prompts: readonly (readonly number[])[];
  /** What to sample: the index of a prompt, the names of the sample's random stream, and a temperature of its own. */
  samples: readonly { prompt: number; key: SampleKey; temperature?: number }[];
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
  settings: SamplerSettings;
  result: Generated;
}

export class Generation {
  readonly #config: ModelConfig;
  readonly #slots: number;
  readonly #prefill: Prefill;
  readonly #step: Session;
  readonly #rotary: RotaryTables;
  #cache: DecodeCache | undefined;

  private constructor(config: ModelConfig, slots: number, prefill: Prefill, step: Session, rotary: RotaryTables) {
    this.#config = config;
    this.#slots = slots;
    this.#prefill = prefill;
    this.#step = step;
    this.#rotary = rotary;
  }

  /** `slots`: rows decoded side by side. `promptTokens`: tokens of prompts run through the layers together. */
  static async create(
    config: ModelConfig,
    options: { threads: number; slots: number; promptTokens: number },
  ): Promise<Generation> {
    const { threads, slots, promptTokens } = options;
    const rotary = rotaryTables(config, config.maxPositions);
    const prefill = await Prefill.create(config, rotary, { threads, chunkTokens: promptTokens });
    return new Generation(config, slots, prefill, await Session.create(buildDecodeStep(config), threads), rotary);
  }

  /** Samples all of the request; results are in its order. Throws `RLVR_BATCH` for a prompt that leaves no room. */
  async generate(weights: WeightStore, request: GenerationRequest): Promise<Generated[]> {
    const { samples, sampler } = request;
    checkRequest(request, this.#config);
    const results: Generated[] = new Array(samples.length);
    const prompts = new PromptQueue(this.#prefill, weights, request.prompts, samples);
    const cache = this.#takeCache(Math.min(this.#slots, samples.length));
    const rows: Row[] = [];
    const buffers = new StepBuffers(this.#config, cache.slots);
    const constants = this.#stepConstants(weights);
    const eos = new Set(request.eosIds);
    let nextSample = 0;

    const start = async (slot: number): Promise<boolean> => {
      if (nextSample >= samples.length) return false;
      const sample = nextSample++;
      const { prompt: p, key, temperature = sampler.temperature } = samples[sample];
      const prompt = request.prompts[p];
      if (slot === cache.rows) cache.rows++;
      cache.lengths[slot] = 0;
      cache.place(slot, await prompts.take(p));
      const result: Generated = { tokens: [], logprobs: [], finish: "length" };
      const limit = Math.min(request.maxTokens, this.#config.maxPositions - prompt.length);
      const settings = { ...sampler, temperature };
      rows[slot] = { sample, random: sampleStream(key), next: prompt[prompt.length - 1], limit, settings, result };
      return true;
    };

    while (cache.rows < cache.slots && (await start(cache.rows)));
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
        const { token, logprob } = draw(probabilities, slot * size, size, row.settings, row.random.uniform());
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
    this.#cache = cache;
    return results;
  }

  /** The cache of the last use, where it is large enough. One that was left by an error may hold NaN: it is not kept. */
  #takeCache(slots: number): DecodeCache {
    const kept = this.#cache;
    this.#cache = undefined;
    if (kept === undefined || kept.slots < slots) return new DecodeCache(this.#config, slots);
    kept.reset();
    return kept;
  }

  #stepConstants(weights: WeightStore): Feeds {
    const feeds: Feeds = {
      ...rotaryFeeds(this.#rotary),
      embedding: floatTensor(weights.embedding, [this.#config.vocabularySize, this.#config.hiddenSize]),
    };
    weights.layerFeeds.forEach((layer, l) => {
      for (const [role, tensor] of Object.entries(layer)) feeds[`${l}.${role}`] = tensor;
    });
    return feeds;
  }

  async close(): Promise<void> {
    await this.#prefill.close();
    await this.#step.close();
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
