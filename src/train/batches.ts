/** Demonstrations as token sequences, and in which order they are trained on: a pure function of seed and position. */
import { RlvrError } from "../base/errors.ts";
import { RandomStream } from "../base/random.ts";
import type { TokenSequence } from "../engine/index.ts";
import type { Policy } from "../policy/policy.ts";
import type { Demonstration } from "../tasks/demonstration.ts";

export interface EncodeOptions {
  /** Longest sequence, in tokens; the model's limit when absent. */
  maxTokens?: number;
  /** Train on the prompt's tokens too. */
  promptLoss: boolean;
}

/**
 * Token sequences of the demonstrations, each with an ending token; the prompt is left out of the loss unless
 * `promptLoss`. With it the prompt may be empty: plain text, of which all tokens but the first count. Throws
 * `RLVR_DEMONSTRATIONS_EMPTY`, and `RLVR_DEMONSTRATION_LENGTH` for one that does not fit, with its number.
 */
export function encodeDemonstrations(
  policy: Pick<Policy, "model" | "tokenizer" | "encode">,
  demonstrations: readonly Demonstration[],
  options: EncodeOptions,
): TokenSequence[] {
  if (demonstrations.length === 0) {
    throw new RlvrError("RLVR_DEMONSTRATIONS_EMPTY", "sft: expected at least one demonstration, got none", {
      next: "check the function that makes them",
    });
  }
  const limit = Math.min(policy.model.maxPositions, options.maxTokens ?? policy.model.maxPositions);
  const [eos] = policy.tokenizer.eosIds;
  return demonstrations.map(({ prompt, completion }, i) => {
    const before = options.promptLoss && prompt === "" ? [] : policy.encode(prompt);
    const tokens = [...before, ...policy.tokenizer.encode(completion), eos];
    const bare = before.length === 0 && !(options.promptLoss && tokens.length > 1);
    if (bare || tokens.length > limit) {
      throw new RlvrError(
        "RLVR_DEMONSTRATION_LENGTH",
        `demonstration ${i}: expected a prompt, and at most ${limit} tokens with its answer, got ${before.length} and ${tokens.length}`,
        { next: "shorten or drop it, or raise sft.maxTokens or the model's context" },
      );
    }
    return { tokens, scoreFrom: options.promptLoss ? 1 : before.length };
  });
}

/**
 * Numbers of the demonstrations to train on and of those held out: a share of the prompts with all of their answers, so
 * that no prompt is on both sides. At least one prompt stays on each side.
 */
export function holdOut(
  demonstrations: readonly Demonstration[],
  share: number,
  seed: number,
): { train: number[]; heldOut: number[] } {
  const all = demonstrations.map((_, i) => i);
  if (share === 0) return { train: all, heldOut: [] };
  const keys = demonstrations.map(({ prompt }) => JSON.stringify(prompt));
  // Sorted first: which prompts are held out does not depend on the order of the demonstrations.
  const prompts = new RandomStream(seed, "held out").shuffle([...new Set(keys)].sort());
  if (prompts.length < 2) {
    throw new RlvrError("RLVR_HELD_OUT", `sft: expected at least two different prompts, got ${prompts.length}`, {
      next: "set sft.heldOutShare to 0",
    });
  }
  const count = Math.min(prompts.length - 1, Math.max(1, Math.round(share * prompts.length)));
  const out = new Set(prompts.slice(0, count));
  return { train: all.filter((i) => !out.has(keys[i])), heldOut: all.filter((i) => out.has(keys[i])) };
}

/** What comes at a position, counted over the whole run. */
export interface Order<T = TokenSequence> {
  at(position: number): T;
}

/** Everything once in each epoch, each epoch shuffled anew. */
export class EpochOrder<T = TokenSequence> implements Order<T> {
  readonly #examples: readonly T[];
  readonly #names: readonly [seed: number, ...names: (string | number)[]];
  #epoch = -1;
  #order: T[] = [];

  /** @param names of the stream of random numbers, to which the epoch is added */
  constructor(examples: readonly T[], ...names: [seed: number, ...names: (string | number)[]]) {
    this.#examples = examples;
    this.#names = names;
  }

  at(position: number): T {
    const epoch = Math.floor(position / this.#examples.length);
    if (epoch !== this.#epoch) {
      this.#epoch = epoch;
      this.#order = new RandomStream(...this.#names, epoch).shuffle(this.#examples);
    }
    return this.#order[position % this.#examples.length];
  }
}

export interface MixPart {
  name: string;
  /** Any positive number: shares need not add up to 1. */
  share: number;
  examples: readonly TokenSequence[];
}

/**
 * Datasets in shares of tokens: the next sequence comes from the dataset that is furthest behind its share, so that the
 * shares hold over every stretch of training, up to the length of a sequence. Within a dataset: epochs.
 */
export class MixOrder implements Order {
  readonly #parts: { share: number; order: EpochOrder; taken: number; tokens: number }[];
  readonly #chosen: TokenSequence[] = [];
  #tokens = 0;

  constructor(parts: readonly MixPart[], seed: number) {
    const total = parts.reduce((sum, { share }) => sum + share, 0);
    this.#parts = parts.map(({ name, share, examples }) => ({
      share: share / total,
      order: new EpochOrder(examples, seed, "demonstrations", name),
      taken: 0,
      tokens: 0,
    }));
  }

  at(position: number): TokenSequence {
    while (this.#chosen.length <= position) {
      const behind = (part: { share: number; tokens: number }) => part.share * (this.#tokens + 1) - part.tokens;
      const part = this.#parts.reduce((best, other) => (behind(other) > behind(best) ? other : best));
      const example = part.order.at(part.taken++);
      part.tokens += example.tokens.length;
      this.#tokens += example.tokens.length;
      this.#chosen.push(example);
    }
    return this.#chosen[position];
  }
}

/** From the `cursor`-th sequence on: as many as fit `batchTokens`, at least one. */
export function nextBatch(order: Order, cursor: number, batchTokens: number): TokenSequence[] {
  const batch: TokenSequence[] = [];
  let tokens = 0;
  for (let position = cursor; ; position++) {
    const example = order.at(position);
    tokens += example.tokens.length;
    if (batch.length > 0 && tokens > batchTokens) return batch;
    batch.push(example);
  }
}
