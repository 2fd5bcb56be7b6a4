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
 * The capacity follows the longest row in steps, so that the cost of attention follows the real length; the arrays are
 * kept between uses and laid out anew in place.
 */
export class DecodeCache {
  readonly #config: ModelConfig;
  readonly slots: number;
  #capacity = 0;
  /** Capacity that the arrays have room for. */
  #allocated = 0;
  #keys: Float32Array[] = [];
  #values: Float32Array[] = [];
  /** Additive mask [slots, capacity]. */
  #mask = new Float32Array(0);
  readonly lengths: Int32Array;
  rows = 0;
  static readonly #STEP = 16;

  constructor(config: ModelConfig, slots: number) {
    this.#config = config;
    this.slots = slots;
    this.lengths = new Int32Array(slots);
  }

  /** Empties the cache for another use. What the arrays hold is finite and masked, so it does no harm. */
  reset(): void {
    this.rows = 0;
    this.#capacity = 0;
  }

  /** Makes room for `length` cached tokens in every row. */
  reserve(length: number): void {
    if (length <= this.#capacity) return;
    const before = this.#capacity;
    this.#capacity = Math.ceil(length / DecodeCache.#STEP) * DecodeCache.#STEP;
    if (this.#capacity > this.#allocated) this.#allocate(before);
    else for (const array of [...this.#keys, ...this.#values]) this.#spread(array, array, before);
    for (let row = 0; row < this.rows; row++) this.#maskRow(row);
  }

  #allocate(before: number): void {
    const { keyValueHeads, headDim, layers, maxPositions } = this.#config;
    // Twice the need, so that growing token by token copies little; the model's context bounds it.
    this.#allocated = Math.max(this.#capacity, Math.min(2 * this.#capacity, maxPositions));
    const size = this.slots * keyValueHeads * this.#allocated * headDim;
    const larger = (old: Float32Array | undefined) => {
      const array = new Float32Array(size);
      if (old) this.#spread(old, array, before);
      return array;
    };
    this.#keys = Array.from({ length: layers }, (_, l) => larger(this.#keys[l]));
    this.#values = Array.from({ length: layers }, (_, l) => larger(this.#values[l]));
    this.#mask = new Float32Array(this.slots * this.#allocated);
  }

  /** Moves rows from a layout of capacity `before` to the present, wider one; last block first, as it may be in place. */
  #spread(from: Float32Array, to: Float32Array, before: number): void {
    const { keyValueHeads, headDim } = this.#config;
    const size = before * headDim;
    for (let block = this.rows * keyValueHeads - 1; block >= 0; block--) {
      const target = block * this.#capacity * headDim;
      if (from === to) to.copyWithin(target, block * size, (block + 1) * size);
      else to.set(from.subarray(block * size, (block + 1) * size), target);
    }
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
