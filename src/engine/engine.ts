import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { RlvrError } from "../base/errors.ts";
import type { ModelConfig } from "../model/config.ts";
import { loadModelFolder, saveModelFolder } from "../model/folder.ts";
import { initialParameters } from "../model/parameters.ts";
import { readSafetensors, writeSafetensors } from "../model/safetensors.ts";
import { type AdamSettings, type AdamState, adamwUpdate, globalNorm } from "./adamw.ts";
import type { TokenSequence } from "./batch.ts";
import { type Generated, Generation, type GenerationRequest } from "./generation.ts";
import { runtimeClock } from "./session.ts";
import { type LogprobOptions, type LogprobResult, type Teacher, Training } from "./training.ts";
import { WeightStore } from "./weights.ts";

export interface EngineOptions {
  /** Threads of ONNX Runtime. */
  threads: number;
  /** Tokens of a micro-batch, padding included. */
  microBatchTokens: number;
  /** Memory for activations kept between `logprobs` and `backward`, in bytes. */
  activationBytes: number;
  /** Rows decoded side by side. */
  decodeSlots: number;
}

/** What an engine starts from: a Hugging Face folder, or a config and the seed of random weights. */
export type EngineSource = { folder: string } | { config: ModelConfig; seed: number };

export interface UpdateResult {
  /** Global norm of the gradients before clipping. */
  gradNorm: number;
  /** False where a gradient was not finite: nothing was changed then, and the gradients are 0. */
  applied: boolean;
}

const OPTIMIZER_FILE = "optimizer.safetensors";

/**
 * A model with its optimiser: sampling, log-probabilities, gradients, updates, checkpoints.
 * It blocks its thread while it computes and takes one call at a time; programs use it through `EngineClient`, which
 * runs it in a worker and queues calls.
 *
 * @example
 * const engine = await Engine.create({ folder: "recipes/transforms/model" }, options);
 * const { logprobs } = await engine.logprobs([{ tokens: [5, 6, 7], scoreFrom: 1 }], { temperature: 1, keep: true });
 * await engine.backward(new Float32Array(logprobs.length).fill(-1)); // raise both log-probabilities
 * await engine.update({ learningRate: 1e-4, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weightDecay: 0, maxGradNorm: 1 });
 */
export class Engine {
  readonly config: ModelConfig;
  readonly #options: EngineOptions;
  #weights: WeightStore;
  #gradients: WeightStore;
  #reference: WeightStore | undefined;
  #teacher: Teacher | undefined;
  #adam: AdamState;
  #hash: string | undefined;
  // Built when first used: evaluation never trains, tuning on demonstrations never samples.
  #training: Training | undefined;
  #generation: Generation | undefined;

  private constructor(weights: WeightStore, options: EngineOptions) {
    this.config = weights.config;
    this.#options = options;
    this.#weights = weights;
    this.#gradients = new WeightStore(weights.config);
    const size = weights.flat.length;
    this.#adam = { m: new Float32Array(size), v: new Float32Array(size), updates: 0 };
  }

  static async create(source: EngineSource, options: EngineOptions): Promise<Engine> {
    const { config, parameters } =
      "folder" in source
        ? loadModelFolder(source.folder)
        : { config: source.config, parameters: initialParameters(source.config, source.seed) };
    return new Engine(WeightStore.fromParameters(config, parameters), options);
  }

  info(): { config: ModelConfig; parameters: number; hash: string } {
    return { config: this.config, parameters: this.#weights.flat.length, hash: this.hash() };
  }

  /** Identity of the weights: SHA-256, first 16 digits. */
  hash(): string {
    this.#hash ??= this.#weights.hash();
    return this.#hash;
  }

  async #trainer(): Promise<Training> {
    const { threads, microBatchTokens, activationBytes } = this.#options;
    this.#training ??= await Training.create(this.config, { threads, microBatchTokens, activationBytes });
    return this.#training;
  }

  /** Samples completions; see `Generation`. */
  async generate(request: GenerationRequest): Promise<Generated[]> {
    const { threads, decodeSlots, microBatchTokens } = this.#options;
    this.#generation ??= await Generation.create(this.config, {
      threads,
      slots: decodeSlots,
      promptTokens: microBatchTokens,
    });
    return this.#generation.generate(this.#weights, request);
  }

  /** Log-probabilities of the scored tokens, under the policy or, with `reference`, under the reference policy. */
  async logprobs(
    sequences: readonly TokenSequence[],
    options: LogprobOptions & { reference?: boolean },
  ): Promise<LogprobResult> {
    const training = await this.#trainer();
    if (!options.reference) return training.logprobs(this.#weights, sequences, options);
    return training.logprobs(this.#referenceWeights(), sequences, { ...options, keep: false });
  }

  /**
   * Adds the gradient for these cotangents of the last kept `logprobs`; minimising follows dLoss/dlogprob.
   * `dDivergences` belongs to a `logprobs` that was asked for a divergence, and goes without `dEntropies`.
   */
  async backward(dLogprobs: Float32Array, dEntropies?: Float32Array, dDivergences?: Float32Array): Promise<void> {
    const cotangents = { dLogprobs, dEntropies, dDivergences };
    await (await this.#trainer()).backward(this.#weights, this.#gradients, cotangents);
  }

  /** One AdamW update from the gradients added so far, which become 0. */
  update(settings: AdamSettings): UpdateResult {
    const gradNorm = globalNorm(this.#gradients.flat);
    this.#gradients.empty = true;
    if (!Number.isFinite(gradNorm)) {
      this.#gradients.flat.fill(0);
      return { gradNorm, applied: false };
    }
    adamwUpdate(
      this.#weights.flat,
      this.#gradients.flat,
      this.#adam,
      this.#weights.decayedRanges(),
      gradNorm,
      settings,
    );
    this.#hash = undefined;
    return { gradNorm, applied: true };
  }

  /** Makes a folder's weights, or without one a copy of the current weights, the reference policy; returns its hash. */
  setReference(folder?: string): string {
    const parameters = folder === undefined ? this.#weights.parameters() : loadModelFolder(folder).parameters;
    this.#reference = WeightStore.fromParameters(this.config, parameters);
    return this.#reference.hash();
  }

  #referenceWeights(): WeightStore {
    if (this.#reference) return this.#reference;
    throw new RlvrError("RLVR_ENGINE", "engine: expected a reference policy, got none", {
      next: "call setReference first",
    });
  }

  /** Moves the reference towards the policy: π_ref ← rate·π + (1 − rate)·π_ref, over weights (Polyak averaging). */
  moveReference(rate: number): void {
    const reference = this.#referenceWeights().flat;
    const policy = this.#weights.flat;
    for (let i = 0; i < reference.length; i++) reference[i] += rate * (policy[i] - reference[i]);
  }

  /** Writes the reference policy as a model folder. */
  saveReference(folder: string): void {
    saveModelFolder(folder, { config: this.config, parameters: this.#referenceWeights().parameters() });
  }

  /** Forgets the optimiser's moments, and with them the count of its updates. */
  resetOptimizer(): void {
    this.#adam.m.fill(0);
    this.#adam.v.fill(0);
    this.#adam.updates = 0;
  }

  /**
   * Makes another model's folder the teacher, for `teacherLogprobs` and for divergences; its shape may be another, its
   * tokens must be the same. Returns its size and hash.
   */
  async setTeacher(folder: string): Promise<{ config: ModelConfig; parameters: number; hash: string }> {
    const { config, parameters } = loadModelFolder(folder);
    const weights = WeightStore.fromParameters(config, parameters);
    const { threads, microBatchTokens } = this.#options;
    await this.#teacher?.training.close();
    const training = await Training.create(config, { threads, microBatchTokens, activationBytes: 0 });
    this.#teacher = { training, weights };
    await (await this.#trainer()).setTeacher(this.#teacher);
    return { config, parameters: weights.flat.length, hash: weights.hash() };
  }

  /** Log-probabilities of the scored tokens under the teacher. */
  async teacherLogprobs(sequences: readonly TokenSequence[], options: { temperature: number }): Promise<LogprobResult> {
    if (this.#teacher === undefined) {
      throw new RlvrError("RLVR_ENGINE", "teacherLogprobs: expected a teacher, got none", {
        next: "call setTeacher first",
      });
    }
    const { training, weights } = this.#teacher;
    return training.logprobs(weights, sequences, { ...options, keep: false });
  }

  /** Gradients added so far, by Hugging Face parameter name (copies). */
  gradients(): Map<string, Float32Array> {
    return copies(this.#gradients);
  }

  /** Weights by Hugging Face parameter name (copies). */
  parameters(): Map<string, Float32Array> {
    return copies(this.#weights);
  }

  /** Writes the model as a Hugging Face folder; see `saveModelFolder`. */
  saveModel(path: string, options: { copyFrom?: string; replace?: boolean } = {}): void {
    saveModelFolder(path, { config: this.config, parameters: this.#weights.parameters(), ...options });
  }

  /** Writes the optimiser's state, for `loadCheckpoint`, into a folder made by `saveModel`. */
  saveOptimizer(folder: string): void {
    mkdirSync(folder, { recursive: true });
    const { m, v, updates } = this.#adam;
    const vector = (data: Float32Array) => ({ shape: [data.length], data });
    // The count is exact in float32 up to 16.7 million updates.
    const tensors = { m: vector(m), v: vector(v), updates: vector(new Float32Array([updates])) };
    writeSafetensors(join(folder, OPTIMIZER_FILE), Object.entries(tensors));
  }

  /** Loads weights, and the optimiser's state where `optimizer` is set, from a folder; the architecture must agree. */
  loadCheckpoint(folder: string, options: { optimizer: boolean }): void {
    const { config, parameters } = loadModelFolder(folder);
    const loaded = WeightStore.fromParameters(config, parameters);
    if (JSON.stringify(loaded.views) !== JSON.stringify(this.#weights.views)) {
      throw new RlvrError(
        "RLVR_CHECKPOINT",
        `checkpoint: expected ${folder} to hold the model being trained, got another shape`,
        {
          next: "resume with the model that the run was started with",
        },
      );
    }
    if (options.optimizer) this.#loadOptimizer(folder);
    this.#weights.flat.set(loaded.flat);
    this.#gradients.flat.fill(0);
    this.#gradients.empty = true;
    this.#hash = undefined;
  }

  #loadOptimizer(folder: string): void {
    const file = readSafetensors(join(folder, OPTIMIZER_FILE));
    const m = file.get("m")?.data;
    const v = file.get("v")?.data;
    const updates = file.get("updates")?.data[0];
    const size = this.#weights.flat.length;
    if (m?.length !== size || v?.length !== size || updates === undefined) {
      throw new RlvrError(
        "RLVR_CHECKPOINT",
        `checkpoint: expected moments of ${size} parameters in ${folder}, got ${m?.length ?? "none"}`,
        {
          next: "resume from another checkpoint",
        },
      );
    }
    this.#adam = { m, v, updates };
  }

  /** Time inside ONNX Runtime so far, and memory of the process. */
  statistics(): { runtimeMs: number; runs: number; rssBytes: number } {
    return { runtimeMs: runtimeClock.wallMs, runs: runtimeClock.runs, rssBytes: process.memoryUsage().rss };
  }

  async close(): Promise<void> {
    await this.#training?.close();
    await this.#teacher?.training.close();
    await this.#generation?.close();
  }
}

function copies(store: WeightStore): Map<string, Float32Array> {
  return new Map([...store.parameters()].map(([name, array]) => [name, array.slice()]));
}
