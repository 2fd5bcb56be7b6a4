import { availableParallelism } from "node:os";
import { RlvrError } from "../base/errors.ts";
import type { RlvrConfig } from "../config/index.ts";
import type { AdamSettings, Divergence, Generated, TokenSequence, UpdateResult } from "../engine/index.ts";
import { EngineClient, type EngineOptions, type EngineSource } from "../engine/index.ts";
import { encodePrompt } from "../model/chat-template.ts";
import type { ModelConfig } from "../model/config.ts";
import { checkVocabulary, loadModelConfig } from "../model/folder.ts";
import { loadTokenizer, type Tokenizer } from "../model/tokenizer.ts";
import type { ChatMessage } from "../tasks/task.ts";
import type { Policy, PolicyVersion, SampleRequest, TaughtPolicy, TokenScores } from "./policy.ts";

export function engineOptions(engine: RlvrConfig["engine"]): EngineOptions {
  return {
    threads: engine.threads === 0 ? availableParallelism() : engine.threads,
    microBatchTokens: engine.microBatchTokens,
    activationBytes: engine.activationMegabytes * 2 ** 20,
    decodeSlots: engine.decodeSlots,
  };
}

/** A policy on the embedded engine. */
export class LocalPolicy implements TaughtPolicy {
  readonly model: ModelConfig;
  readonly parameters: number;
  readonly tokenizer: Tokenizer;
  readonly #engine: EngineClient;
  /** Folder that tokenizer and chat template are copied from when the model is saved. */
  readonly #tokenizerFolder: string;
  readonly #eosIds: number[];
  #step = 0;

  private constructor(
    engine: EngineClient,
    info: { config: ModelConfig; parameters: number },
    tokenizer: Tokenizer,
    folder: string,
  ) {
    this.#engine = engine;
    this.model = info.config;
    this.parameters = info.parameters;
    this.tokenizer = tokenizer;
    this.#tokenizerFolder = folder;
    this.#eosIds = [...new Set([...tokenizer.eosIds, ...info.config.eosIds])];
  }

  /** Loads a Hugging Face folder. Throws where model and tokenizer disagree (`RLVR_VOCABULARY`). */
  static async load(folder: string, options: EngineOptions): Promise<LocalPolicy> {
    loadModelConfig(folder); // before the tokenizer: where the whole folder is missing, that is what is said
    return LocalPolicy.#create({ folder }, folder, options);
  }

  /** Random weights of an architecture, with the tokenizer of a folder; its vocabulary is the model's. */
  static async random(
    architecture: Omit<ModelConfig, "vocabularySize" | "bosId" | "eosIds" | "padId">,
    options: EngineOptions & { tokenizerFolder: string; seed: number },
  ): Promise<LocalPolicy> {
    const tokenizer = loadTokenizer(options.tokenizerFolder);
    const config: ModelConfig = {
      ...architecture,
      vocabularySize: tokenizer.vocabularySize,
      bosId: tokenizer.bosId ?? null,
      eosIds: tokenizer.eosIds,
      padId: tokenizer.padId,
    };
    return LocalPolicy.#create({ config, seed: options.seed }, options.tokenizerFolder, options);
  }

  static async #create(source: EngineSource, tokenizerFolder: string, options: EngineOptions): Promise<LocalPolicy> {
    const tokenizer = loadTokenizer(tokenizerFolder);
    const { threads, microBatchTokens, activationBytes, decodeSlots } = options;
    const engine = await EngineClient.create(source, { threads, microBatchTokens, activationBytes, decodeSlots });
    try {
      const info = await engine.call("info");
      checkVocabulary(info.config, tokenizer.vocabularySize);
      return new LocalPolicy(engine, info, tokenizer, tokenizerFolder);
    } catch (error) {
      await engine.close();
      throw error;
    }
  }

  async version(): Promise<PolicyVersion> {
    return { step: this.#step, hash: await this.#engine.call("hash") };
  }

  encode(prompt: string | ChatMessage[]): number[] {
    return encodePrompt(this.tokenizer, prompt);
  }

  decode(tokens: readonly number[]): string {
    const ended = this.#eosIds.includes(tokens[tokens.length - 1]);
    return this.tokenizer.decode(ended ? tokens.slice(0, -1) : tokens);
  }

  sample(request: SampleRequest): Promise<Generated[]> {
    return this.#engine.call("generate", { ...request, eosIds: this.#eosIds });
  }

  logprobs(
    sequences: readonly TokenSequence[],
    options: { temperature: number; keep: boolean; reference?: boolean; divergence?: Divergence },
  ): Promise<TokenScores> {
    return this.#engine.call("logprobs", sequences, options);
  }

  backward(dLogprobs: Float32Array, dEntropies?: Float32Array): Promise<void> {
    return this.#engine.call("backward", dLogprobs, dEntropies);
  }

  moveReference(rate: number): Promise<void> {
    return this.#engine.call("moveReference", rate);
  }

  saveReference(folder: string): Promise<void> {
    return this.#engine.call("saveReference", folder);
  }

  resetOptimizer(): Promise<void> {
    return this.#engine.call("resetOptimizer");
  }

  backwardDivergence(dLogprobs: Float32Array, dDivergences: Float32Array): Promise<void> {
    return this.#engine.call("backward", dLogprobs, undefined, dDivergences);
  }

  async setTeacher(folder: string): Promise<{ parameters: number; hash: string }> {
    const { parameters, hash } = await this.#engine.call("setTeacher", folder);
    return { parameters, hash };
  }

  teacherLogprobs(sequences: readonly TokenSequence[], options: { temperature: number }): Promise<TokenScores> {
    return this.#engine.call("teacherLogprobs", sequences, options);
  }

  update(settings: AdamSettings): Promise<UpdateResult> {
    return this.#engine.call("update", settings);
  }

  endStep(step: number): void {
    this.#step = step;
  }

  setReference(folder: string): Promise<string> {
    return this.#engine.call("setReference", folder);
  }

  async saveCheckpoint(folder: string): Promise<void> {
    await this.#engine.call("saveModel", folder, { copyFrom: this.#tokenizerFolder, replace: true });
    await this.#engine.call("saveOptimizer", folder);
  }

  async loadCheckpoint(folder: string, step: number): Promise<void> {
    await this.#engine.call("loadCheckpoint", folder, { optimizer: true });
    this.#step = step;
  }

  saveModel(folder: string): Promise<void> {
    return this.#engine.call("saveModel", folder, { copyFrom: this.#tokenizerFolder, replace: true });
  }

  close(): Promise<void> {
    return this.#engine.close();
  }
}

/** Throws `RLVR_PROMPT_LENGTH` where a prompt leaves no room for a completion in the model's context. */
export function checkPrompts(policy: Policy, tasks: readonly { id: string; prompt: string | ChatMessage[] }[]): void {
  for (const { id, prompt } of tasks) {
    const tokens = policy.encode(prompt).length;
    if (tokens === 0 || tokens >= policy.model.maxPositions) {
      throw new RlvrError(
        "RLVR_PROMPT_LENGTH",
        `task ${id}: expected a prompt of 1 to ${policy.model.maxPositions - 1} tokens (the model's context less one), got ${tokens}`,
        { next: "shorten the prompt, drop the task, or use a model with a longer context" },
      );
    }
  }
}
