import { expect, test } from "vitest";
import { parseModelConfig } from "./config.ts";
import { countParameters, elements, initialParameters, parameterShapes } from "./parameters.ts";

const json = {
  model_type: "llama",
  vocab_size: 40,
  hidden_size: 16,
  intermediate_size: 24,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 6,
};

test("names and shapes follow Hugging Face", () => {
  const shapes = new Map(parameterShapes(parseModelConfig(json)).map((entry) => [entry.name, entry]));
  expect(shapes.get("model.embed_tokens.weight")?.shape).toEqual([40, 16]);
  expect(shapes.get("lm_head.weight")).toMatchObject({ shape: [40, 16], role: "head", layer: null });
  expect(shapes.get("model.layers.1.self_attn.q_proj.weight")).toEqual({
    name: "model.layers.1.self_attn.q_proj.weight",
    shape: [24, 16],
    kind: "matrix",
    layer: 1,
    role: "q",
  });
  expect(shapes.get("model.layers.0.self_attn.k_proj.weight")?.shape).toEqual([12, 16]);
  expect(shapes.get("model.layers.0.self_attn.o_proj.weight")?.shape).toEqual([16, 24]);
  expect(shapes.get("model.layers.0.mlp.down_proj.weight")?.shape).toEqual([16, 24]);
  expect(shapes.size).toBe(1 + 2 * 9 + 1 + 1);
});

test("families have their biases and norms, and a tied head is no parameter", () => {
  const names = (extra: object) => parameterShapes(parseModelConfig({ ...json, ...extra })).map((entry) => entry.name);
  const first = (name: string) => `model.layers.0.${name}`;
  const biased = names({ attention_bias: true, mlp_bias: true, tie_word_embeddings: true });
  expect(biased).toContain(first("self_attn.o_proj.bias"));
  expect(biased).toContain(first("mlp.up_proj.bias"));
  expect(biased).not.toContain("lm_head.weight");
  const qwen2 = names({ model_type: "qwen2" });
  expect(qwen2).toContain(first("self_attn.q_proj.bias"));
  expect(qwen2).not.toContain(first("self_attn.o_proj.bias"));
  const qwen3 = parameterShapes(parseModelConfig({ ...json, model_type: "qwen3" }));
  expect(qwen3.find(({ role }) => role === "kNorm")).toMatchObject({ shape: [6], kind: "norm" });
});

test("fresh parameters depend on seed and name only", () => {
  const config = parseModelConfig({ ...json, attention_bias: true, initializer_range: 0.1 });
  const one = initialParameters(config, 1);
  expect([...one.keys()]).toEqual(parameterShapes(config).map(({ name }) => name));
  for (const { name, shape } of parameterShapes(config)) expect(one.get(name)?.length).toBe(elements(shape));
  expect(initialParameters(config, 1)).toEqual(one);
  const q = "model.layers.0.self_attn.q_proj.weight";
  const shallow = initialParameters({ ...config, layers: 1, tieEmbeddings: true }, 1);
  expect(shallow.get(q)).toEqual(one.get(q));
  expect(initialParameters(config, 2).get(q)).not.toEqual(one.get(q));
  expect(one.get(q)).not.toEqual(one.get("model.layers.1.self_attn.q_proj.weight"));
  expect([...new Set(one.get("model.norm.weight"))]).toEqual([1]);
  expect([...new Set(one.get("model.layers.0.self_attn.o_proj.bias"))]).toEqual([0]);
});

test("fresh matrices have the configured spread", () => {
  const config = parseModelConfig({ ...json, vocab_size: 2000, initializer_range: 0.1 });
  const values = initialParameters(config, 3).get("model.embed_tokens.weight") as Float32Array;
  const mean = values.reduce((a, b) => a + b, 0) / values.length;
  const deviation = Math.sqrt(values.reduce((a, b) => a + (b - mean) ** 2, 0) / values.length);
  expect(Math.abs(mean)).toBeLessThan(0.003); // more than five standard errors
  expect(deviation).toBeCloseTo(0.1, 2);
});

test("counts trained numbers", () => {
  const config = parseModelConfig(json);
  expect(countParameters(config)).toBe(
    [...initialParameters(config, 0).values()].reduce((sum, values) => sum + values.length, 0),
  );
  expect(countParameters(config) - countParameters({ ...config, tieEmbeddings: true })).toBe(40 * 16);
});
