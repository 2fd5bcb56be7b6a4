import { describe, expect, it } from "vitest";
import { RlvrError } from "../base/errors.ts";
import { RandomStream } from "../base/random.ts";
import { SPLITS, splitBySource, validateTasks } from "./splits.ts";
import type { Task, TaskSet } from "./task.ts";

const task = (id: string, source = id): Task<null> => ({ id, prompt: `do ${id}`, reference: null, source, tags: [] });
const shares = { train: 0.8, validation: 0.1, test: 0.1 };

const random = new RandomStream(1, "tasks");
const many = Array.from({ length: 400 }, (_, i) => task(`t${i}`, `source ${random.integer(80)}`));

function codeOf(act: () => void): string {
  try {
    act();
  } catch (error) {
    if (error instanceof RlvrError) {
      expect(error.message).toMatch(/expected .*, got /);
      expect(error.next).toBeTruthy();
      return error.code;
    }
    throw error;
  }
  return "none";
}

describe("splitBySource", () => {
  it("keeps a source on one side, loses nothing and comes close to the shares", () => {
    const set = splitBySource(many, shares, 1);
    validateTasks(set, SPLITS);
    expect(set.train.length + set.validation.length + set.test.length).toBe(400);
    for (const split of SPLITS) expect(Math.abs(set[split].length / 400 - shares[split])).toBeLessThan(0.03);
  });

  it("depends on the seed and not on the order of the tasks", () => {
    const sides = (set: TaskSet) => SPLITS.map((split) => set[split].map(({ id }) => id).sort());
    expect(sides(splitBySource([...many].reverse(), shares, 1))).toEqual(sides(splitBySource(many, shares, 1)));
    expect(sides(splitBySource(many, shares, 2))).not.toEqual(sides(splitBySource(many, shares, 1)));
  });

  it("gives every side with a share something when there are few sources", () => {
    const set = splitBySource([task("a"), task("b"), ...[1, 2, 3, 4, 5].map((i) => task(`c${i}`, "c"))], shares, 3);
    expect(SPLITS.map((split) => set[split].length).every((length) => length > 0)).toBe(true);
    expect(splitBySource(many, { train: 1, validation: 0, test: 0 }, 1).train).toEqual(many);
    expect(splitBySource([], shares, 1)).toEqual({ train: [], validation: [], test: [] });
  });

  it("refuses shares that are none", () => {
    for (const bad of [
      { train: -1, validation: 1, test: 1 },
      { train: 0, validation: 0, test: 0 },
      { train: Number.NaN, validation: 1, test: 1 },
    ])
      expect(codeOf(() => splitBySource(many, bad, 1))).toBe("RLVR_SPLIT_SHARES");
  });
});

describe("validateTasks", () => {
  const set = (train: Task[], test: Task[] = [task("x")]): TaskSet => ({ train, validation: [], test });

  it("accepts a set with what is needed", () => {
    expect(codeOf(() => validateTasks(set([task("a")]), ["train", "test"]))).toBe("none");
    expect(codeOf(() => validateTasks(set([{ ...task("a"), prompt: [{ role: "user", content: "hi" }] }])))).toBe(
      "none",
    );
  });

  it.each([
    ["RLVR_TASKS_EMPTY", set([])],
    ["RLVR_TASKS_SHAPE", { train: [task("a")] } as unknown as TaskSet],
    ["RLVR_TASKS_SHAPE", undefined as unknown as TaskSet],
    ["RLVR_TASKS_ID", set([task("")])],
    ["RLVR_TASKS_ID", set([task("a"), task("a", "b")])],
    ["RLVR_TASKS_ID", set([task("x", "other")])],
    ["RLVR_TASKS_PROMPT", set([{ ...task("a"), prompt: "" }])],
    ["RLVR_TASKS_PROMPT", set([{ ...task("a"), prompt: [] }])],
    ["RLVR_TASKS_SOURCE", set([task("a", "s")], [task("b", "s")])],
    ["RLVR_TASKS_SOURCE", set([task("a", "")])],
  ])("reports %s", (code, tasks) => {
    expect(codeOf(() => validateTasks(tasks))).toBe(code);
  });
});
