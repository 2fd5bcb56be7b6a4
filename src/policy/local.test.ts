import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { toyConfig, toyModel, toyPolicy } from "../../test/fixtures/toy/policy.ts";
import { checkPrompts, engineOptions, LocalPolicy } from "./local.ts";

const adam = { learningRate: 1e-2, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weightDecay: 0, maxGradNorm: 1 };
const options = engineOptions(toyConfig().engine);

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "rlvr-policy-"));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

let policy: LocalPolicy;
beforeEach(async () => {
  policy = await toyPolicy();
});
afterEach(() => policy.close());

/** One update towards some tokens. */
async function learn(step: number): Promise<void> {
  const { logprobs } = await policy.logprobs([{ tokens: [2, 3, 4, 1], scoreFrom: 1 }], { temperature: 1, keep: true });
  await policy.backward(new Float32Array(logprobs.length).fill(-1));
  await policy.update(adam);
  policy.endStep(step);
}

describe("engineOptions", () => {
  it("counts bytes, and takes a thread for each core where none are given", () => {
    expect(engineOptions({ threads: 3, microBatchTokens: 64, activationMegabytes: 0.5, decodeSlots: 8 })).toEqual({
      threads: 3,
      microBatchTokens: 64,
      activationBytes: 2 ** 19,
      decodeSlots: 8,
    });
    expect(engineOptions({ ...toyConfig().engine, threads: 0 }).threads).toBeGreaterThan(0);
  });
});

describe("a policy on the engine", () => {
  it("encodes prompts, and decodes completions without their end", () => {
    expect(policy.encode("abh")).toEqual([2, 3, 9]);
    expect(policy.decode([2, 3, 1])).toBe("ab");
    expect(policy.decode([2, 3])).toBe("ab");
    expect(policy.decode([1])).toBe("");
    expect(policy.decode([])).toBe("");
    expect(policy.parameters).toBe(4848);
  });

  it("has a version of steps done and weights", async () => {
    const before = await policy.version();
    expect(before.step).toBe(0);
    await learn(7);
    const after = await policy.version();
    expect(after.step).toBe(7);
    expect(after.hash).not.toBe(before.hash);
    expect(await policy.setReference(toyModel)).toBe(before.hash);
  });

  it("continues from a checkpoint as if it had never stopped", async () => {
    await learn(1);
    await learn(2);
    const checkpoint = join(folder, "checkpoint");
    mkdirSync(checkpoint);
    await policy.saveCheckpoint(checkpoint);
    const saved = await policy.version();
    await learn(3);
    const straight = await policy.version();

    await policy.loadCheckpoint(checkpoint, 2);
    expect(await policy.version()).toEqual(saved);
    await learn(3);
    expect(await policy.version()).toEqual(straight);

    const other = await toyPolicy();
    await other.loadCheckpoint(checkpoint, 2);
    expect(await other.version()).toEqual(saved);
    await other.close();
  });

  it("saves a folder that loads again, tokenizer included", async () => {
    await learn(1);
    const path = join(folder, "saved");
    await policy.saveModel(path);
    const loaded = await LocalPolicy.load(path, options);
    expect((await loaded.version()).hash).toBe((await policy.version()).hash);
    expect(loaded.encode("ab")).toEqual([2, 3]);
    await loaded.close();
  });

  it("starts from random weights of a seed, with the tokenizer's vocabulary", async () => {
    const { vocabularySize: _, bosId: __, eosIds: ___, padId: ____, ...architecture } = policy.model;
    const make = (seed: number) => LocalPolicy.random(architecture, { ...options, tokenizerFolder: toyModel, seed });
    const hashes: string[] = [];
    for (const seed of [1, 1, 2]) {
      const fresh = await make(seed);
      expect(fresh.model.vocabularySize).toBe(10);
      hashes.push((await fresh.version()).hash);
      await fresh.close();
    }
    expect(hashes[1]).toBe(hashes[0]);
    expect(hashes[2]).not.toBe(hashes[0]);
  });

  it("is refused where the tokenizer has more tokens than the model", async () => {
    const path = join(folder, "big-tokenizer");
    cpSync(toyModel, path, { recursive: true });
    const file = join(path, "tokenizer.json");
    const tokenizer = JSON.parse(readFileSync(file, "utf8"));
    tokenizer.model.vocab.i = 10;
    writeFileSync(file, JSON.stringify(tokenizer));
    await expect(LocalPolicy.load(path, options)).rejects.toMatchObject({
      code: "RLVR_VOCABULARY",
      message: expect.stringContaining("got 11"),
    });
  });
});

describe("checkPrompts", () => {
  it("wants 1 token to the context less one", () => {
    const task = (length: number) => [{ id: "long", prompt: "a".repeat(length) }];
    expect(() => checkPrompts(policy, task(15))).not.toThrow();
    for (const length of [0, 16, 40]) {
      expect(() => checkPrompts(policy, task(length))).toThrow(
        expect.objectContaining({ code: "RLVR_PROMPT_LENGTH", message: expect.stringContaining(`got ${length}`) }),
      );
    }
  });
});
