import { createHash } from "node:crypto";
import type { ModelConfig } from "../model/config.ts";
import { parameterShapes } from "../model/parameters.ts";
import { type Feeds, floatTensor } from "./session.ts";

export interface ParameterView {
  name: string;
  role: string;
  layer: number | null;
  shape: readonly number[];
  from: number;
  to: number;
}

/**
 * All parameters of a model in one array, with a view and a tensor for each: the optimiser runs over the flat array,
 * the graphs take the views.
 */
export class WeightStore {
  readonly config: ModelConfig;
  readonly flat: Float32Array;
  readonly views: readonly ParameterView[];
  /** Weights of each layer by role. */
  readonly layerFeeds: readonly Feeds[];
  /** finalNorm and head (the embedding where tied). */
  readonly headFeeds: Feeds;
  /** [vocabulary, hidden] */
  readonly embedding: Float32Array;
  /** Of gradients: all are 0, so that the first ones can be written in place of being added. */
  empty = true;

  constructor(config: ModelConfig, flat?: Float32Array) {
    this.config = config;
    let offset = 0;
    this.views = parameterShapes(config).map(({ name, role, layer, shape }) => {
      const from = offset;
      offset += shape.reduce((a, b) => a * b, 1);
      return { name, role, layer, shape, from, to: offset };
    });
    this.flat = flat ?? new Float32Array(offset);
    const tensor = (view: ParameterView) => floatTensor(this.array(view), view.shape);
    this.layerFeeds = Array.from({ length: config.layers }, (_, layer) =>
      Object.fromEntries(this.views.filter((view) => view.layer === layer).map((view) => [view.role, tensor(view)])),
    );
    const embedding = this.view("embedding");
    const head = config.tieEmbeddings ? embedding : this.view("head");
    this.headFeeds = { finalNorm: tensor(this.view("finalNorm")), head: tensor(head) };
    this.embedding = this.array(embedding);
  }

  static fromParameters(config: ModelConfig, parameters: ReadonlyMap<string, Float32Array>): WeightStore {
    const store = new WeightStore(config);
    for (const view of store.views) store.array(view).set(parameters.get(view.name) as Float32Array);
    return store;
  }

  /** The model-wide parameter with this role. */
  view(role: string): ParameterView {
    return this.views.find((view) => view.layer === null && view.role === role) as ParameterView;
  }

  array(view: ParameterView): Float32Array {
    return this.flat.subarray(view.from, view.to);
  }

  /** Parameters by Hugging Face name; the arrays are views. */
  parameters(): Map<string, Float32Array> {
    return new Map(this.views.map((view) => [view.name, this.array(view)]));
  }

  /** Index ranges that weight decay applies to: matrices, not norms and biases. */
  decayedRanges(): [number, number][] {
    return this.views.filter((view) => view.shape.length > 1).map((view) => [view.from, view.to]);
  }

  /** SHA-256 over all weights, first 16 hexadecimal digits: the identity of a policy version. */
  hash(): string {
    const bytes = new Uint8Array(this.flat.buffer, this.flat.byteOffset, this.flat.byteLength);
    return createHash("sha256").update(bytes).digest("hex").slice(0, 16);
  }
}
