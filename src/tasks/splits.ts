import { RlvrError } from "../base/errors.ts";
import { RandomStream } from "../base/random.ts";
import type { Split, Task, TaskSet } from "./task.ts";

export const SPLITS: readonly Split[] = ["train", "validation", "test"];

/** Shares of the tasks; they need not add up to 1, only their proportions count. */
export type Shares = Record<Split, number>;

/**
 * Splits tasks by source: all tasks of a source go to one side. Sources are visited in a seeded random order, and each
 * goes to the side that is furthest below its share, so that sides come close to their shares as far as the sizes of
 * the sources allow. A side with a positive share stays empty only when there are fewer sources than sides. Tasks keep
 * their order; the result depends on the sources and the seed, not on the order of the tasks.
 *
 * Throws `RLVR_SPLIT_SHARES` for negative, infinite or all-zero shares.
 */
export function splitBySource<Reference>(
  tasks: readonly Task<Reference>[],
  shares: Shares,
  seed: number,
): TaskSet<Reference> {
  const total = SPLITS.reduce((sum, split) => sum + shares[split], 0);
  if (!SPLITS.every((split) => shares[split] >= 0) || !(total > 0 && total < Number.POSITIVE_INFINITY))
    throw new RlvrError(
      "RLVR_SPLIT_SHARES",
      `splitBySource: expected shares of at least 0 and one above it, got ${JSON.stringify(shares)}`,
      { next: "give for example { train: 0.8, validation: 0.1, test: 0.1 }" },
    );
  const sizes = new Map<string, number>();
  for (const task of tasks) sizes.set(task.source, (sizes.get(task.source) ?? 0) + 1);
  const sources = new RandomStream(seed, "splits").shuffle([...sizes.keys()].sort());

  const open = SPLITS.filter((split) => shares[split] > 0);
  const placed: Record<Split, number> = { train: 0, validation: 0, test: 0 };
  const sideOf = new Map<string, Split>();
  for (const source of sources) {
    const missing = (split: Split): number => (shares[split] / total) * tasks.length - placed[split];
    // Empty sides first: a large source must not leave a small side without any task.
    const empty = open.filter((split) => placed[split] === 0);
    const left = sources.length - sideOf.size;
    const choices = empty.length >= left && empty.length > 0 ? empty : open;
    const side = choices.reduce((best, split) => (missing(split) > missing(best) ? split : best));
    sideOf.set(source, side);
    placed[side] += sizes.get(source) ?? 0;
  }
  const on = (side: Split): Task<Reference>[] => tasks.filter((task) => sideOf.get(task.source) === side);
  return { train: on("train"), validation: on("validation"), test: on("test") };
}

function list(names: string[]): string {
  return names.length <= 3 ? names.join(", ") : `${names.slice(0, 3).join(", ")} and ${names.length - 3} more`;
}

function isEmptyPrompt(prompt: Task["prompt"]): boolean {
  if (typeof prompt === "string") return prompt.length === 0;
  return !Array.isArray(prompt) || prompt.length === 0;
}

/**
 * Checks a task set before a run: every side named in `needed` has tasks, ids are present and unique over all sides,
 * prompts are not empty, and no source is on two sides.
 *
 * Throws `RLVR_TASKS_SHAPE`, `RLVR_TASKS_EMPTY`, `RLVR_TASKS_ID`, `RLVR_TASKS_PROMPT` or `RLVR_TASKS_SOURCE`.
 *
 * @example
 * validateTasks(tasks, ["train", "test"]);
 */
export function validateTasks(tasks: TaskSet, needed: readonly Split[] = ["train"]): void {
  for (const split of SPLITS) {
    if (!Array.isArray(tasks?.[split]))
      throw new RlvrError(
        "RLVR_TASKS_SHAPE",
        `tasks.${split}: expected a list of tasks, got ${typeof tasks?.[split]}`,
        {
          next: "return { train: […], validation: […], test: […] }; a side may be empty",
        },
      );
  }
  for (const split of needed) {
    if (tasks[split].length === 0)
      throw new RlvrError("RLVR_TASKS_EMPTY", `tasks.${split}: expected at least one task, got none`, {
        next: "check the function that makes the tasks, and its sizes or shares",
      });
  }
  const ids = new Set<string>();
  const repeated = new Set<string>();
  const sideOf = new Map<string, Split>();
  const straddling = new Set<string>();
  for (const split of SPLITS) {
    tasks[split].forEach((task, i) => {
      const { id, prompt, source } = task;
      if (typeof id !== "string" || id.length === 0)
        throw new RlvrError(
          "RLVR_TASKS_ID",
          `tasks.${split}[${i}]: expected an id of text, got ${JSON.stringify(id)}`,
          {
            next: "give every task an id that stays the same between runs",
          },
        );
      if (ids.has(id)) repeated.add(id);
      ids.add(id);
      if (isEmptyPrompt(prompt))
        throw new RlvrError(
          "RLVR_TASKS_PROMPT",
          `task ${id}: expected a prompt of text or messages, got an empty one`,
          {
            next: "give the task a prompt or leave it out",
          },
        );
      if (typeof source !== "string" || source.length === 0)
        throw new RlvrError(
          "RLVR_TASKS_SOURCE",
          `task ${id}: expected a source of text, got ${JSON.stringify(source)}`,
          { next: "name the family of near copies the task belongs to; its id if there is none" },
        );
      const side = sideOf.get(source) ?? split;
      if (side !== split) straddling.add(`${source} (${side}, ${split})`);
      sideOf.set(source, side);
    });
  }
  if (repeated.size > 0)
    throw new RlvrError("RLVR_TASKS_ID", `tasks: expected unique ids, got repeats of ${list([...repeated])}`, {
      next: "number the tasks, or put the side's name in front of the id",
    });
  if (straddling.size > 0)
    throw new RlvrError(
      "RLVR_TASKS_SOURCE",
      `tasks: expected each source on one side, got ${list([...straddling])} on two`,
      { next: "split with splitBySource" },
    );
}
