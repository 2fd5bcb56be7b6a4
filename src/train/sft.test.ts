import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { runState } from "../../test/e2e/run-state.ts";
import { toyDemonstrations } from "../../test/fixtures/toy/parts.ts";
import { toyConfig, toyPolicy } from "../../test/fixtures/toy/policy.ts";
import { RandomStream } from "../base/random.ts";
import type { RlvrUserConfig } from "../config/index.ts";
import type { RunEvent } from "../runs/events.ts";
import { readRun } from "../runs/index.ts";
import { encodeDemonstrations, holdOut } from "./batches.ts";
import { trainSft } from "./sft.ts";

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "rlvr-sft-"));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Answers that follow from nothing: what is learned of them does not carry over to other prompts. */
const noise = (seed: number) =>
  toyDemonstrations(seed).map(({ prompt }, i) => ({
    prompt,
    completion: new RandomStream(seed, "noise", i).pick([..."abcdefgh"]),
  }));

const overfitting: RlvrUserConfig["sft"] = {
  steps: 300,
  batchTokens: 128,
  heldOutShare: 0.3,
  evaluateEverySteps: 5,
  patience: 3,
  optimizer: { learningRate: 1e-2, warmupSteps: 0 },
};

async function train(run: string, keys: Partial<RlvrUserConfig>, stopAt?: number, resume = false) {
  const events: RunEvent[] = [];
  const controller = new AbortController();
  const config = toyConfig({ run, runsFolder: folder, demonstrations: noise, ...keys });
  const result = await trainSft(config, {
    configPath: join(folder, "rlvr.config.ts"),
    signal: controller.signal,
    ...(resume ? { resume: join(folder, run) } : {}),
    onEvent: (event) => {
      events.push(event);
      if (event.event === "step" && event.step === stopAt) controller.abort();
    },
  });
  return { result, events, view: readRun(result.run) };
}

async function heldOutLoss(checkpoint: string): Promise<number> {
  const policy = await toyPolicy();
  await policy.loadCheckpoint(checkpoint, 0);
  const demonstrations = noise(1);
  const { heldOut } = holdOut(demonstrations, 0.3, 1);
  const examples = encodeDemonstrations(policy, demonstrations, { promptLoss: false });
  const { logprobs } = await policy.logprobs(
    heldOut.map((i) => examples[i]),
    { temperature: 1, keep: false },
  );
  await policy.close();
  return -logprobs.reduce((sum, value) => sum + value, 0) / logprobs.length;
}

describe("trainSft with a held-out share", () => {
  it("stops when the held-out loss no longer falls, keeps the best weights, and is the same when interrupted", async () => {
    const { result, events, view } = await train("early", { sft: overfitting });
    const losses = view.metrics().map((metrics) => [metrics.step, metrics["heldout/loss"] as number | undefined]);
    const measured = losses.filter((entry): entry is [number, number] => entry[1] !== undefined);
    expect(measured.map(([step]) => step)).toEqual(measured.map((_, i) => 5 * (i + 1)));
    const best = measured.reduce((lowest, entry) => (entry[1] < lowest[1] ? entry : lowest));
    expect(result).toMatchObject({ interrupted: false, steps: best[0] + 15 });
    expect(result.steps).toBeLessThan(300);
    expect(await heldOutLoss(result.model)).toBeCloseTo(best[1], 5);
    expect(measured.at(-1)?.[1]).toBeGreaterThan(best[1]);
    expect(events.find(({ event }) => event === "alert")).toMatchObject({
      code: "RLVR_EARLY_STOP",
      values: { bestStep: best[0] },
    });
    expect(existsSync(join(result.run, "best"))).toBe(false);

    // Interrupted before and after the best step, and in between two lines of metrics.
    await train("broken", { sft: overfitting }, 10);
    await train("broken", { sft: overfitting }, best[0] + 5, true);
    const ended = await train("broken", { sft: overfitting }, undefined, true);
    expect(ended.result).toMatchObject({ interrupted: false, steps: result.steps });
    expect(runState(ended.result.run)).toEqual(runState(result.run));
    // Continued after its end: there is nothing left to do.
    const again = await train("broken", { sft: overfitting }, undefined, true);
    expect(again.events.some(({ event }) => event === "step")).toBe(false);
    expect(runState(again.result.run)).toEqual(runState(result.run));
  });

  it("goes to the end without patience, and says what it cost", async () => {
    const sft = { ...overfitting, steps: 25, patience: 0 };
    const { result, view } = await train("patient", { sft });
    const state = JSON.parse(readFileSync(join(result.model, "state.json"), "utf8"));
    const lines = view.metrics();
    const total = lines.reduce((sum, metrics) => sum + (metrics["tokens/trained"] as number), 0);
    expect(state).toMatchObject({ step: 25, trainedTokens: total });
    for (const metrics of lines) expect(metrics["tokens/padding"]).toBeGreaterThanOrEqual(0);
    const costs = JSON.parse(readFileSync(join(result.run, "costs.json"), "utf8"));
    const { parameters } = await toyPolicy().then(async (policy) => {
      await policy.close();
      return policy;
    });
    expect(costs).toEqual({
      method: "sft",
      teacherTokens: 0,
      studentTokens: 0,
      trainedTokens: total,
      updates: 25,
      seconds: expect.any(Number),
      flops: { teacher: 0, student: 6 * parameters * total, total: 6 * parameters * total },
    });
    expect(costs.seconds).toBeGreaterThan(0);
  });

  it("refuses patience without anything to be patient for", () => {
    expect(() => toyConfig({ sft: { patience: 2 } })).toThrow("sft.patience: expected 0 (off)");
  });
});
