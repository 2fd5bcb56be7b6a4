import { describe, expect, test } from "vitest";
import { type ModelConfig, parseModelConfig, renderModelConfig } from "./config.ts";

const llama = {
  architectures: ["LlamaForCausalLM"],
  model_type: "llama",
  vocab_size: 40,
  hidden_size: 16,
  intermediate_size: 24,
  num_hidden_layers: 2,
  num_attention_heads: 4,
};
const qwen2 = { ...llama, architectures: ["Qwen2ForCausalLM"], model_type: "qwen2", num_key_value_heads: 2 };
const qwen3 = { ...qwen2, architectures: ["Qwen3ForCausalLM"], model_type: "qwen3", head_dim: 8 };
const llama3Scaling = {
  rope_type: "llama3",
  factor: 8,
  low_freq_factor: 1,
  high_freq_factor: 4,
  original_max_position_embeddings: 16,
};

describe("parseModelConfig", () => {
  test("fills what a Llama config leaves out", () => {
    expect(parseModelConfig(llama)).toEqual({
      family: "llama",
      vocabularySize: 40,
      hiddenSize: 16,
      intermediateSize: 24,
      layers: 2,
      heads: 4,
      keyValueHeads: 4,
      headDim: 4,
      maxPositions: 2048,
      ropeTheta: 10000,
      ropeScaling: null,
      rmsNormEpsilon: 1e-6,
      tieEmbeddings: false,
      attentionBias: false,
      outputBias: false,
      mlpBias: false,
      queryKeyNorm: false,
      slidingWindow: null,
      initializerRange: 0.02,
      bosId: null,
      eosIds: [],
      padId: null,
    } satisfies ModelConfig);
  });

  test("knows the biases and norms of each family", () => {
    const flags = (json: object) => {
      const { attentionBias, outputBias, mlpBias, queryKeyNorm } = parseModelConfig(json);
      return [attentionBias, outputBias, mlpBias, queryKeyNorm];
    };
    expect(flags({ ...llama, attention_bias: true, mlp_bias: true })).toEqual([true, true, true, false]);
    expect(flags(qwen2)).toEqual([true, false, false, false]);
    expect(flags(qwen3)).toEqual([false, false, false, true]);
    expect(flags({ ...qwen3, attention_bias: true })).toEqual([true, true, false, true]);
  });

  test("reads rotary settings in both spellings", () => {
    const rope = (json: object) => {
      const { ropeTheta, ropeScaling } = parseModelConfig({ ...llama, ...json });
      return [ropeTheta, ropeScaling];
    };
    const scaling = {
      type: "llama3",
      factor: 8,
      lowFrequencyFactor: 1,
      highFrequencyFactor: 4,
      originalMaxPositions: 16,
    };
    expect(rope({ rope_theta: 5e5, rope_scaling: llama3Scaling })).toEqual([5e5, scaling]);
    expect(rope({ rope_parameters: { rope_theta: 5e5, ...llama3Scaling } })).toEqual([5e5, scaling]);
    expect(rope({ rope_parameters: { rope_theta: 1e6, rope_type: "default" } })).toEqual([1e6, null]);
    expect(rope({ rope_scaling: { type: "linear", factor: 2 } })).toEqual([10000, { type: "linear", factor: 2 }]);
    expect(rope({ rope_scaling: null, rope_theta: 20 })).toEqual([20, null]);
  });

  test("takes end tokens as a number, a list or nothing", () => {
    expect(parseModelConfig({ ...llama, eos_token_id: 2 }).eosIds).toEqual([2]);
    expect(parseModelConfig({ ...llama, eos_token_id: [3, 1, 3] }).eosIds).toEqual([3, 1]);
    expect(parseModelConfig({ ...llama, eos_token_id: null, pad_token_id: -1 })).toMatchObject({
      eosIds: [],
      padId: null,
    });
  });

  test("accepts a sliding window that is switched off", () => {
    expect(parseModelConfig({ ...qwen2, use_sliding_window: false, sliding_window: 8 }).slidingWindow).toBeNull();
    expect(parseModelConfig({ ...qwen2, use_sliding_window: true, sliding_window: null }).slidingWindow).toBeNull();
    const outside = { ...qwen2, use_sliding_window: true, sliding_window: 8, max_window_layers: 2 };
    expect(parseModelConfig(outside).slidingWindow).toBeNull();
  });

  test.each([
    ["no object", [], "expected a JSON object"],
    [
      "missing size",
      { ...llama, hidden_size: undefined },
      "hidden_size: expected an integer of at least 1, got nothing",
    ],
    ["text for a number", { ...llama, vocab_size: "40" }, 'vocab_size: expected an integer of at least 1, got "40"'],
    ["missing family", { ...llama, model_type: undefined }, "model_type: expected one of"],
    ["no key heads in Qwen", { ...qwen2, num_key_value_heads: undefined }, "num_key_value_heads: expected"],
    ["head groups", { ...llama, num_key_value_heads: 3 }, "num_key_value_heads: expected a divisor of"],
    ["odd head", { ...llama, head_dim: 5 }, "head_dim: expected an even number"],
    ["uneven heads", { ...llama, hidden_size: 18 }, "hidden_size: expected a multiple of num_attention_heads (4)"],
    ["end token outside", { ...llama, eos_token_id: 40 }, "eos_token_id: expected token ids from 0 to 39, got 40"],
    ["text flag", { ...llama, tie_word_embeddings: "yes" }, 'tie_word_embeddings: expected true or false, got "yes"'],
    ["epsilon", { ...llama, rms_norm_eps: 0 }, "rms_norm_eps: expected a number above 0, got 0"],
    ["no factor", { ...llama, rope_scaling: { type: "linear" } }, "rope_scaling: factor: expected a number above 0"],
  ])("refuses a wrong config: %s", (_, json, message) => {
    expect(() => parseModelConfig(json)).toThrow(expect.objectContaining({ code: "RLVR_MODEL_CONFIG" }));
    expect(() => parseModelConfig(json)).toThrow(message);
  });

  test.each([
    [
      "family",
      { ...llama, model_type: "mistral" },
      'model_type: expected one of "llama", "qwen2", "qwen3", got "mistral"',
    ],
    ["kind of model", { ...qwen2, architectures: ["Qwen2ForSequenceClassification"] }, "architectures: expected"],
    ["activation", { ...llama, hidden_act: "gelu" }, 'hidden_act: expected "silu", got "gelu"'],
    ["rope kind", { ...llama, rope_scaling: { rope_type: "yarn", factor: 4 } }, "rope_scaling: rope_type: expected"],
    ["rope without a kind", { ...llama, rope_scaling: { factor: 4 } }, "rope_scaling: rope_type: expected"],
    ["partial rope", { ...llama, partial_rotary_factor: 0.5 }, "partial_rotary_factor: expected 1, got 0.5"],
    ["window", { ...qwen2, use_sliding_window: true, sliding_window: 8, max_window_layers: 1 }, "use_sliding_window"],
    ["windowed layer", { ...qwen3, layer_types: ["full_attention", "sliding_attention"] }, "layer_types: expected"],
    ["quantised", { ...llama, quantization_config: { bits: 4 } }, "quantization_config: expected weights that are not"],
  ])("refuses what is not implemented: %s", (_, json, message) => {
    expect(() => parseModelConfig(json)).toThrow(expect.objectContaining({ code: "RLVR_MODEL_UNSUPPORTED" }));
    expect(() => parseModelConfig(json)).toThrow(message);
  });
});

describe("renderModelConfig", () => {
  test.each([
    ["llama", { ...llama, attention_bias: true, mlp_bias: true, rope_scaling: llama3Scaling, eos_token_id: [1, 2] }],
    ["linear", { ...llama, rope_scaling: { rope_type: "linear", factor: 2 }, head_dim: 6, bos_token_id: 1 }],
    ["qwen2", { ...qwen2, tie_word_embeddings: true, eos_token_id: 0, pad_token_id: 3 }],
    ["qwen3", { ...qwen3, rope_theta: 1e6 }],
  ])("is read back as the same config: %s", (_, json) => {
    const config = parseModelConfig(json);
    expect(parseModelConfig(JSON.parse(JSON.stringify(renderModelConfig(config))))).toEqual(config);
  });

  test("refuses flags that the family cannot have", () => {
    const config = { ...parseModelConfig(qwen2), outputBias: true };
    expect(() => renderModelConfig(config)).toThrow('family "qwen2"');
  });
});
