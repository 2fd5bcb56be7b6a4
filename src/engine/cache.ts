import type { ModelConfig } from "../model/config.ts";
import { MASKED } from "./decoder.ts";
import { type Feeds, floatTensor } from "./session.ts";

/** Keys and values of one prompt, each [keyValueHeads, length, headDim] a layer. */
export interface PromptCache {
  length: number;
  keys: Float32Array[];
  values: Float32Array[];
}

/**
 * Keys and values of the rows being decoded: a layer's are [rows, keyValueHeads, capacity, headDim]. Rows are dense:
 * the first `rows` are in use, and a finished one is replaced by a new one or by the last.
 * The capacity follows the longest row in steps, so that the cost of attention follows the real length.
 */
export class DecodeCache {
  readonly #config: ModelConfig;
  readonly #slots: number;
  #capacity = 0;
  #keys: Float32Array[] = [];
  #values: Float32Array[] = [];
  /** Additive mask [slots, capacity]. */
  #mask = new Float32Array(0);
  readonly lengths: Int32Array;
  rows = 0;
  static readonly #STEP = 16;

  constructor(config: ModelConfig, slots: number) {
    this.#config = config;
    this.#slots = slots;
    this.lengths = new Int32Array(slots);
  }

  get capacity(): number {
    return this.#capacity;
  }

  /** Makes room for `length` cached tokens in every row. */
  reserve(length: number): void {
    if (length <= this.#capacity) return;
    const { keyValueHeads, headDim, layers } = this.#config;
    const step = DecodeCache.#STEP;
    const before = this.#capacity;
    const capacity = Math.ceil(length / step) * step;
    const blocks = this.#slots * keyValueHeads;
    const widen = (old: Float32Array | undefined) => {
      const wide = new Float32Array(blocks * capacity * headDim);
      if (old) {
        for (let b = 0; b < this.rows * keyValueHeads; b++) {
          wide.set(old.subarray(b * before * headDim, (b + 1) * before * headDim), b * capacity * headDim);
        }
      }
      return wide;
    };
    this.#keys = Array.from({ length: layers }, (_, l) => widen(this.#keys[l]));
    this.#values = Array.from({ length: layers }, (_, l) => widen(this.#values[l]));
    this.#capacity = capacity;
    this.#mask = new Float32Array(this.#slots * capacity);
    for (let row = 0; row < this.rows; row++) this.#maskRow(row);
  }

  #maskRow(row: number): void {
    const start = row * this.#capacity;
    this.#mask.fill(0, start, start + this.lengths[row]);
    this.#mask.fill(MASKED, start + this.lengths[row], start + this.#capacity);
  }

  /** Fills a row with a prompt. */
  place(row: number, prompt: PromptCache): void {
    const { keyValueHeads, headDim } = this.#config;
    this.reserve(prompt.length);
    const size = prompt.length * headDim;
    const put = (target: Float32Array, source: Float32Array) => {
      for (let h = 0; h < keyValueHeads; h++) {
        target.set(source.subarray(h * size, (h + 1) * size), (row * keyValueHeads + h) * this.#capacity * headDim);
      }
    };
    for (let l = 0; l < this.#keys.length; l++) {
      put(this.#keys[l], prompt.keys[l]);
      put(this.#values[l], prompt.values[l]);
    }
    this.lengths[row] = prompt.length;
    this.#maskRow(row);
  }

  /** Appends one token's keys and values to every row; `keys` and `values` hold [rows, keyValueHeads, headDim] a layer. */
  append(keys: readonly Float32Array[], values: readonly Float32Array[]): void {
    const { keyValueHeads, headDim } = this.#config;
    const capacity = this.#capacity;
    for (let l = 0; l < keys.length; l++) {
      const k = this.#keys[l];
      const v = this.#values[l];
      const newK = keys[l];
      const newV = values[l];
      for (let row = 0, from = 0; row < this.rows; row++) {
        for (let h = 0; h < keyValueHeads; h++) {
          let to = ((row * keyValueHeads + h) * capacity + this.lengths[row]) * headDim;
          for (let i = 0; i < headDim; i++, from++, to++) {
            k[to] = newK[from];
            v[to] = newV[from];
          }
        }
      }
    }
    for (let row = 0; row < this.rows; row++) this.#mask[row * capacity + this.lengths[row]++] = 0;
  }

  /** Removes a row: the last one takes its place. */
  remove(row: number): void {
    const last = --this.rows;
    if (row === last) return;
    const size = this.#config.keyValueHeads * this.#capacity * this.#config.headDim;
    for (let l = 0; l < this.#keys.length; l++) {
      this.#keys[l].copyWithin(row * size, last * size, (last + 1) * size);
      this.#values[l].copyWithin(row * size, last * size, (last + 1) * size);
    }
    this.lengths[row] = this.lengths[last];
    this.#maskRow(row);
  }

  /** `k<l>`, `v<l>` and `mask` for the rows in use. */
  feeds(): Feeds {
    const { keyValueHeads, headDim } = this.#config;
    const shape = [this.rows, keyValueHeads, this.#capacity, headDim];
    const size = shape.reduce((a, b) => a * b, 1);
    const feeds: Feeds = {
      mask: floatTensor(this.#mask.subarray(0, this.rows * this.#capacity), [this.rows, 1, 1, this.#capacity]),
    };
    for (let l = 0; l < this.#keys.length; l++) {
      feeds[`k${l}`] = floatTensor(this.#keys[l].subarray(0, size), shape);
      feeds[`v${l}`] = floatTensor(this.#values[l].subarray(0, size), shape);
    }
    return feeds;
  }
}
