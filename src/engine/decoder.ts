/**
 * The decoder families Llama, Qwen2 and Qwen3 as graphs: one layer forwards, one layer backwards, the head forwards
 * and backwards, and a whole decoding step. All layers of a model share the layer graphs; weights are inputs.
 *
 * Symbolic dimensions: B rows, L columns, T rows of the head (tokens that are scored), C cached positions, X table rows.
 *
 * The layer's forward pass keeps the results of its matrix products (`saved`), and the backward pass recomputes only
 * what is cheap from them: norms, SiLU and, where sequences are long, attention weights. Recomputing everything, as plain activation checkpointing
 * does, costs a third more arithmetic; see docs/engine.md.
 */
import type { ModelConfig } from "../model/config.ts";
import { parameterShapes } from "../model/parameters.ts";
import { vjp } from "./autodiff.ts";
import { type CompiledGraph, compileGraph, input, type Value } from "./graph.ts";
import * as ops from "./ops.ts";

export type Weights = Record<string, Value>;

/** Shapes of one layer's parameters by role. */
export function layerWeights(config: ModelConfig): Record<string, number[]> {
  const first = parameterShapes(config).filter(({ layer }) => layer === 0);
  return Object.fromEntries(first.map(({ role, shape }) => [role, shape]));
}

export function weightInputs(shapes: Record<string, number[]>, prefix = ""): Weights {
  return Object.fromEntries(Object.entries(shapes).map(([role, shape]) => [role, input(prefix + role, shape)]));
}

function linear(x: Value, weight: Value, bias: Value | undefined): Value {
  const product = ops.matmul(x, weight, { transB: true });
  return bias === undefined ? product : ops.add(product, bias);
}

interface Rotary {
  positions: Value;
  cos: Value;
  sin: Value;
}

export function rotaryInputs(config: ModelConfig, positions: readonly (number | string)[]): Rotary {
  return {
    positions: input("positions", positions, "int64"),
    cos: input("cos", ["X", config.headDim / 2]),
    sin: input("sin", ["X", config.headDim / 2]),
  };
}

/** Queries, keys and values of x [B, L, d], rotated: [B, heads, L, headDim] and twice [B, keyValueHeads, L, headDim]. */
function projections(x: Value, w: Weights, rotary: Rotary, config: ModelConfig): { q: Value; k: Value; v: Value } {
  const [rows, columns] = x.shape;
  const split = (value: Value, heads: number) => ops.reshape(value, [rows, columns, heads, config.headDim]);
  const byHead = (value: Value) => ops.transpose(value, [0, 2, 1, 3]);
  const rotate = (value: Value) => ops.rope(value, rotary.positions, rotary.cos, rotary.sin);
  const normed = (name: string, value: Value, weight: Value | undefined) =>
    weight === undefined ? value : ops.rmsNorm(ops.saved(name, value), weight, config.rmsNormEpsilon);
  const h = ops.rmsNorm(x, w.inputNorm, config.rmsNormEpsilon);
  const q = normed("saved.qProjected", split(linear(h, w.q, w.qBias), config.heads), w.qNorm);
  const k = normed("saved.kProjected", split(linear(h, w.k, w.kBias), config.keyValueHeads), w.kNorm);
  const v = split(linear(h, w.v, w.vBias), config.keyValueHeads);
  return { q: rotate(byHead(q)), k: rotate(byHead(k)), v: byHead(v) };
}

function feedForward(x: Value, w: Weights, config: ModelConfig): Value {
  const h = ops.rmsNorm(x, w.postAttentionNorm, config.rmsNormEpsilon);
  const gate = ops.saved("saved.gate", linear(h, w.gate, w.gateBias));
  const up = ops.saved("saved.up", linear(h, w.up, w.upBias));
  const gated = ops.saved("saved.gated", ops.mul(ops.silu(gate), up));
  return ops.add(x, linear(gated, w.down, w.downBias));
}

/** [B, kv·group, L, D] as [B, kv, group, L, D], and [B, kv, L, D] as [B, kv, 1, L, D]; nothing to do without groups. */
function grouped(value: Value, config: ModelConfig, group: number): Value {
  const [rows, , columns, dim] = value.shape;
  return config.heads === config.keyValueHeads
    ? value
    : ops.reshape(value, [rows, config.keyValueHeads, group, columns, dim]);
}

export interface LayerOptions {
  /** Keep the attention weights [B, heads, L, L] too: worth their memory for short sequences only. */
  keepAttention: boolean;
}

/** One layer over x [B, L, d] with an additive mask [L, L]. `k` and `v` are what decoding puts into its cache. */
export function layer(
  x: Value,
  w: Weights,
  rotary: Rotary,
  mask: Value,
  config: ModelConfig,
  options: LayerOptions,
): { y: Value; k: Value; v: Value } {
  const projected = projections(x, w, rotary, config);
  const q = ops.saved("saved.q", projected.q);
  const k = ops.saved("saved.k", projected.k);
  const v = ops.saved("saved.v", projected.v);
  const group = config.heads / config.keyValueHeads;
  const scores = ops.matmul(grouped(q, config, group), grouped(k, config, 1), {
    transB: true,
    alpha: config.headDim ** -0.5,
  });
  const softmax = ops.softmax(ops.add(scores, mask));
  const attention = options.keepAttention ? ops.saved("saved.attention", softmax) : softmax;
  const context = ops.reshape(ops.matmul(attention, grouped(v, config, 1)), q.shape);
  const merged = ops.reshape(ops.transpose(context, [0, 2, 1, 3]), [
    x.shape[0],
    x.shape[1],
    config.heads * config.headDim,
  ]);
  const middle = ops.saved("saved.middle", ops.add(x, linear(ops.saved("saved.context", merged), w.o, w.oBias)));
  return { y: feedForward(middle, w, config), k, v };
}

export interface LayerGraphs {
  /** Inputs: x, mask, positions, cos, sin, weights. Outputs: y and the saved values. */
  forward: CompiledGraph;
  /** As forward, but with outputs y, newK and newV only. */
  prefill: CompiledGraph;
  /** Inputs: x, dy, saved values, mask, positions, cos, sin, weights. Outputs: dx and `d.<role>` for each weight. */
  backward: CompiledGraph;
  /** Saved values with their shapes. */
  saved: Value[];
}

export function buildLayer(config: ModelConfig, options: LayerOptions = { keepAttention: false }): LayerGraphs {
  const x = input("x", ["B", "L", config.hiddenSize]);
  const mask = input("mask", ["L", "L"]);
  const weights = weightInputs(layerWeights(config));
  const rotary = rotaryInputs(config, [1]);
  const { y, k, v } = layer(x, weights, rotary, mask, config, options);
  const roles = Object.keys(weights);
  const cotangent = input("dy", y.shape);
  const [dx, ...dw] = vjp([{ value: y, cotangent }], [x, ...roles.map((role) => weights[role])]);
  const backward = compileGraph({ dx, ...Object.fromEntries(roles.map((role, i) => [`d.${role}`, dw[i]])) });
  const saved = collectSaved(y).filter((value) => backward.inputs.includes(value.savedAs as string));
  const savedOutputs = Object.fromEntries(saved.map((value) => [value.savedAs as string, value]));
  return {
    forward: compileGraph({ y, ...savedOutputs }, { recompute: true }),
    prefill: compileGraph({ y, newK: k, newV: v }, { recompute: true }),
    backward,
    saved,
  };
}

function collectSaved(root: Value): Value[] {
  const seen = new Set<Value>();
  const found: Value[] = [];
  const visit = (value: Value) => {
    if (seen.has(value)) return;
    seen.add(value);
    value.inputs.forEach(visit);
    if (value.savedAs !== undefined) found.push(value);
  };
  visit(root);
  return found;
}

export interface HeadGraphs {
  /** Inputs: h [T, d], targets and inverseTemperature [T, 1], finalNorm, head. Outputs: logprobs [T, 1], entropies [T, 1]. */
  forward: CompiledGraph;
  /** Inputs as forward, and dLogprobs [T, 1]. Outputs: dh, d.finalNorm, d.head. */
  backward: CompiledGraph;
  /** The same with dEntropies [T, 1] too. */
  backwardWithEntropy: CompiledGraph;
}

export function headWeights(config: ModelConfig): Record<string, number[]> {
  return { finalNorm: [config.hiddenSize], head: [config.vocabularySize, config.hiddenSize] };
}

/** Logits of h [rows, d], each row divided by its temperature. */
export function logits(
  h: Value,
  w: Weights,
  config: ModelConfig,
  inverseTemperature: Value = input("inverseTemperature", [h.shape[0], 1]),
): Value {
  const normed = ops.rmsNorm(h, w.finalNorm, config.rmsNormEpsilon);
  return ops.mul(ops.matmul(normed, w.head, { transB: true }), inverseTemperature);
}

export function buildHead(config: ModelConfig): HeadGraphs {
  const h = input("h", ["T", config.hiddenSize]);
  const w = weightInputs(headWeights(config));
  const logProbabilities = ops.logSoftmax(logits(h, w, config));
  const logprobs = ops.gatherElement(logProbabilities, input("targets", ["T", 1], "int64"));
  const entropies = ops.neg(ops.reduceSum(ops.mul(ops.exp(logProbabilities), logProbabilities), [1], true));
  const results = [
    { value: logprobs, cotangent: input("dLogprobs", ["T", 1]) },
    { value: entropies, cotangent: input("dEntropies", ["T", 1]) },
  ];
  const backward = (used: typeof results) => {
    const [dh, dNorm, dHead] = vjp(used, [h, w.finalNorm, w.head]);
    return compileGraph({ dh, "d.finalNorm": dNorm, "d.head": dHead });
  };
  return {
    forward: compileGraph({ logprobs, entropies }),
    backward: backward(results.slice(0, 1)),
    backwardWithEntropy: backward(results),
  };
}

/**
 * A decoding step of all layers for B rows, one token each.
 * Inputs: ids [B], positions [B, 1], mask [B, 1, 1, C] (0 where the row's cache holds a token, very negative
 * elsewhere), `k<l>` and `v<l>` [B, keyValueHeads, C, headDim], inverseTemperature [B, 1], cos, sin, embedding, weights
 * `<l>.<role>`, finalNorm, head. Outputs: probabilities [B, vocabulary], `newK<l>` and `newV<l>` [B, kv, 1, headDim].
 * The step attends over [cache ; itself] without copying the cache: two products, joined in the softmax.
 */
export function buildDecodeStep(config: ModelConfig): CompiledGraph {
  const { hiddenSize: d, keyValueHeads: kv, headDim, heads } = config;
  const group = heads / kv;
  const rotary = rotaryInputs(config, ["B", 1]);
  const mask = input("mask", ["B", 1, 1, "C"]);
  const head = weightInputs(headWeights(config));
  const embedding = config.tieEmbeddings ? head.head : input("embedding", [config.vocabularySize, d]);
  const outputs: Record<string, Value> = {};
  let x = ops.reshape(ops.gatherRows(embedding, input("ids", ["B"], "int64")), ["B", 1, d]);
  for (let l = 0; l < config.layers; l++) {
    const w = weightInputs(layerWeights(config), `${l}.`);
    const { q, k, v } = projections(x, w, rotary, config);
    const queries = ops.reshape(q, ["B", kv, group, headDim]);
    const scale = { transB: true, alpha: headDim ** -0.5 };
    const cached = ops.add(ops.matmul(queries, input(`k${l}`, ["B", kv, "C", headDim]), scale), mask);
    const itself = ops.matmul(queries, k, scale);
    const attention = ops.softmax(ops.concat([cached, itself], 3, "C+1"));
    const context = ops.add(
      ops.matmul(ops.slice(attention, 3, 0, -1, "C"), input(`v${l}`, ["B", kv, "C", headDim])),
      ops.mul(ops.slice(attention, 3, -1, null, 1), v),
    );
    const merged = ops.reshape(context, ["B", 1, heads * headDim]);
    x = feedForward(ops.add(x, linear(merged, w.o, w.oBias)), w, config);
    outputs[`newK${l}`] = k;
    outputs[`newV${l}`] = v;
  }
  const last = ops.reshape(x, ["B", d]);
  outputs.probabilities = ops.softmax(logits(last, head, config));
  return compileGraph(outputs, { recompute: true });
}

/** log-probabilities need exact zeros where a position may not be seen; −∞ would give NaN in a fully masked row. */
export const MASKED = -1e30;

/** Additive causal mask [length, length]. */
export function causalMask(length: number): Float32Array {
  const mask = new Float32Array(length * length);
  for (let i = 0; i < length; i++) mask.fill(MASKED, i * length + i + 1, (i + 1) * length);
  return mask;
}
