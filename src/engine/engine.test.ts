import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { RandomStream } from "../base/random.ts";
import type { TokenSequence } from "./batch.ts";
import { EngineClient } from "./client.ts";
import { Engine, type EngineOptions } from "./engine.ts";
import type { GenerationRequest } from "./generation.ts";
import type { LogprobResult } from "./training.ts";

const FOLDER = fileURLToPath(new URL("./fixtures/qwen3", import.meta.url));
const OPTIONS: EngineOptions = { threads: 1, microBatchTokens: 64, activationBytes: 1e7, decodeSlots: 4 };
const ADAM = { learningRate: 1e-2, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weightDecay: 0, maxGradNorm: 1 };

const random = new RandomStream(3, "engine");
const VOCABULARY = 40;
const sentence = (length: number) => Array.from({ length }, () => random.integer(VOCABULARY));
const sequences: TokenSequence[] = [9, 4, 12, 7, 1, 5].map((length, i) => ({
  tokens: sentence(length),
  scoreFrom: 1 + (i % 3),
}));
const cotangents = (n: number) => Float32Array.from({ length: n }, () => random.normal());

const engines: Engine[] = [];
async function engineWith(options: Partial<EngineOptions> = {}): Promise<Engine> {
  const engine = await Engine.create({ folder: FOLDER }, { ...OPTIONS, ...options });
  engines.push(engine);
  return engine;
}
afterAll(async () => {
  for (const engine of engines) await engine.close();
});

async function gradient(
  engine: Engine,
  batch: TokenSequence[],
  c: Float32Array,
  e?: Float32Array,
): Promise<Float32Array> {
  await engine.logprobs(batch, { temperature: 1, keep: true });
  await engine.backward(c, e);
  const parts = [...engine.gradients().values()];
  engine.update({ ...ADAM, learningRate: 0 });
  return Float32Array.from(parts.flatMap((part) => Array.from(part)));
}

function distance(a: Float32Array, b: Float32Array): number {
  let error = 0;
  let size = 0;
  for (let i = 0; i < a.length; i++) {
    error += (a[i] - b[i]) ** 2;
    size += b[i] ** 2;
  }
  return Math.sqrt(error / (size || 1));
}

describe("log-probabilities and gradients", () => {
  let engine: Engine;
  let total: number;
  beforeAll(async () => {
    engine = await engineWith();
    total = (await engine.logprobs(sequences, { temperature: 1, keep: false })).logprobs.length;
  });

  it("scores exactly the tokens from scoreFrom on", () => {
    expect(total).toBe(sequences.reduce((n, { tokens, scoreFrom }) => n + Math.max(0, tokens.length - scoreFrom), 0));
  });

  it("the whole model's gradient agrees with finite differences along random directions", async () => {
    const c = cotangents(total);
    const e = cotangents(total);
    const g = await gradient(engine, sequences, c, e);
    const directory = mkdtempSync(join(tmpdir(), "rlvr-engine-"));
    try {
      const weights = [...engine.parameters().values()];
      const names = [...engine.parameters().keys()];
      for (let trial = 0; trial < 3; trial++) {
        const direction = weights.map((w) => Float32Array.from(w, () => random.normal()));
        const value = async (step: number) => {
          const { saveModelFolder } = await import("../model/folder.ts");
          const moved = new Map(names.map((name, i) => [name, weights[i].map((w, j) => w + step * direction[i][j])]));
          saveModelFolder(join(directory, "moved"), { config: engine.config, parameters: moved, replace: true });
          const other = await Engine.create({ folder: join(directory, "moved") }, OPTIONS);
          const { logprobs, entropies } = await other.logprobs(sequences, { temperature: 1, keep: false });
          await other.close();
          return logprobs.reduce((sum, x, i) => sum + x * c[i] + entropies[i] * e[i], 0);
        };
        const step = 2e-4;
        const numeric = ((await value(step)) - (await value(-step))) / (2 * step);
        let analytic = 0;
        let i = 0;
        for (const part of direction) for (const d of part) analytic += d * g[i++];
        expect(Math.abs(numeric - analytic)).toBeLessThan(0.02 * (1 + Math.abs(analytic)));
      }
    } finally {
      rmSync(directory, { recursive: true });
    }
  });

  it("is linear in the cotangents", async () => {
    const a = cotangents(total);
    const b = cotangents(total);
    const [ga, gb] = [await gradient(engine, sequences, a), await gradient(engine, sequences, b)];
    const sum = await gradient(
      engine,
      sequences,
      a.map((x, i) => 2 * x - 3 * b[i]),
    );
    expect(
      distance(
        sum,
        ga.map((x, i) => 2 * x - 3 * gb[i]),
      ),
    ).toBeLessThan(1e-4);
  });

  it.each([1, 8, 17, 30, 1000])("gives the same with micro-batches of %d tokens", async (microBatchTokens) => {
    const other = await engineWith({ microBatchTokens });
    const c = cotangents(total);
    expect(distance(await gradient(other, sequences, c), await gradient(engine, sequences, c))).toBeLessThan(1e-5);
  });

  it("gives the same when no activations are kept", async () => {
    const other = await engineWith({ activationBytes: 0, microBatchTokens: 20 });
    const c = cotangents(total);
    expect(distance(await gradient(other, sequences, c), await gradient(engine, sequences, c))).toBeLessThan(1e-5);
  });

  it("gives the same where long neighbours make attention weights be computed again", async () => {
    const wide = await engineWith({ microBatchTokens: 1000 });
    const { heads, hiddenSize } = wide.config;
    const long = { tokens: sentence((4 * hiddenSize) / heads + 1), scoreFrom: 1 };
    const c = cotangents(total);
    const padded = new Float32Array(total + long.tokens.length - 1);
    padded.set(c);
    expect(
      distance(await gradient(wide, [...sequences, long], padded), await gradient(engine, sequences, c)),
    ).toBeLessThan(1e-5);
    const e = cotangents(padded.length);
    const alone = await engineWith({ microBatchTokens: 1, activationBytes: 0 });
    expect(
      distance(
        await gradient(wide, [...sequences, long], e, padded),
        await gradient(alone, [...sequences, long], e, padded),
      ),
    ).toBeLessThan(1e-5);
  });

  it("frozen sequences are scored alike and add nothing to the gradient", async () => {
    const c = cotangents(total);
    const mixed = sequences.map((sequence, i) => ({ ...sequence, frozen: i % 2 === 0 }));
    const { logprobs, offsets } = await engine.logprobs(sequences, { temperature: 1, keep: false });
    const same = await engine.logprobs(mixed, { temperature: 1, keep: false });
    for (const [i, x] of logprobs.entries()) expect(same.logprobs[i]).toBeCloseTo(x, 5);
    const masked = c.map((x, t) => (sequences.findLastIndex((_, s) => offsets[s] <= t) % 2 === 0 ? 0 : x));
    expect(distance(await gradient(engine, mixed, c), await gradient(engine, sequences, masked))).toBeLessThan(1e-5);
  });

  it("does not depend on the width that a sequence is padded to, nor on its neighbours or their order", async () => {
    const alone: LogprobResult[] = [];
    for (const sequence of sequences) alone.push(await engine.logprobs([sequence], { temperature: 1, keep: false }));
    const wide = await engineWith({ microBatchTokens: 1000 });
    const padded = [...sequences].reverse();
    const together = await wide.logprobs([...padded, { tokens: sentence(30), scoreFrom: 1 }], {
      temperature: 1,
      keep: false,
    });
    padded.forEach((_, i) => {
      const mine = Array.from(together.logprobs.subarray(together.offsets[i], together.offsets[i + 1]));
      const single = alone[sequences.length - 1 - i].logprobs;
      for (const [t, x] of mine.entries()) expect(x).toBeCloseTo(single[t], 5);
    });
  });

  it("an update follows the gradient, and one with a non-finite gradient is refused", async () => {
    const trained = await engineWith();
    const before = await trained.logprobs(sequences, { temperature: 1, keep: true });
    await trained.backward(new Float32Array(total).fill(-1));
    expect(trained.update({ ...ADAM, learningRate: 1e-3 }).applied).toBe(true);
    const after = await trained.logprobs(sequences, { temperature: 1, keep: true });
    const sum = (x: Float32Array) => x.reduce((a, b) => a + b, 0);
    expect(sum(after.logprobs)).toBeGreaterThan(sum(before.logprobs));
    const hash = trained.hash();
    await trained.backward(new Float32Array(total).fill(Number.NaN));
    const refused = trained.update(ADAM);
    expect(refused.applied).toBe(false);
    expect(trained.hash()).toBe(hash);
    expect([...trained.gradients().values()].every((g) => g.every((x) => x === 0))).toBe(true);
  });

  it.each([
    [{ tokens: [1, 2, 99], scoreFrom: 1 }, "expected token ids below 40, got 99 at 2"],
    [{ tokens: [1, 2], scoreFrom: 0 }, "expected scoreFrom of at least 1, got 0"],
    [{ tokens: [], scoreFrom: 1 }, "expected at least one token, got none"],
    [{ tokens: new Array(10_000).fill(1), scoreFrom: 1 }, "got 10000"],
  ])("refuses a bad sequence: %#", async (bad, message) => {
    await expect(engine.logprobs([sequences[0], bad], { temperature: 1, keep: false })).rejects.toThrow(message);
  });

  it("backward refuses cotangents that do not belong to the last batch", async () => {
    await engine.logprobs(sequences, { temperature: 1, keep: true });
    await expect(engine.backward(new Float32Array(total + 1))).rejects.toThrow(`got ${total + 1}`);
  });
});

describe("decoding", () => {
  const prompts = [sentence(5), sentence(1), sentence(9), sentence(3)];
  const request = (overrides: Partial<GenerationRequest> = {}): GenerationRequest => ({
    prompts,
    samples: Array.from({ length: 11 }, (_, i) => ({
      prompt: i % prompts.length,
      key: [5, "step", 0, `t${i}`] as const,
    })),
    maxTokens: 12,
    sampler: { temperature: 0.9, topP: 1, topK: 0 },
    eosIds: [7, 8],
    ...overrides,
  });

  it("agrees with the training path token by token, for ragged prompts and refilled slots", async () => {
    const engine = await engineWith({ decodeSlots: 3 });
    const generated = await engine.generate(request());
    const batch = request().samples.map(({ prompt }, i) => ({
      tokens: [...prompts[prompt], ...generated[i].tokens],
      scoreFrom: prompts[prompt].length,
    }));
    const { logprobs, offsets } = await engine.logprobs(batch, { temperature: 0.9, keep: false });
    generated.forEach((sample, i) => {
      expect(offsets[i + 1] - offsets[i]).toBe(sample.tokens.length);
      for (const [t, x] of sample.logprobs.entries()) expect(Math.abs(x - logprobs[offsets[i] + t])).toBeLessThan(2e-5);
    });
  });

  it("samples and scores each sequence at its own temperature", async () => {
    const engine = await engineWith({ decodeSlots: 3 });
    const temperatures = [0.5, 1, 2];
    const samples = request().samples.map((sample, i) => ({ ...sample, temperature: temperatures[i % 3] }));
    const mixed = await engine.generate(request({ samples }));
    for (const [which, temperature] of temperatures.entries()) {
      const alone = await engine.generate(request({ sampler: { temperature, topP: 1, topK: 0 } }));
      for (const [i, { tokens }] of mixed.entries()) if (i % 3 === which) expect(tokens).toEqual(alone[i].tokens);
    }
    const batch = samples.map(({ prompt, temperature }, i) => ({
      tokens: [...prompts[prompt], ...mixed[i].tokens],
      scoreFrom: prompts[prompt].length,
      temperature,
    }));
    const { logprobs, offsets } = await engine.logprobs(batch, { temperature: 77, keep: false });
    for (const [i, sample] of mixed.entries()) {
      for (const [t, x] of sample.logprobs.entries()) expect(Math.abs(x - logprobs[offsets[i] + t])).toBeLessThan(3e-5);
    }
  });

  it("ends with the ending token, which is part of the completion, and has nothing after it", async () => {
    const engine = await engineWith();
    const generated = await engine.generate(request({ maxTokens: 30 }));
    expect(generated.some(({ finish }) => finish === "stop")).toBe(true);
    for (const { tokens, logprobs, finish } of generated) {
      expect(logprobs).toHaveLength(tokens.length);
      const ending = tokens.findIndex((token) => token === 7 || token === 8);
      if (finish === "stop") expect(ending).toBe(tokens.length - 1);
      else expect([ending, tokens.length]).toEqual([-1, 30]);
    }
  });

  it("a sample depends on its key alone: not on slots, order or neighbours", async () => {
    const tokens = async (
      slots: number,
      order: (samples: GenerationRequest["samples"]) => GenerationRequest["samples"],
    ) => {
      const engine = await engineWith({ decodeSlots: slots });
      const samples = order(request().samples);
      const generated = await engine.generate(request({ samples }));
      return new Map(samples.map(({ key }, i) => [key[3], generated[i].tokens]));
    };
    const all = await tokens(64, (samples) => samples);
    expect(await tokens(2, (samples) => samples)).toEqual(all);
    expect(await tokens(4, (samples) => [...samples].reverse())).toEqual(new Map([...all].reverse()));
    for (const [key, value] of await tokens(4, (samples) => samples.slice(3, 6))) expect(value).toEqual(all.get(key));
  });

  it("temperature 0 takes the most likely token", async () => {
    const engine = await engineWith();
    const greedy = { temperature: 0, topP: 1, topK: 0 };
    const [first] = await engine.generate(
      request({ samples: [{ prompt: 0, key: [1] }], sampler: greedy, maxTokens: 4 }),
    );
    for (let t = 0; t < first.tokens.length; t++) {
      const context = [...prompts[0], ...first.tokens.slice(0, t)];
      const candidates = Array.from({ length: VOCABULARY }, (_, token) => ({
        tokens: [...context, token],
        scoreFrom: context.length,
      }));
      const { logprobs } = await engine.logprobs(candidates, { temperature: 1, keep: false });
      expect(logprobs.indexOf(Math.max(...logprobs))).toBe(first.tokens[t]);
    }
  });

  it("draws tokens as often as the model says", async () => {
    const engine = await engineWith({ decodeSlots: 512 });
    const samples = Array.from({ length: 4000 }, (_, i) => ({ prompt: 0, key: [9, i] as const }));
    const generated = await engine.generate(
      request({ samples, maxTokens: 1, sampler: { temperature: 1, topP: 1, topK: 0 } }),
    );
    const counts = new Float64Array(VOCABULARY);
    for (const { tokens } of generated) counts[tokens[0]]++;
    const candidates = Array.from({ length: VOCABULARY }, (_, token) => ({
      tokens: [...prompts[0], token],
      scoreFrom: prompts[0].length,
    }));
    const { logprobs } = await engine.logprobs(candidates, { temperature: 1, keep: false });
    // Chi-squared with 39 degrees of freedom: 80 has a tail of 1e-4.
    const chi = counts.reduce(
      (sum, n, i) => sum + (n - 4000 * Math.exp(logprobs[i])) ** 2 / (4000 * Math.exp(logprobs[i])),
      0,
    );
    expect(chi).toBeLessThan(80);
  });

  it("a prompt that leaves no room is an error that says so", async () => {
    const engine = await engineWith();
    const long = new Array(engine.config.maxPositions).fill(1);
    await expect(
      engine.generate(request({ prompts: [long], samples: [{ prompt: 0, key: [1] }] })),
    ).rejects.toMatchObject({
      code: "RLVR_PROMPT_LENGTH",
    });
  });
});

describe("in a worker", () => {
  it("a checkpoint continues bit for bit, and errors arrive with their code", async () => {
    const directory = mkdtempSync(join(tmpdir(), "rlvr-engine-"));
    const client = await EngineClient.create({ folder: FOLDER }, OPTIONS);
    try {
      const train = async () => {
        const { logprobs } = await client.call("logprobs", sequences, { temperature: 1, keep: true });
        await client.call("backward", new Float32Array(logprobs.length).fill(-1));
        await client.call("update", ADAM);
        return client.call("hash");
      };
      await train();
      await client.call("saveModel", join(directory, "step"));
      await client.call("saveOptimizer", join(directory, "step"));
      const next = [await train(), await train()];
      await client.call("loadCheckpoint", join(directory, "step"), { optimizer: true });
      expect([await train(), await train()]).toEqual(next);
      await client.call("loadCheckpoint", join(directory, "step"), { optimizer: false });
      await expect(client.call("loadCheckpoint", join(directory, "absent"), { optimizer: true })).rejects.toMatchObject(
        {
          code: "RLVR_MODEL_FILE",
        },
      );
    } finally {
      await client.close();
      rmSync(directory, { recursive: true });
    }
  });
});
