import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { startsWithWanted, toyTasks, toyVerifier } from "../../test/fixtures/toy/parts.ts";
import { toyConfig } from "../../test/fixtures/toy/policy.ts";
import type { RlvrUserConfig } from "../config/index.ts";
import type { RunEvent } from "../runs/events.ts";
import { readRun } from "../runs/index.ts";
import type { Verifier } from "../verifiers/verifier.ts";
import { trainRlvr } from "./rlvr.ts";

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "rlvr-train-"));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

async function train(
  run: string,
  keys: Partial<RlvrUserConfig>,
  options: { resume?: string; signal?: AbortSignal } = {},
) {
  const events: RunEvent[] = [];
  const config = toyConfig({ run, runsFolder: folder, ...keys });
  const result = await trainRlvr(config, {
    configPath: join(folder, "rlvr.config.ts"),
    signal: new AbortController().signal,
    onEvent: (event) => events.push(event),
    ...options,
  });
  return { result, events, view: readRun(result.run) };
}

const honest = toyVerifier(startsWithWanted) as Verifier;

describe("trainRlvr", () => {
  it("leaves what the verifier failed to judge out of groups, rewards and updates", async () => {
    // Every third completion fails to be judged, the second time as well.
    const flaky = (): Verifier => ({
      ...honest,
      verify: async (items) => {
        const verdicts = await honest.verify(items);
        return verdicts.map((verdict, i) =>
          items.length < 16 || i % 3 === 0 ? { ...verdict, outcome: "error", score: 1 } : verdict,
        );
      },
    });
    const { view } = await train("flaky", { verifier: flaky, evaluation: { beforeAndAfter: false } });
    for (const metrics of view.metrics()) {
      expect(metrics).toMatchObject({ "verdicts/error": 6, "verdicts/retried": 6 });
      const records = view.rollouts(metrics.step);
      const judged = records.filter(({ outcome }) => outcome !== "error");
      expect(judged).toHaveLength(10);
      const mean = judged.reduce((sum, { score }) => sum + score, 0) / 10;
      expect(metrics["reward/mean"]).toBeCloseTo(mean, 12);
      for (const { advantage } of records.filter(({ outcome }) => outcome === "error")) expect(advantage).toBeNull();
      for (const id of new Set(judged.map(({ taskId }) => taskId))) {
        const group = judged.filter(({ taskId }) => taskId === id).map(({ advantage }) => advantage as number);
        expect(group.reduce((sum, advantage) => sum + advantage, 0)).toBeCloseTo(0, 5);
      }
    }
  });

  it("survives steps in which nothing could be judged, and says so", async () => {
    const broken = (): Verifier => ({
      ...honest,
      verify: async () => {
        throw new Error("out of order");
      },
    });
    const keys = { verifier: broken, evaluation: { beforeAndAfter: false }, alerts: { deadSteps: 3 } };
    const { view, events, result } = await train("broken", keys);
    expect(result).toMatchObject({ steps: 4, interrupted: false, evaluation: { before: null, after: null } });
    for (const metrics of view.metrics()) expect(metrics).toMatchObject({ "verdicts/error": 16, "groups/mixed": 0 });
    expect(view.rollouts(1)[0]).toMatchObject({ outcome: "error", evidence: { reason: "out of order" } });
    const alerts = events.filter(({ event }) => event === "alert");
    expect(alerts).toContainEqual(
      expect.objectContaining({
        code: "RLVR_ALERT_DEAD_GROUPS",
        message: expect.stringContaining("could not be judged"),
      }),
    );
  });

  it("ends before the first step where the evaluation cannot judge anything", async () => {
    const broken = (): Verifier => ({ ...honest, verify: async () => [] });
    await expect(train("unjudged", { verifier: broken })).rejects.toMatchObject({ code: "RLVR_VERIFIER" });
    // The run stays, unlocked, and goes on once the verifier works.
    const { result } = await train("unjudged", {}, { resume: join(folder, "unjudged") });
    expect(result).toMatchObject({ steps: 4, evaluation: { before: { tasks: 4 }, after: { tasks: 4 } } });
  });

  it("takes every task once an epoch, in an order of the seed", async () => {
    const set = toyTasks(1);
    const tasks = { ...set, train: set.train.slice(0, 6) };
    const evaluation = { beforeAndAfter: false };
    const { view } = await train("epochs", { tasks, steps: 6, evaluation });
    const order = view.rolloutSteps().flatMap((step) => {
      const ids = view.rollouts(step).map(({ taskId }) => taskId);
      return ids.filter((_, i) => i % 4 === 0);
    });
    const epochs = [0, 6, 12, 18].map((from) => order.slice(from, from + 6));
    for (const epoch of epochs) expect([...epoch].sort()).toEqual(tasks.train.map(({ id }) => id).sort());
    expect(epochs[1]).not.toEqual(epochs[0]);
  });

  it("stops before the next step when it is aborted, with the state saved", async () => {
    const controller = new AbortController();
    const aborting = (): Verifier => ({
      ...honest,
      verify: (items) => {
        if (++calls === 2) controller.abort();
        return honest.verify(items);
      },
    });
    let calls = 0;
    const keys = { verifier: aborting, evaluation: { beforeAndAfter: false } };
    const { result, view } = await train("aborted", keys, { signal: controller.signal });
    expect(result).toMatchObject({ steps: 2, interrupted: true });
    expect(view.checkpoints().at(-1)?.step).toBe(2);
  });

  it("does not continue a run whose tasks or model have changed", async () => {
    await train("changed", { steps: 1, evaluation: { beforeAndAfter: false } });
    const other = train("changed", { tasks: toyTasks(2) }, { resume: join(folder, "changed") });
    await expect(other).rejects.toMatchObject({
      code: "RLVR_RESUME_CHANGED",
      message: expect.stringContaining("tasksHash"),
    });
  });

  it("continues a finished run when it is given more steps", async () => {
    const few = { evaluation: { beforeAndAfter: false } };
    const longer = await train("longer", { ...few, steps: 4 });
    await train("shorter", { ...few, steps: 2 });
    const { result, view, events } = await train("shorter", { ...few, steps: 4 }, { resume: join(folder, "shorter") });
    expect(result.steps).toBe(4);
    expect(events[0]).toMatchObject({ event: "start", resumedFrom: 2 });
    const rewards = ({ metrics }: typeof view) =>
      metrics().map((record) => [record.step, record["reward/mean"], record.loss]);
    expect(rewards(view)).toEqual(rewards(longer.view));
  });

  it("learns from the scores of steps where outcomes are all alike", async () => {
    // Each letter is a step; every completion fails, so that only steps tell them apart.
    const bySteps = (): Verifier => ({
      ...honest,
      verify: async (items) =>
        items.map(({ completion }) => ({
          outcome: "fail" as const,
          score: 0,
          components: {},
          evidence: {},
          steps: [...completion].map((letter, at) => ({ start: at, end: at + 1, score: letter === "a" ? 1 : 0 })),
        })),
    });
    const keys = { verifier: bySteps, evaluation: { beforeAndAfter: false } };
    const { view } = await train("steps", { ...keys, rewards: { process: "step" }, objective: { klCoefficient: 0 } });
    const { view: without } = await train("no-steps", { ...keys, objective: { klCoefficient: 0 } });
    for (const metrics of view.metrics()) expect(metrics).toMatchObject({ "groups/mixed": 0, "optimizer/updates": 1 });
    for (const metrics of without.metrics()) expect(metrics["optimizer/updates"] ?? 0).toBe(0);
    const record = view.rollouts(1).find(({ completion }) => completion.length > 1);
    expect(record?.steps?.slice(0, 2)).toMatchObject([
      { start: 0, end: 1 },
      { start: 1, end: 2 },
    ]);
    expect(record?.advantage).toBe(0);
  });

  it("takes steps that are out of order for a failure of the verifier", async () => {
    const crossed = (): Verifier => ({
      ...honest,
      verify: async (items) =>
        (await honest.verify(items)).map((verdict) => ({
          ...verdict,
          steps: [
            { start: 1, end: 2, score: 1 },
            { start: 0, end: 1, score: 1 },
          ],
        })),
    });
    const { view } = await train("crossed", { verifier: crossed, steps: 1, evaluation: { beforeAndAfter: false } });
    expect(view.metrics()[0]).toMatchObject({ "verdicts/error": 16 });
  });

  it("adapts to steps without a mixed group: other tasks, then a higher temperature, then it stops", async () => {
    const hopeless = (): Verifier => ({ ...toyVerifier(() => false), name: "hopeless" }) as Verifier;
    const alerts = { deadSteps: 1, deadAction: "adapt" as const, adaptFactor: 1.5, maxAdaptations: 2 };
    const keys = { verifier: hopeless, evaluation: { beforeAndAfter: false }, alerts };
    await expect(train("adapts", { ...keys, steps: 10 })).rejects.toMatchObject({ code: "RLVR_STOPPED" });
    const view = readRun(join(folder, "adapts"));
    expect(view.metrics()).toHaveLength(3);
    const temperatures = view.rolloutSteps().map((step) => view.rollouts(step)[0].sampler?.temperature);
    expect(temperatures).toEqual([1, 1, 1.5]);
    expect(view.metrics()[1]).toHaveProperty("curriculum/hard");
    const adapted = view.events().filter(({ code }) => code === "RLVR_ADAPTED");
    expect(adapted).toHaveLength(2);
    // A resumed run knows what was adapted: nothing is left, so that the next dead step stops it again.
    const again = train("adapts", { ...keys, steps: 10 }, { resume: join(folder, "adapts") });
    await expect(again).rejects.toMatchObject({ code: "RLVR_STOPPED" });
  });
});
