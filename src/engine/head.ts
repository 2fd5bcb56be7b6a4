/**
 * The head: from the final hidden states of scored tokens to their log-probabilities, and back. It runs over chunks of
 * tokens, so that no array of all tokens × vocabulary exists.
 */
import type { ModelConfig } from "../model/config.ts";
import type { MicroBatch } from "./batch.ts";
import { buildHead } from "./decoder.ts";
import { buildDivergenceHead, type Divergence } from "./divergence.ts";
import { addInto, type BatchRows, eachScored } from "./rows.ts";
import { type Arena, type Feeds, floatTensor, intTensor, Session, tensorsLike } from "./session.ts";
import type { WeightStore } from "./weights.ts";

/** Largest product rows × vocabulary of a chunk: 16 Mi floats are 64 MiB of logits. */
const CHUNK_FLOATS = 1 << 24;
/** The same where two models' distributions, and what lies between them, are in memory together. */
const DIVERGENCE_CHUNK_FLOATS = 1 << 22;

/** Scored sequences with the temperature of those that have none of their own. */
export interface HeadBatch extends BatchRows {
  temperature: number;
}

/** Flat over the scored tokens of the batch. */
export interface HeadResult {
  logprobs: Float32Array;
  entropies: Float32Array;
  /** Where a divergence was asked for. */
  divergences?: Float32Array;
  /** Log-probability of each scored token under the teacher, where a divergence was asked for. */
  teacherLogprobs?: Float32Array;
}

/** Derivatives of a loss with respect to a `HeadResult`, flat as it is. */
export interface HeadCotangents {
  dLogprobs: Float32Array;
  dEntropies?: Float32Array;
  dDivergences?: Float32Array;
}

/** Final hidden states [scored, hidden] of another model for the same tokens, and its weights. */
export interface TeacherStates {
  weights: WeightStore;
  hidden: Float32Array;
}

interface HeadSessions {
  forward: Session;
  backward: Session;
  /** With entropies. */
  backwardWithEntropy?: Session;
}

export class Head {
  readonly #config: ModelConfig;
  readonly #sessions: HeadSessions;
  readonly #chunk: number;

  private constructor(config: ModelConfig, sessions: HeadSessions, chunkFloats: number) {
    this.#config = config;
    this.#sessions = sessions;
    this.#chunk = Math.max(1, Math.floor(chunkFloats / config.vocabularySize));
  }

  static async create(config: ModelConfig, threads: number): Promise<Head> {
    const { forward, backward, backwardWithEntropy } = buildHead(config);
    const sessions = {
      forward: await Session.create(forward, threads),
      backward: await Session.create(backward, threads),
      backwardWithEntropy: await Session.create(backwardWithEntropy, threads),
    };
    return new Head(config, sessions, CHUNK_FLOATS);
  }

  /** A head that also gives the divergence from a teacher; it takes no cotangents of entropies. */
  static async withDivergence(
    config: ModelConfig,
    teacher: ModelConfig,
    divergence: Divergence,
    threads: number,
  ): Promise<Head> {
    const { forward, backward } = buildDivergenceHead(config, teacher, divergence);
    const sessions = {
      forward: await Session.create(forward, threads),
      backward: await Session.create(backward, threads),
    };
    return new Head(config, sessions, DIVERGENCE_CHUNK_FLOATS);
  }

  /** Calls `run` with the inputs of each chunk of scored tokens; `flat` maps them to the batch's flat arrays. */
  async #chunks(
    weights: WeightStore,
    batch: HeadBatch,
    micro: MicroBatch,
    hidden: Float32Array,
    teacher: TeacherStates | undefined,
    run: (inputs: Feeds, flat: Int32Array, from: number) => Promise<void>,
  ): Promise<void> {
    const { hiddenSize: d } = this.#config;
    const total = hidden.length / d;
    const flat = new Int32Array(total);
    const targets = new BigInt64Array(total);
    const inverseTemperatures = new Float32Array(total);
    eachScored(batch, micro, (_row, at, i, token, sequence) => {
      flat[i] = at;
      targets[i] = BigInt(token);
      inverseTemperatures[i] = 1 / (sequence.temperature ?? batch.temperature);
    });
    for (let from = 0; from < total; from += this.#chunk) {
      const to = Math.min(total, from + this.#chunk);
      const inputs: Feeds = {
        ...weights.headFeeds,
        inverseTemperature: floatTensor(inverseTemperatures.subarray(from, to), [to - from, 1]),
        h: floatTensor(hidden.subarray(from * d, to * d), [to - from, d]),
        targets: intTensor(targets.subarray(from, to), [to - from, 1]),
      };
      if (teacher) {
        const width = teacher.weights.config.hiddenSize;
        inputs["teacher.h"] = floatTensor(teacher.hidden.subarray(from * width, to * width), [to - from, width]);
        for (const [role, tensor] of Object.entries(teacher.weights.headFeeds)) inputs[`teacher.${role}`] = tensor;
      }
      await run(inputs, flat.subarray(from, to), from);
    }
  }

  /** Writes the results of a micro-batch's scored tokens, whose final states are `hidden` [scored, hidden]. */
  async forward(
    weights: WeightStore,
    batch: HeadBatch,
    micro: MicroBatch,
    hidden: Float32Array,
    result: HeadResult,
    teacher?: TeacherStates,
  ): Promise<void> {
    const targets: Record<string, Float32Array> = { logprobs: result.logprobs, entropies: result.entropies };
    if (result.divergences) targets.divergences = result.divergences;
    if (result.teacherLogprobs) targets.teacherLogprobs = result.teacherLogprobs;
    await this.#chunks(weights, batch, micro, hidden, teacher, async (inputs, flat) => {
      const names = Object.keys(targets);
      const outputs = names.map(() => new Float32Array(flat.length));
      const feeds = Object.fromEntries(names.map((name, n) => [name, floatTensor(outputs[n], [flat.length, 1])]));
      await this.#sessions.forward.run(feeds, inputs);
      names.forEach((name, n) => {
        for (let i = 0; i < flat.length; i++) targets[name][flat[i]] = outputs[n][i];
      });
    });
  }

  /** Adds the gradients of the head's own weights; returns that of `hidden`, in memory of `arena`. */
  async backward(
    weights: WeightStore,
    gradients: WeightStore,
    batch: HeadBatch,
    micro: MicroBatch,
    hidden: Float32Array,
    arena: Arena,
    cotangents: HeadCotangents,
    teacher?: TeacherStates,
  ): Promise<Float32Array> {
    const { hiddenSize: d } = this.#config;
    const dHidden = arena.take(hidden.length);
    const target: Feeds = { "d.finalNorm": gradients.headFeeds.finalNorm, "d.head": gradients.headFeeds.head };
    const { backward, backwardWithEntropy = backward } = this.#sessions;
    const session = cotangents.dEntropies ? backwardWithEntropy : backward;
    let part: Feeds | undefined;
    await this.#chunks(weights, batch, micro, hidden, teacher, async (inputs, flat, from) => {
      const feeds: Feeds = {};
      for (const [name, all] of Object.entries(cotangents) as [string, Float32Array | undefined][]) {
        if (!all) continue;
        feeds[name] = floatTensor(
          Float32Array.from(flat, (at) => all[at]),
          [flat.length, 1],
        );
      }
      const dh = floatTensor(dHidden.subarray(from * d, (from + flat.length) * d), [flat.length, d]);
      // The first gradients are written where the others are added.
      const direct = gradients.empty && from === 0;
      if (!direct) part ??= tensorsLike(target, arena);
      await session.run({ dh, ...(direct ? target : (part as Feeds)) }, inputs, feeds);
      if (!direct) addInto(target, part as Feeds);
    });
    return dHidden;
  }

  async close(): Promise<void> {
    for (const session of Object.values(this.#sessions)) await (session as Session | undefined)?.close();
  }
}
