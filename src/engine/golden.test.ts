/** Values of PyTorch `transformers` on tiny random models; scripts/golden/README.md says how they were made. */
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { readSafetensors } from "../model/safetensors.ts";
import { adamwUpdate, globalNorm } from "./adamw.ts";
import { Engine } from "./engine.ts";

const MODELS = ["llama-tied", "llama-untied", "llama-biased", "llama3-rope", "qwen2", "qwen3"];
const fixture = (name: string) => fileURLToPath(new URL(`./fixtures/${name}`, import.meta.url));
const OPTIONS = { threads: 1, microBatchTokens: 24, activationBytes: 1e6, decodeSlots: 2 };

function largestDifference(a: Float32Array, b: Float32Array): number {
  expect(a.length).toBe(b.length);
  return a.reduce((most, value, i) => Math.max(most, Math.abs(value - b[i])), 0);
}

describe.each(MODELS)("%s against transformers", (name) => {
  const golden = readSafetensors(`${fixture(name)}/golden.safetensors`);
  const tensor = (key: string) => golden.get(key)?.data as Float32Array;
  const [rows, width] = golden.get("tokens")!.shape;
  const lengths = Array.from(tensor("lengths"));
  const sequences = lengths.map((length, row) => ({
    tokens: Array.from(tensor("tokens").subarray(row * width, row * width + length)),
    scoreFrom: 1,
  }));
  /** [R, L−1] with padding to flat over scored tokens. */
  const flat = (key: string) => {
    const padded = tensor(key);
    return Float32Array.from(
      Array.from({ length: rows }, (_, row) =>
        Array.from(padded.subarray(row * (width - 1), row * (width - 1) + lengths[row] - 1)),
      ).flat(),
    );
  };
  let engine: Engine;
  beforeAll(async () => {
    engine = await Engine.create({ folder: fixture(name) }, OPTIONS);
  });
  afterAll(() => engine.close());

  it.each([
    [1, ""],
    [0.7, "@0.7"],
  ])("log-probabilities and entropies at temperature %d", async (temperature, suffix) => {
    const result = await engine.logprobs(sequences, { temperature, keep: false });
    expect(largestDifference(result.logprobs, flat(`logprobs${suffix}`))).toBeLessThan(2e-5);
    expect(largestDifference(result.entropies, flat(`entropies${suffix}`))).toBeLessThan(2e-5);
  });

  it.each([
    ["logprob", 1],
    ["entropy", 1],
    ["both", 0.7],
  ] as const)("gradients of the %s objective", async (kind, temperature) => {
    await engine.logprobs(sequences, { temperature, keep: true });
    const zero = new Float32Array(flat("c").length);
    await engine.backward(kind === "entropy" ? zero : flat("c"), kind === "logprob" ? undefined : flat("e"));
    const gradients = engine.gradients();
    engine.update({ learningRate: 0, beta1: 0, beta2: 0, epsilon: 1, weightDecay: 0, maxGradNorm: 1 });
    for (const [parameter, gradient] of gradients) {
      const expected = tensor(`gradient.${kind}.${parameter}`);
      const size = expected.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
      expect(largestDifference(gradient, expected), parameter).toBeLessThan(3e-5 * (1 + size));
    }
  });
});

it("AdamW against torch.optim.AdamW with clip_grad_norm_", () => {
  const golden = JSON.parse(readFileSync(fixture("adamw.json"), "utf8"));
  const names: string[] = ["weight", "bias"];
  const initial = names.map((name) => golden.initial[name] as number[]);
  const parameters = Float32Array.from(initial.flat());
  const size = parameters.length;
  const state = { m: new Float32Array(size), v: new Float32Array(size), updates: 0 };
  for (const step of golden.steps) {
    const gradients = Float32Array.from(names.flatMap((name) => step.gradient[name] as number[]));
    const norm = globalNorm(gradients);
    expect(norm).toBeCloseTo(step.norm, 5);
    adamwUpdate(parameters, gradients, state, [[0, initial[0].length]], norm, {
      learningRate: step.learningRate,
      beta1: golden.betas[0],
      beta2: golden.betas[1],
      epsilon: golden.eps,
      weightDecay: golden.weight_decay,
      maxGradNorm: golden.clip,
    });
    const after = names.flatMap((name) => step.after[name] as number[]);
    for (const [i, value] of after.entries()) expect(parameters[i]).toBeCloseTo(value, 5);
    expect(gradients.every((value) => value === 0)).toBe(true);
  }
});
