import type { ModelConfig } from "../model/config.ts";
import type { PromptCache } from "./cache.ts";
import { buildLayer, causalMask } from "./decoder.ts";
import { type RotaryTables, rotaryFeeds } from "./rotary.ts";
import { type Feeds, floatTensor, intTensor, Session } from "./session.ts";
import type { WeightStore } from "./weights.ts";

/** Runs prompts through the layers and gives the keys and values that decoding starts from. */
export class Prefill {
  readonly #config: ModelConfig;
  readonly #session: Session;
  readonly #rotary: RotaryTables;
  /** Tokens of prompts run through the layers together. */
  readonly chunkTokens: number;

  private constructor(config: ModelConfig, session: Session, rotary: RotaryTables, chunkTokens: number) {
    this.#config = config;
    this.#session = session;
    this.#rotary = rotary;
    this.chunkTokens = chunkTokens;
  }

  static async create(
    config: ModelConfig,
    rotary: RotaryTables,
    options: { threads: number; chunkTokens: number },
  ): Promise<Prefill> {
    const session = await Session.create(buildLayer(config).prefill, options.threads);
    return new Prefill(config, session, rotary, options.chunkTokens);
  }

  /**
   * Keys and values of all tokens but the last of each prompt: the first decoding step takes that one.
   * Runs prompts of similar length together, in chunks.
   */
  async run(weights: WeightStore, prompts: readonly (readonly number[])[]): Promise<PromptCache[]> {
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
      const chunk = order.splice(0, Math.max(1, Math.floor(this.chunkTokens / length)));
      const rows = chunk.length;
      let x = floatTensor(new Float32Array(rows * length * d), [rows, length, d]);
      chunk.forEach((p, row) => {
        for (let t = 0; t < prompts[p].length - 1; t++) {
          const id = prompts[p][t];
          (x.data as Float32Array).set(weights.embedding.subarray(id * d, (id + 1) * d), (row * length + t) * d);
        }
      });
      const common: Feeds = {
        ...rotaryFeeds(this.#rotary),
        mask: floatTensor(causalMask(length), [length, length]),
        positions: intTensor(new BigInt64Array(1), [1]),
      };
      const buffer = () =>
        floatTensor(new Float32Array(rows * keyValueHeads * length * headDim), [rows, keyValueHeads, length, headDim]);
      let y = floatTensor(new Float32Array(rows * length * d), [rows, length, d]);
      const k = buffer();
      const v = buffer();
      for (let l = 0; l < layers; l++) {
        await this.#session.run({ y, newK: k, newV: v }, weights.layerFeeds[l], common, { x });
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

  close(): Promise<void> {
    return this.#session.close();
  }
}

/** Runs prompts shortly before they are needed and forgets each after its last sample. */
export class PromptQueue {
  readonly #prefill: Prefill;
  readonly #weights: WeightStore;
  readonly #prompts: readonly (readonly number[])[];
  readonly #uses: number[];
  /** Prompts in the order in which samples need them. */
  readonly #order: number[];
  readonly #ready = new Map<number, PromptCache>();

  constructor(
    prefill: Prefill,
    weights: WeightStore,
    prompts: readonly (readonly number[])[],
    samples: readonly { prompt: number }[],
  ) {
    this.#prefill = prefill;
    this.#weights = weights;
    this.#prompts = prompts;
    this.#uses = prompts.map(() => 0);
    for (const { prompt } of samples) this.#uses[prompt]++;
    this.#order = [...new Set(samples.map(({ prompt }) => prompt))];
  }

  async take(prompt: number): Promise<PromptCache> {
    if (!this.#ready.has(prompt)) await this.#run();
    const cache = this.#ready.get(prompt) as PromptCache;
    if (--this.#uses[prompt] === 0) this.#ready.delete(prompt);
    return cache;
  }

  async #run(): Promise<void> {
    const chunk: number[] = [];
    let tokens = 0;
    while (this.#order.length > 0) {
      tokens += this.#prompts[this.#order[0]].length;
      if (chunk.length > 0 && tokens > this.#prefill.chunkTokens) break;
      chunk.push(this.#order.shift() as number);
    }
    const caches = await this.#prefill.run(
      this.#weights,
      chunk.map((p) => this.#prompts[p]),
    );
    for (const [i, p] of chunk.entries()) this.#ready.set(p, caches[i]);
  }
}
