/** The shipped recipe as it is, a few steps of it: real model, real tasks, candidates in their own processes. */
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { readRun } from "../../src/runs/index.ts";
import { json, type Line, Running, repository } from "./process.ts";
import { runState } from "./run-state.ts";

const recipe = join(repository, "recipes/transforms");
const words = ["--steps", "3", "--rollouts.promptsPerStep", "6", "--rollouts.groupSize", "4"];
words.push("--evaluation.tasks", "16", "--evaluation.samplesPerTask", "2", "--checkpoints.everySteps", "1");

/** Processes that a process has started, by /proc. */
function descendants(parent: number): number[] {
  const children = readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => status(pid)?.parent === parent);
  return children.flatMap((child) => [child, ...descendants(child)]);
}

/** State letter and parent of a process; null where there is none. */
function status(pid: number): { state: string; parent: number } | null {
  try {
    // The name before it is in brackets and may contain anything.
    const text = readFileSync(`/proc/${pid}/stat`, "utf8");
    const [state, parent] = text.slice(text.lastIndexOf(")") + 2).split(" ");
    return { state, parent: Number(parent) };
  } catch {
    return null;
  }
}

/** True unless it has ended; one that ended and was not collected yet is a zombie. */
const alive = (pid: number) => !["Z", "X", undefined].includes(status(pid)?.state);

let folder: string;
let lines: Line[];
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "rlvr-transforms-"));
  lines = await json(["train", recipe, "--run", "whole", ...words], folder);
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe("rlvr train recipes/transforms", () => {
  test("judges programs by hidden tests, and the base solves some tasks and not others", () => {
    const run = readRun(join(folder, "runs/whole"));
    const metrics = run.metrics();
    expect(metrics).toHaveLength(3);
    const sum = (name: string) => metrics.reduce((total, record) => total + (record[name] ?? 0), 0);
    expect(sum("verdicts/error")).toBe(0);
    expect(sum("verdicts/pass") + sum("verdicts/fail") + sum("verdicts/invalid")).toBe(72);
    // The base is made to pass 0.3 to 0.5 of the time.
    expect(sum("verdicts/pass")).toBeGreaterThan(5);
    expect(sum("verdicts/pass")).toBeLessThan(65);
    for (const record of metrics) {
      expect(record["logprob/gap"]).toBeLessThan(1e-3);
      expect(record["components/visible"]).toBeGreaterThanOrEqual(0);
    }
    for (const record of run.rollouts(1)) {
      expect(record.score === 1).toBe(record.outcome === "pass");
      if (record.outcome === "pass") expect(record.components).toMatchObject({ format: 1, visible: 1, hidden: 1 });
    }
    expect(lines[0]).toMatchObject({ event: "start", contract: { limits: { wallMs: expect.any(Number) } } });
    const { before, after } = lines.at(-1)?.evaluation ?? {};
    for (const evaluation of [before, after]) {
      expect(evaluation).toMatchObject({ tasks: 16, samplesPerTask: 2 });
      expect(evaluation.passAt1.estimate).toBeGreaterThan(0.1);
    }
  });

  test("no expected value of a hidden or held-out test is in what the run keeps of a prompt", () => {
    const prompts = new Set(
      readRun(join(folder, "runs/whole"))
        .rollouts(1)
        .map(({ prompt }) => prompt),
    );
    expect(prompts.size).toBe(6);
    for (const prompt of prompts) expect(prompt).not.toMatch(/hidden|heldOut|expected/i);
  });

  test("killed and resumed, on all cores: the same bits", async () => {
    const running = new Running(["train", recipe, "--run", "killed", ...words, "--json"], folder);
    await running.until(({ stdout }) => stdout.includes('"event":"step","step":2,'));
    running.kill("SIGKILL");
    await running.ended;
    await json(["train", "--resume", "runs/killed"], folder);
    expect(runState(join(folder, "runs/killed"))).toEqual(runState(join(folder, "runs/whole")));
  });

  test.runIf(existsSync("/proc"))("a killed run leaves no process of the checker behind", async () => {
    const running = new Running(["train", recipe, "--run", "orphans", ...words, "--json"], folder);
    await running.until(({ stdout }) => stdout.includes('"event":"step","step":1,'));
    const children = descendants(running.pid);
    expect(children.length).toBeGreaterThan(0);
    running.kill("SIGKILL");
    await running.ended;
    // They notice that their parent is gone by themselves.
    for (let tries = 0; tries < 100 && children.some(alive); tries++) await new Promise((done) => setTimeout(done, 50));
    expect(children.filter(alive)).toEqual([]);
  });
});
