/** Runs that are killed or interrupted and continued must end bit for bit as those that were not. */
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { RandomStream } from "../../src/base/random.ts";
import { readRun } from "../../src/runs/index.ts";
import { json, Running, toy } from "./process.ts";
import { runState, toyVariant } from "./run-state.ts";

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "rlvr-interrupt-"));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const wait = (milliseconds: number) => new Promise((done) => setTimeout(done, milliseconds));
const run = (name: string) => join(folder, "runs", name);

/**
 * Starts a run, kills it with SIGKILL after some lines of its output and some milliseconds, again and again, and then
 * lets it finish. The first moment is before the first checkpoint. Gives how often it was alive when it was killed.
 */
async function killedRun(
  command: "train" | "sft",
  name: string,
  words: string[],
  kills: [number, number][],
): Promise<number> {
  let killed = 0;
  for (const [lines, milliseconds] of kills) {
    const known = existsSync(run(name));
    const start = known ? ["--resume", join("runs", name)] : [toy, "--run", name, ...words];
    const running = new Running([command, ...start, "--json"], folder);
    await running.until(({ stdout }) => stdout.includes("\n"));
    await running.until((now) => now.lineCount() >= lines);
    await wait(milliseconds);
    running.kill("SIGKILL");
    const { status, stderr } = await running.ended;
    expect(stderr).toBe("");
    if (status === 128 + 9) killed++;
  }
  const last = await json([command, "--resume", join("runs", name)], folder);
  expect(last.at(-1)).toMatchObject({ event: "done", run: join("runs", name) });
  return killed;
}

function moments(seed: number, count: number, lines: number): [number, number][] {
  const random = new RandomStream(seed, "moments of death");
  const drawn = Array.from({ length: count }, (): [number, number] => [1 + random.integer(lines), random.integer(40)]);
  return [[1, 0], ...drawn];
}

describe("kill -9 at random moments, then --resume", () => {
  test("train: metrics, rollouts, weights and optimizer equal an uninterrupted run", async () => {
    const words = ["--steps", "45", "--checkpoints.everySteps", "3", "--rollouts.promptsPerStep", "12"];
    await json(["train", toy, "--run", "whole", ...words], folder);
    const killed = await killedRun("train", "killed", words, moments(1, 6, 16));
    expect(killed).toBeGreaterThanOrEqual(4);
    expect(runState(run("killed"))).toEqual(runState(run("whole")));
    expect(runState(run("whole")).metrics).toHaveLength(45);
  });

  test("train with several updates a step and a KL term: the same", async () => {
    const words = ["--steps", "20", "--checkpoints.everySteps", "2", "--rollouts.promptsPerStep", "8"];
    words.push("--updates.epochsPerStep", "2", "--updates.miniBatches", "2", "--objective.klCoefficient", "0.05");
    await json(["train", toy, "--run", "whole-kl", ...words], folder);
    expect(await killedRun("train", "killed-kl", words, moments(2, 2, 12))).toBeGreaterThanOrEqual(2);
    expect(runState(run("killed-kl"))).toEqual(runState(run("whole-kl")));
  });

  test("train with curriculum, dynamic sampling, batches behind and a moving reference: the same", async () => {
    const words = ["--steps", "16", "--checkpoints.everySteps", "2", "--rollouts.promptsPerStep", "6"];
    words.push("--objective.name", "dapo", "--rollouts.dynamicSampling", "true", "--rollouts.batchesBehind", "2");
    words.push("--curriculum.enabled", "true", "--curriculum.hardTemperature", "1.5");
    words.push("--objective.klCoefficient", "0.02", "--objective.klTarget", "0.02", "--reference.syncEvery", "3");
    await json(["train", toy, "--run", "whole-all", ...words], folder);
    expect(await killedRun("train", "killed-all", words, moments(4, 3, 8))).toBeGreaterThanOrEqual(2);
    expect(runState(run("killed-all"))).toEqual(runState(run("whole-all")));
    const metrics = readRun(run("whole-all")).metrics();
    // Two batches ahead: from the third step on, weights have moved twice since the batch was sampled.
    expect(metrics[5]["ratio/max"]).not.toBeCloseTo(1, 3);
    expect(metrics[0]["kl/coefficient"]).toBe(0.02);
    expect(metrics.at(-1)?.["kl/coefficient"]).not.toBe(0.02);
  });

  test("sft: the same", async () => {
    const words = ["--steps", "195", "--checkpoints.everySteps", "1"];
    await json(["sft", toy, "--run", "whole-sft", ...words], folder);
    expect(await killedRun("sft", "killed-sft", words, moments(3, 4, 8))).toBeGreaterThanOrEqual(3);
    const whole = runState(run("whole-sft"));
    expect(runState(run("killed-sft"))).toEqual(whole);
    expect(whole.state).toMatchObject({ step: 195 });
    // It did learn: from about ln 10 nats a token to next to nothing.
    expect(whole.metrics[0].loss).toBeGreaterThan(1);
    expect(whole.metrics.at(-1)?.loss).toBeLessThan(0.3);
  });
});

describe("Ctrl-C", () => {
  test("saves the state, exits 130, and --resume finishes the same run", async () => {
    const words = ["--steps", "30", "--checkpoints.everySteps", "10"];
    await json(["train", toy, "--run", "calm", ...words], folder);
    // Slow enough that the signal comes before the end, however late it is sent.
    const slow = `verifier: () => {
      const verifier = parts.toyVerifier(parts.startsWithWanted);
      return { ...verifier, verify: async (items) => {
        await new Promise((done) => setTimeout(done, 100));
        return verifier.verify(items);
      } };
    }`;
    const config = toyVariant(folder, "slow", slow);
    const running = new Running(["train", config, "--run", "stopped", ...words, "--json"], folder);
    await running.until(({ stdout }) => stdout.includes('"step":7,'));
    running.kill("SIGINT");
    const ended = await running.ended;
    expect(ended.status).toBe(130);
    expect(ended.stderr).toContain("again to stop at once");
    const interrupted = ended.lines().at(-1);
    expect(interrupted).toEqual({ event: "interrupted", run: join("runs", "stopped"), step: expect.any(Number) });
    expect(interrupted?.step).toBeGreaterThanOrEqual(7);
    expect(readRun(run("stopped")).checkpoints().at(-1)?.step).toBe(interrupted?.step);

    const lines = await json(["train", toy, "--resume", "runs/stopped"], folder);
    expect(lines[0]).toMatchObject({ event: "start", resumedFrom: interrupted?.step });
    expect(runState(run("stopped"))).toEqual(runState(run("calm")));
  });

  test("ends an evaluation too", async () => {
    const words = ["--steps", "2", "--evaluation.samplesPerTask", "512", "--evaluation.tasks", "16"];
    const running = new Running(["train", toy, "--run", "early", ...words, "--json"], folder);
    await running.until(({ stdout }) => stdout.includes('"event":"progress"'));
    running.kill("SIGINT");
    expect((await running.ended).status).toBe(130);
    const lines = await json(["train", "--resume", "runs/early"], folder);
    expect(lines.at(-1)).toMatchObject({ event: "done", steps: 2, evaluation: { before: { tasks: 16 } } });
  });

  test("works in sft", async () => {
    await json(["sft", toy, "--run", "calm-sft", "--steps", "250"], folder);
    const running = new Running(["sft", toy, "--run", "stopped-sft", "--steps", "250", "--json"], folder);
    await running.until(({ stdout }) => stdout.includes('"event":"step"'));
    running.kill("SIGINT");
    const ended = await running.ended;
    expect(ended.status).toBe(130);
    expect(ended.lines().at(-1)).toMatchObject({ event: "interrupted" });
    await json(["sft", "--resume", "runs/stopped-sft"], folder);
    expect(runState(run("stopped-sft"))).toEqual(runState(run("calm-sft")));
  });

  test("a second time ends at once, and nothing is lost", async () => {
    // Judges the evaluation and three steps, then never again.
    const hangs = `verifier: () => {
      const verifier = parts.toyVerifier(parts.startsWithWanted);
      let batches = 0;
      return { ...verifier, verify: (items) => (++batches > 4 ? new Promise((done) => setTimeout(done, 1e6)) : verifier.verify(items)) };
    }`;
    const words = ["--steps", "6", "--checkpoints.everySteps", "2"];
    const config = toyVariant(folder, "hangs", hangs);
    const running = new Running(["train", config, "--run", "hung", ...words, "--json"], folder);
    await running.until(({ stdout }) => stdout.includes('"event":"step","step":3,'));
    running.kill("SIGINT");
    await running.until(({ stderr }) => stderr.includes("again to stop at once"));
    running.kill("SIGINT");
    const ended = await running.ended;
    expect(ended.status).toBe(130);
    expect(ended.lines().at(-1)?.event).not.toBe("interrupted");

    await json(["train", toy, "--resume", "runs/hung"], folder);
    await json(["train", toy, "--run", "not-hung", ...words], folder);
    expect(runState(run("hung"))).toEqual(runState(run("not-hung")));
  });
});
