import type { ModelConfig } from "../model/config.ts";
import type { DecodeCache } from "./cache.ts";
import type { SamplerSettings } from "./sampling.ts";
import { type Feeds, floatTensor, intTensor } from "./session.ts";

/** Inputs and outputs of the decoding step, allocated once for the largest number of rows. */
export class StepBuffers {
  readonly #config: ModelConfig;
  readonly #ids: BigInt64Array;
  readonly #positions: BigInt64Array;
  readonly #inverseTemperatures: Float32Array;
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
    this.#inverseTemperatures = new Float32Array(slots);
    this.probabilities = new Float32Array(slots * config.vocabularySize);
    const make = () =>
      Array.from({ length: config.layers }, () => new Float32Array(slots * config.keyValueHeads * config.headDim));
    this.keys = make();
    this.values = make();
  }

  /** Sets `inputs` for the rows in use, each with its next token, and returns the outputs to fill. */
  prepare(rows: readonly { next: number; settings: SamplerSettings }[], cache: DecodeCache): Feeds {
    const n = cache.rows;
    for (let i = 0; i < n; i++) {
      const { temperature } = rows[i].settings;
      this.#inverseTemperatures[i] = temperature === 0 ? 1 : 1 / temperature;
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
        inverseTemperature: floatTensor(this.#inverseTemperatures.subarray(0, n), [n, 1]),
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
