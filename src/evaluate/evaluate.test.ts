import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { startsWithWanted, toyTasks, toyVerifier } from "../../test/fixtures/toy/parts.ts";
import { toyConfig, toyModel, toyPolicy } from "../../test/fixtures/toy/policy.ts";
import type { LocalPolicy } from "../policy/local.ts";
import type { Task } from "../tasks/task.ts";
import type { Verifier } from "../verifiers/verifier.ts";
import { evaluateModel, evaluatePolicy, evaluationTasks } from "./evaluate.ts";

let policy: LocalPolicy;
beforeAll(async () => {
  policy = await toyPolicy();
});
afterAll(() => policy.close());

const settings = { ...toyConfig().evaluation, tasks: 16, samplesPerTask: 8 };
const tasks = toyTasks(1);
const honest = toyVerifier(startsWithWanted) as Verifier;

/** A verifier that is told what to say of each task's samples, in their order. */
function judging(passes: (task: Task, sample: number) => "pass" | "fail" | "error"): Verifier {
  const seen = new Map<string, number>();
  return {
    ...honest,
    verify: async (items) =>
      items.map(({ task }) => {
        const sample = seen.get(task.id) ?? 0;
        seen.set(task.id, sample + 1);
        const outcome = passes(task, sample);
        return { outcome, score: outcome === "pass" ? 1 : 0, components: {}, evidence: { reason: "as told" } };
      }),
  };
}

describe("evaluationTasks", () => {
  it("are the same for a seed, of the split, and as many as asked for", () => {
    const chosen = evaluationTasks(tasks, { ...settings, tasks: 5 });
    expect(chosen).toHaveLength(5);
    expect(evaluationTasks(tasks, { ...settings, tasks: 5 })).toEqual(chosen);
    expect(evaluationTasks(tasks, { ...settings, tasks: 9 }).slice(0, 5)).toEqual(chosen);
    for (const task of chosen) expect(tasks.test).toContain(task);
    expect(evaluationTasks(tasks, { ...settings, tasks: 999 })).toHaveLength(16);
    expect(evaluationTasks(tasks, { ...settings, tasks: 5, seed: 2 })).not.toEqual(chosen);
  });
});

describe("evaluatePolicy", () => {
  it("counts passes by task, and pass@k without bias", async () => {
    // The first four tasks pass 2 of 8 times, the others never.
    const some = tasks.test.slice(0, 8);
    const verifier = judging((task, sample) =>
      some.map(({ id }) => id).indexOf(task.id) < 4 && sample < 2 ? "pass" : "fail",
    );
    const evaluation = await evaluatePolicy(policy, verifier, some, settings);
    expect(evaluation?.perTask?.map(({ samples, passed }) => [samples, passed])).toEqual(
      some.map((_, i) => [8, i < 4 ? 2 : 0]),
    );
    expect(evaluation).toMatchObject({ tasks: 8, samplesPerTask: 8, split: "test", errors: 0 });
    expect(evaluation?.passAt1.estimate).toBeCloseTo(0.125, 12);
    expect(evaluation?.passAtK?.["2"].estimate).toBeCloseTo(0.5 * (1 - (6 * 5) / (8 * 7)), 12);
    expect(evaluation?.passAtK?.["8"].estimate).toBe(0.5);
    expect(evaluation?.passAt1.low).toBeLessThan(0.125);
    expect(evaluation?.passAt1.high).toBeGreaterThan(0.125);
  });

  it("asks for the tests kept for evaluation", async () => {
    const purposes = new Set<unknown>();
    const verifier: Verifier = {
      ...honest,
      verify: (items, purpose) => {
        purposes.add(purpose);
        return honest.verify(items);
      },
    };
    await evaluatePolicy(policy, verifier, tasks.test.slice(0, 2), settings);
    expect([...purposes]).toEqual(["evaluation"]);
  });

  it("gives each task the same samples whatever else is evaluated, and over many chunks", async () => {
    const many = { ...settings, samplesPerTask: 200 };
    const all = await evaluatePolicy(policy, honest, tasks.test.slice(0, 5), many);
    const last = await evaluatePolicy(policy, honest, tasks.test.slice(4, 5), many);
    expect(all?.perTask?.[4]).toEqual(last?.perTask?.[0]);
    const other = await evaluatePolicy(policy, honest, tasks.test.slice(0, 5), { ...many, seed: 3 });
    expect(other?.perTask).not.toEqual(all?.perTask);
  });

  it("takes the most likely token at temperature 0", async () => {
    const greedy = await evaluatePolicy(policy, honest, tasks.test, { ...settings, temperature: 0 });
    for (const { samples, passed } of greedy?.perTask ?? []) expect([0, samples]).toContain(passed);
  });

  it("leaves out what could not be judged, and counts it", async () => {
    const some = tasks.test.slice(0, 4);
    const verifier = judging((task, sample) =>
      task === some[0] ? "error" : task === some[1] && sample >= 4 ? "error" : "pass",
    );
    const evaluation = await evaluatePolicy(policy, verifier, some, settings);
    expect(evaluation).toMatchObject({ tasks: 3, errors: 12, passAt1: { estimate: 1, low: 1, high: 1 } });
    expect(evaluation?.perTask?.map(({ samples }) => samples)).toEqual([4, 8, 8]);
  });

  it("is an error that tells the verifier's own where nothing could be judged", async () => {
    await expect(
      evaluatePolicy(
        policy,
        judging(() => "error"),
        tasks.test,
        settings,
      ),
    ).rejects.toMatchObject({
      code: "RLVR_VERIFIER",
      message: expect.stringContaining("errors only: as told"),
    });
  });

  it("tells its progress, and gives null when it is aborted", async () => {
    const controller = new AbortController();
    const progress: [number, number][] = [];
    const many = { ...settings, samplesPerTask: 200 };
    const evaluation = await evaluatePolicy(policy, honest, tasks.test.slice(0, 5), many, {
      signal: controller.signal,
      onProgress: (done, total) => {
        progress.push([done, total]);
        if (done === 2) controller.abort();
      },
    });
    expect(evaluation).toBeNull();
    expect(progress).toEqual([
      [0, 5],
      [2, 5],
    ]);
  });
});

describe("evaluateModel", () => {
  it("gives what evaluating the loaded policy gives", async () => {
    const config = toyConfig({ evaluation: { tasks: 16, samplesPerTask: 8 } });
    const options = { model: toyModel, signal: new AbortController().signal, onEvent: () => {} };
    const { seconds: _, ...evaluation } = await evaluateModel(config, options);
    const direct = await evaluatePolicy(policy, honest, evaluationTasks(tasks, settings), settings);
    expect(evaluation).toEqual({ ...direct, seconds: undefined });
  });
});
