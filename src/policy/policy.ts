/**
 * What training and evaluation need of a model, wherever it runs. The policy being trained, the policy that sampled
 * (its version is on every rollout) and the reference policy are three roles, never one variable.
 */
import type {
  AdamSettings,
  Divergence,
  Generated,
  SampleKey,
  SamplerSettings,
  TokenSequence,
  UpdateResult,
} from "../engine/index.ts";
import type { ModelConfig } from "../model/config.ts";
import type { Tokenizer } from "../model/tokenizer.ts";
import type { ChatMessage } from "../tasks/task.ts";

/** Which weights: the step after which they were current, and their hash. */
export interface PolicyVersion {
  step: number;
  hash: string;
}

export interface SampleRequest {
  /** Token ids. */
  prompts: readonly (readonly number[])[];
  /** Index of the prompt, and the names of the sample's random stream. */
  samples: readonly { prompt: number; key: SampleKey; temperature?: number }[];
  maxTokens: number;
  sampler: SamplerSettings;
}

export interface TokenScores {
  /** Log-probability of each scored token, flat over sequences. */
  logprobs: Float32Array;
  /** Entropy in nats of the distribution that each was drawn from. */
  entropies: Float32Array;
  /** Start of each sequence in both, and the end. */
  offsets: Int32Array;
  /** Where a divergence was asked for: it, and the tokens' log-probabilities under the teacher. */
  divergences?: Float32Array;
  teacherLogprobs?: Float32Array;
}

/** A policy with a second model beside it, whose probabilities it can learn from. */
export interface TaughtPolicy extends Policy {
  /** Makes a model folder the teacher; its shape may be another, its tokens must be the same. */
  setTeacher(folder: string): Promise<{ parameters: number; hash: string }>;
  /** Log-probabilities under the teacher. */
  teacherLogprobs(sequences: readonly TokenSequence[], options: { temperature: number }): Promise<TokenScores>;
  /** As `Policy.logprobs`, with the divergence from the teacher's distribution where one is named. */
  logprobs(
    sequences: readonly TokenSequence[],
    options: { temperature: number; keep: boolean; reference?: boolean; divergence?: Divergence },
  ): Promise<TokenScores>;
  /** Adds the gradient for dLoss/dlogprob and dLoss/ddivergence of the last kept `logprobs` with a divergence. */
  backwardDivergence(dLogprobs: Float32Array, dDivergences: Float32Array): Promise<void>;
}

export interface Policy {
  readonly model: ModelConfig;
  readonly parameters: number;
  readonly tokenizer: Tokenizer;
  /** Version of the weights as they are now. */
  version(): Promise<PolicyVersion>;
  /** Token ids of a prompt as the model sees it. */
  encode(prompt: string | ChatMessage[]): number[];
  /** Text of sampled tokens, without the ending one. */
  decode(tokens: readonly number[]): string;
  sample(request: SampleRequest): Promise<Generated[]>;
  /** Log-probabilities at a temperature; with `keep`, what `backward` needs stays in memory. */
  logprobs(
    sequences: readonly TokenSequence[],
    options: { temperature: number; keep: boolean; reference?: boolean },
  ): Promise<TokenScores>;
  /** Adds the gradient for dLoss/dlogprob, and dLoss/dentropy where given, of the last kept `logprobs`. */
  backward(dLogprobs: Float32Array, dEntropies?: Float32Array): Promise<void>;
  /** Applies the gradients. */
  update(settings: AdamSettings): Promise<UpdateResult>;
  /** Says that a step is done, whether or not it changed the weights: the version's step from then on. */
  endStep(step: number): void;
  /** Makes a model folder's weights the reference policy; returns their hash. */
  setReference(folder: string): Promise<string>;
  /** Moves the reference towards the policy: π_ref ← rate·π + (1 − rate)·π_ref, over weights. */
  moveReference(rate: number): Promise<void>;
  /** Writes the reference policy as a model folder. */
  saveReference(folder: string): Promise<void>;
  /** Forgets the optimiser's moments. */
  resetOptimizer(): Promise<void>;
  /** Writes model and optimiser into an empty folder that exists. */
  saveCheckpoint(folder: string): Promise<void>;
  loadCheckpoint(folder: string, step: number): Promise<void>;
  /** Writes the model as a Hugging Face folder, in place of what is there. */
  saveModel(folder: string): Promise<void>;
  close(): Promise<void>;
}
