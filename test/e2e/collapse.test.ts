/** Runs that go wrong on purpose: alerts, automatic returns, and the end of it. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { RandomStream } from "../../src/base/random.ts";
import { readRun } from "../../src/runs/index.ts";
import { type Line, Running, rlvr, toy } from "./process.ts";
import { runState } from "./run-state.ts";

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "rlvr-collapse-"));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const view = (name: string) => readRun(join(folder, "runs", name));
const returns = (lines: readonly Line[]) => lines.filter(({ event, level }) => event === "alert" && level === "return");
const absurd = ["--optimizer.learningRate", "1", "--optimizer.warmupSteps", "0"];

describe("a learning rate of 1 without warm-up", () => {
  test("is alerted, taken back twice, and ends the run with exit code 1 and nothing lost", async () => {
    const ended = await rlvr(
      ["train", toy, "--run", "wrong", ...absurd, "--checkpoints.everySteps", "50", "--json"],
      folder,
    );
    expect(ended.status).toBe(1);
    expect(ended.stderr).toContain("RLVR_STOPPED");
    const lines = ended.lines();
    expect(lines.at(-1)).toMatchObject({
      event: "error",
      code: "RLVR_STOPPED",
      message: expect.stringContaining("expected groups with different rewards"),
      next: expect.stringContaining("lower learning rate"),
    });
    expect(returns(lines)).toHaveLength(3);
    expect(lines.filter(({ code }) => code === "RLVR_RETURNED")).toHaveLength(2);

    // Warnings of a run that drifts stand between them.
    const events = view("wrong")
      .events()
      .filter(({ level }) => level !== "warn");
    expect(events.map(({ event }) => event)).toEqual(["alert", "returned", "alert", "returned", "alert"]);
    expect(events[1]).toMatchObject({ step: 0, returns: 1, message: expect.stringContaining("learning rate × 0.5") });
    expect(events[3]).toMatchObject({ step: 0, returns: 2, message: expect.stringContaining("learning rate × 0.25") });
    // All that was done since the last return is there, and the weights that were good.
    const steps = view("wrong")
      .metrics()
      .map(({ step }) => step);
    expect(steps).toEqual(Array.from({ length: events[4].step as number }, (_, i) => i + 1));
    expect(view("wrong").rolloutSteps()).toEqual(steps);
    const [first] = view("wrong").checkpoints();
    expect(first).toMatchObject({ step: 0, good: true });
    expect(readFileSync(join(first.path, "model.safetensors"))).toEqual(
      readFileSync(join(toy, "model/model.safetensors")),
    );
    // The learning rate that was tried last.
    expect(view("wrong").metrics()[0]["optimizer/learning-rate"]).toBe(0.25);
    expect(readFileSync(join(folder, "runs/wrong/report.html"), "utf8")).toContain("RLVR_ALERT_DEAD_GROUPS");
  });

  test("is halved until training works, where enough returns are allowed", async () => {
    const words = ["--checkpoints.everySteps", "50", "--alerts.maxReturns", "12", "--alerts.deadSteps", "2", "--json"];
    const ended = await rlvr(["train", toy, "--run", "saved", ...absurd, ...words], folder);
    expect(ended.stderr).toBe("");
    const lines = ended.lines();
    // Measured: 5 returns, then 0.21 to 0.94.
    expect(returns(lines).length).toBeGreaterThanOrEqual(1);
    const { before, after } = lines.at(-1)?.evaluation ?? {};
    expect(after.passAt1.low).toBeGreaterThan(before.passAt1.high);
  });

  test.each([5, 13])(
    "also when it is killed between: the resumed run tries and returns the same (%i)",
    async (seed) => {
      const words = ["train", toy, ...absurd, "--checkpoints.everySteps", "2", "--alerts.deadSteps", "3"];
      const straight = `straight-${seed}`;
      const name = `killed-${seed}`;
      const whole = await rlvr([...words, "--run", straight, "--json"], folder);
      expect(whole.status).toBe(1);
      const random = new RandomStream(seed, "kills");
      const killed = 128 + 9;
      let status = killed;
      for (let attempt = 0; status === killed; attempt++) {
        const start = attempt === 0 ? [...words, "--run", name] : ["train", "--resume", join("runs", name)];
        const running = new Running([...start, "--json"], folder);
        const lines = 4 + random.integer(10);
        if (attempt < 5) {
          await running.until((now) => now.lineCount() >= lines);
          running.kill("SIGKILL");
        }
        status = (await running.ended).status;
      }
      expect(status).toBe(1);
      expect(view(name).events()).toEqual(view(straight).events());
      expect(runState(join(folder, "runs", name))).toEqual(runState(join(folder, "runs", straight)));
    },
  );

  test("and killed right after an alert, before it has returned or stopped", async () => {
    const words = ["--checkpoints.everySteps", "2", "--alerts.deadSteps", "3"];
    const whole = await rlvr(["train", toy, "--run", "told", ...absurd, ...words, "--json"], folder);
    const path = join(folder, "runs/told/events.jsonl");
    const events = readFileSync(path, "utf8");
    const state = runState(join(folder, "runs/told"));
    // As if it had been killed between the last alert and the end: it ends again, with the same words and files.
    const again = await rlvr(["train", "--resume", "runs/told", "--json"], folder);
    expect(again.status).toBe(1);
    expect(again.lines().at(-1)).toEqual(whole.lines().at(-1));
    expect(readFileSync(path, "utf8")).toBe(events);
    expect(runState(join(folder, "runs/told"))).toEqual(state);
    // As if between the first alert and the return: it returns, and ends as before.
    writeFileSync(path, `${events.split("\n")[0]}\n`);
    expect((await rlvr(["train", "--resume", "runs/told", "--json"], folder)).status).toBe(1);
    expect(readFileSync(path, "utf8")).toBe(events);
    expect(runState(join(folder, "runs/told"))).toEqual(state);
  });
});

test("numbers that are not finite are refused, and the weights stay", async () => {
  const words = ["--optimizer.learningRate", "1e30", "--optimizer.warmupSteps", "0", "--steps", "6", "--json"];
  const ended = await rlvr(["train", toy, "--run", "not-finite", ...words], folder);
  expect(ended.status).toBe(1);
  const lines = ended.lines();
  expect(lines.at(-1)).toMatchObject({
    code: "RLVR_STOPPED",
    message: expect.stringContaining("expected finite numbers"),
  });
  expect(returns(lines).map(({ code }) => code)).toEqual(new Array(3).fill("RLVR_ALERT_NOT_FINITE"));
  const [first] = view("not-finite").checkpoints();
  expect(readFileSync(join(first.path, "model.safetensors"))).toEqual(
    readFileSync(join(toy, "model/model.safetensors")),
  );
});

test("sft stops at a gradient that is not finite, with its checkpoint unharmed", async () => {
  const words = ["--sft.optimizer.learningRate", "1e30", "--sft.optimizer.warmupSteps", "0", "--json"];
  const ended = await rlvr(["sft", toy, "--run", "sft", ...words], folder);
  expect(ended.status).toBe(1);
  expect(ended.lines().at(-1)).toMatchObject({ event: "error", code: "RLVR_NON_FINITE" });
  const [first] = view("sft").checkpoints();
  expect(readFileSync(join(first.path, "model.safetensors"))).toEqual(
    readFileSync(join(toy, "model/model.safetensors")),
  );
});
