/**
 * `config.json` of a Hugging Face folder, as the few numbers that the engine needs.
 *
 * Anything that would change the arithmetic and is not implemented is an error: a model that loads computes what
 * `transformers` computes.
 */
import { RlvrError } from "../base/errors.ts";
import { ConfigReader } from "./config-reader.ts";
import { parseRope, type RopeScaling } from "./rope.ts";

export type { RopeScaling } from "./rope.ts";

export type ModelFamily = "llama" | "qwen2" | "qwen3";

export const modelFamilies: readonly ModelFamily[] = ["llama", "qwen2", "qwen3"];

export interface ModelConfig {
  family: ModelFamily;
  vocabularySize: number;
  hiddenSize: number;
  intermediateSize: number;
  layers: number;
  heads: number;
  /** Divides `heads`. */
  keyValueHeads: number;
  /** Even; heads · headDim need not equal hiddenSize. */
  headDim: number;
  /** Longest sequence in tokens. */
  maxPositions: number;
  ropeTheta: number;
  ropeScaling: RopeScaling | null;
  rmsNormEpsilon: number;
  /** The head is the embedding matrix; there is no `lm_head.weight`. */
  tieEmbeddings: boolean;
  /** Biases of the query, key and value projections. */
  attentionBias: boolean;
  /** Bias of the attention's output projection. */
  outputBias: boolean;
  /** Biases of the gate, up and down projections. */
  mlpBias: boolean;
  /** RMS norms over headDim on queries and keys. */
  queryKeyNorm: boolean;
  /** Always null: an active sliding window is an error. */
  slidingWindow: null;
  /** Standard deviation of fresh weights. */
  initializerRange: number;
  bosId: number | null;
  /** Tokens that end a completion; may be empty. */
  eosIds: number[];
  padId: number | null;
}

const architectures: Record<ModelFamily, string> = {
  llama: "LlamaForCausalLM",
  qwen2: "Qwen2ForCausalLM",
  qwen3: "Qwen3ForCausalLM",
};

/**
 * Reads a parsed `config.json`. `where` names it in errors.
 *
 * Throws `RLVR_MODEL_CONFIG` for a missing or mistyped key and `RLVR_MODEL_UNSUPPORTED` for a valid setting that the
 * engine does not implement.
 */
export function parseModelConfig(json: unknown, where = "config.json"): ModelConfig {
  const reader = new ConfigReader(json, where);
  const family = parseFamily(reader);
  refuseUnsupported(reader, family);
  const rope = parseRope(reader);
  const hiddenSize = reader.integer("hidden_size");
  const heads = reader.integer("num_attention_heads");
  const vocabularySize = reader.integer("vocab_size");
  const attentionBias = family === "qwen2" || reader.boolean("attention_bias", false);
  const config: ModelConfig = {
    family,
    vocabularySize,
    hiddenSize,
    intermediateSize: reader.integer("intermediate_size"),
    layers: reader.integer("num_hidden_layers"),
    heads,
    // A missing key means one key head a query head in Llama; the Qwen families always write it.
    keyValueHeads: reader.integer(
      "num_key_value_heads",
      family === "llama" || reader.isNull("num_key_value_heads") ? heads : undefined,
    ),
    headDim: parseHeadDim(reader, family, hiddenSize, heads),
    maxPositions: reader.integer("max_position_embeddings", family === "llama" ? 2048 : 32768),
    ropeTheta: rope.theta,
    ropeScaling: rope.scaling,
    rmsNormEpsilon: reader.positive("rms_norm_eps", 1e-6),
    tieEmbeddings: reader.boolean("tie_word_embeddings", false),
    attentionBias,
    outputBias: family !== "qwen2" && attentionBias,
    mlpBias: family === "llama" && reader.boolean("mlp_bias", false),
    queryKeyNorm: family === "qwen3",
    slidingWindow: null,
    initializerRange: reader.positive("initializer_range", 0.02),
    bosId: reader.tokenIds("bos_token_id", vocabularySize)[0] ?? null,
    eosIds: reader.tokenIds("eos_token_id", vocabularySize),
    padId: reader.tokenIds("pad_token_id", vocabularySize)[0] ?? null,
  };
  if (config.heads % config.keyValueHeads !== 0) {
    throw reader.error("num_key_value_heads", `a divisor of num_attention_heads (${heads})`, config.keyValueHeads);
  }
  if (config.headDim % 2 !== 0) {
    throw reader.error("head_dim", "an even number, for rotary positions", config.headDim);
  }
  return config;
}

function parseFamily(reader: ConfigReader): ModelFamily {
  const value = reader.value("model_type");
  if (!modelFamilies.includes(value as ModelFamily)) {
    const expected = modelFamilies.map((name) => `"${name}"`).join(", ");
    throw value === undefined
      ? reader.error("model_type", `one of ${expected}`, value)
      : reader.unsupported("model_type", `one of ${expected}`, value);
  }
  return value as ModelFamily;
}

function parseHeadDim(reader: ConfigReader, family: ModelFamily, hiddenSize: number, heads: number): number {
  if (!reader.missing("head_dim")) return reader.integer("head_dim");
  if (family === "qwen3" && reader.value("head_dim") === undefined) return 128; // the default of its config class
  if (hiddenSize % heads !== 0) {
    throw reader.error("hidden_size", `a multiple of num_attention_heads (${heads}), or a head_dim`, hiddenSize);
  }
  return hiddenSize / heads;
}

function refuseUnsupported(reader: ConfigReader, family: ModelFamily): void {
  const refuse = (key: string, ok: boolean, expected: string) => {
    if (!ok) throw reader.unsupported(key, expected, reader.value(key));
  };
  const named = reader.value("architectures");
  const architecture = architectures[family];
  refuse(
    "architectures",
    reader.missing("architectures") || (Array.isArray(named) && named.every((name) => name === architecture)),
    `["${architecture}"]`,
  );
  const activation = reader.value("hidden_act");
  refuse("hidden_act", activation === undefined || activation === "silu" || activation === "swish", `"silu"`);
  refuse("quantization_config", reader.missing("quantization_config"), "weights that are not quantised");
  const types = reader.value("layer_types");
  if (Array.isArray(types)) {
    refuse(
      "layer_types",
      types.every((type) => type === "full_attention"),
      `"full_attention" in every layer`,
    );
  } else if (family !== "llama" && reader.boolean("use_sliding_window", false) && !reader.missing("sliding_window")) {
    // Layers from max_window_layers on use the window.
    const windowed = reader.integer("max_window_layers", 28, 0) < reader.integer("num_hidden_layers");
    refuse("use_sliding_window", !windowed, "false (full attention in every layer)");
  }
}

/**
 * `config.json` for a config, in the older spelling (`rope_theta`, `rope_scaling`, `torch_dtype`) that every version
 * of `transformers` and vLLM reads. `parseModelConfig(renderModelConfig(c))` equals `c`.
 */
export function renderModelConfig(
  config: ModelConfig,
  dtype: "float32" | "bfloat16" | "float16" = "float32",
): Record<string, unknown> {
  checkFamily(config);
  const { family } = config;
  return {
    architectures: [architectures[family]],
    attention_dropout: 0,
    ...(family === "qwen2" ? {} : { attention_bias: config.attentionBias }),
    bos_token_id: config.bosId,
    eos_token_id: config.eosIds.length > 1 ? config.eosIds : (config.eosIds[0] ?? null),
    head_dim: config.headDim,
    hidden_act: "silu",
    hidden_size: config.hiddenSize,
    initializer_range: config.initializerRange,
    intermediate_size: config.intermediateSize,
    max_position_embeddings: config.maxPositions,
    ...(family === "llama" ? { mlp_bias: config.mlpBias } : {}),
    model_type: family,
    num_attention_heads: config.heads,
    num_hidden_layers: config.layers,
    num_key_value_heads: config.keyValueHeads,
    pad_token_id: config.padId,
    rms_norm_eps: config.rmsNormEpsilon,
    rope_scaling: config.ropeScaling === null ? null : renderScaling(config.ropeScaling),
    rope_theta: config.ropeTheta,
    tie_word_embeddings: config.tieEmbeddings,
    torch_dtype: dtype,
    use_cache: true,
    ...(family === "llama" ? {} : { use_sliding_window: false }),
    vocab_size: config.vocabularySize,
  };
}

function renderScaling(scaling: RopeScaling): Record<string, unknown> {
  if (scaling.type === "linear") return { rope_type: "linear", factor: scaling.factor };
  return {
    rope_type: "llama3",
    factor: scaling.factor,
    low_freq_factor: scaling.lowFrequencyFactor,
    high_freq_factor: scaling.highFrequencyFactor,
    original_max_position_embeddings: scaling.originalMaxPositions,
  };
}

/** A family has fixed choices that `config.json` cannot express otherwise; refuses a config made by hand that differs. */
function checkFamily(config: ModelConfig): void {
  const { family, attentionBias, outputBias, mlpBias, queryKeyNorm } = config;
  const ok =
    queryKeyNorm === (family === "qwen3") &&
    outputBias === (family !== "qwen2" && attentionBias) &&
    (family !== "qwen2" || attentionBias) &&
    (family === "llama" || !mlpBias);
  if (ok) return;
  throw new RlvrError(
    "RLVR_MODEL_CONFIG",
    `model config: expected the biases and norms of family "${family}", got ${JSON.stringify({ attentionBias, outputBias, mlpBias, queryKeyNorm })}`,
    { next: "llama: outputBias equals attentionBias; qwen2: attentionBias only; qwen3: queryKeyNorm, no mlpBias" },
  );
}
