/** Names, shapes and fresh values of a model's parameters, in Hugging Face naming. */
import { RandomStream } from "../base/random.ts";
import type { ModelConfig } from "./config.ts";

export type LayerRole =
  | "inputNorm"
  | "q"
  | "k"
  | "v"
  | "o"
  | "qBias"
  | "kBias"
  | "vBias"
  | "oBias"
  | "qNorm"
  | "kNorm"
  | "postAttentionNorm"
  | "gate"
  | "up"
  | "down"
  | "gateBias"
  | "upBias"
  | "downBias";

export type ParameterRole = LayerRole | "embedding" | "finalNorm" | "head";

export interface ParameterShape {
  /** As in `model.safetensors`, e.g. `model.layers.0.self_attn.q_proj.weight`. */
  name: string;
  /** Matrices are [outputs, inputs]; the embedding and the head [vocabulary, hidden]. */
  shape: number[];
  kind: "embedding" | "matrix" | "norm" | "bias";
  /** Null outside the layers. */
  layer: number | null;
  role: ParameterRole;
}

/** All parameters: embedding, layers in order, final norm, and the head where it is not tied to the embedding. */
export function parameterShapes(config: ModelConfig): ParameterShape[] {
  const { vocabularySize, hiddenSize } = config;
  const outer = (name: string, shape: number[], kind: ParameterShape["kind"], role: ParameterRole): ParameterShape => ({
    name,
    shape,
    kind,
    layer: null,
    role,
  });
  return [
    outer("model.embed_tokens.weight", [vocabularySize, hiddenSize], "embedding", "embedding"),
    ...Array.from({ length: config.layers }, (_, layer) => layerShapes(config, layer)).flat(),
    outer("model.norm.weight", [hiddenSize], "norm", "finalNorm"),
    ...(config.tieEmbeddings ? [] : [outer("lm_head.weight", [vocabularySize, hiddenSize], "matrix", "head")]),
  ];
}

function layerShapes(config: ModelConfig, layer: number): ParameterShape[] {
  const { hiddenSize, intermediateSize, headDim } = config;
  const queries = config.heads * headDim;
  const keys = config.keyValueHeads * headDim;
  const shapes: ParameterShape[] = [];
  const add = (module: string, shape: number[], kind: ParameterShape["kind"], role: LayerRole) => {
    const name = `model.layers.${layer}.${module}.${kind === "bias" ? "bias" : "weight"}`;
    shapes.push({ name, shape, kind, layer, role });
  };
  const linear = (module: string, role: LayerRole, outputs: number, inputs: number, bias: boolean) => {
    add(module, [outputs, inputs], "matrix", role);
    if (bias) add(module, [outputs], "bias", `${role}Bias` as LayerRole);
  };
  add("input_layernorm", [hiddenSize], "norm", "inputNorm");
  linear("self_attn.q_proj", "q", queries, hiddenSize, config.attentionBias);
  linear("self_attn.k_proj", "k", keys, hiddenSize, config.attentionBias);
  linear("self_attn.v_proj", "v", keys, hiddenSize, config.attentionBias);
  linear("self_attn.o_proj", "o", hiddenSize, queries, config.outputBias);
  if (config.queryKeyNorm) {
    add("self_attn.q_norm", [headDim], "norm", "qNorm");
    add("self_attn.k_norm", [headDim], "norm", "kNorm");
  }
  add("post_attention_layernorm", [hiddenSize], "norm", "postAttentionNorm");
  linear("mlp.gate_proj", "gate", intermediateSize, hiddenSize, config.mlpBias);
  linear("mlp.up_proj", "up", intermediateSize, hiddenSize, config.mlpBias);
  linear("mlp.down_proj", "down", hiddenSize, intermediateSize, config.mlpBias);
  return shapes;
}

/** Number of elements of a shape. */
export function elements(shape: readonly number[]): number {
  return shape.reduce((product, n) => product * n, 1);
}

/** Number of trained numbers; a tied head counts once. */
export function countParameters(config: ModelConfig): number {
  return parameterShapes(config).reduce((sum, { shape }) => sum + elements(shape), 0);
}

/**
 * Fresh parameters: matrices and the embedding normal with standard deviation `initializerRange`, norms 1, biases 0.
 * Each parameter has its own random stream, so its values depend on the seed and its name only.
 */
export function initialParameters(config: ModelConfig, seed: number): Map<string, Float32Array> {
  const parameters = new Map<string, Float32Array>();
  for (const { name, shape, kind } of parameterShapes(config)) {
    const values = new Float32Array(elements(shape));
    if (kind === "norm") {
      values.fill(1);
    } else if (kind !== "bias") {
      const random = new RandomStream(seed, "initial parameters", name);
      for (let i = 0; i < values.length; i++) values[i] = config.initializerRange * random.normal();
    }
    parameters.set(name, values);
  }
  return parameters;
}
