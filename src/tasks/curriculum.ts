/**
 * Which tasks to train on next: by how often the policy has solved them. Pure: the same history and seed give the same
 * choice, and the history is plain data that goes into checkpoints.
 *
 *   unseen    not tried yet
 *   hard      success rate at or below `hardAtMost`: tried again now and then
 *   learning  in between: where groups are mixed and teach
 *   solved    at or above `solvedAtLeast`, tried twice or more: retired, looked at now and then
 */
import { RandomStream } from "../base/random.ts";
import type { Task } from "./task.ts";

export type Pool = "unseen" | "hard" | "learning" | "solved";

export interface CurriculumOptions {
  /** Success rate at or below which a task is hard. */
  hardAtMost: number;
  /** Success rate at or above which a task is solved and retired. */
  solvedAtLeast: number;
  /** Share of a step's tasks that comes from hard ones, while there are some. */
  retryShare: number;
  /** Share of a step's tasks that comes from retired ones, to notice what is forgotten. */
  recheckShare: number;
  /** Weight of the newest result in a task's success rate, in (0, 1]. */
  smoothing: number;
}

/** What is known of a task: success rate, smoothed over its groups, and how many groups that were. */
export interface TaskHistory {
  rate: number;
  groups: number;
}

export type CurriculumHistory = Record<string, TaskHistory>;

/** The pool of a task. */
export function poolOf(history: TaskHistory | undefined, options: CurriculumOptions): Pool {
  if (history === undefined) return "unseen";
  if (history.rate >= options.solvedAtLeast && history.groups >= 2) return "solved";
  return history.rate <= options.hardAtMost ? "hard" : "learning";
}

/** The history after a group of a task in which a share `rate` of the judged completions passed. */
export function recordGroup(
  history: CurriculumHistory,
  taskId: string,
  rate: number,
  options: CurriculumOptions,
): CurriculumHistory {
  const before = history[taskId];
  const smoothed = before === undefined ? rate : before.rate + options.smoothing * (rate - before.rate);
  return { ...history, [taskId]: { rate: smoothed, groups: (before?.groups ?? 0) + 1 } };
}

/** Tasks by pool. */
export function pools(
  tasks: readonly Task[],
  history: CurriculumHistory,
  options: CurriculumOptions,
): Record<Pool, Task[]> {
  const result: Record<Pool, Task[]> = { unseen: [], hard: [], learning: [], solved: [] };
  for (const task of tasks) result[poolOf(history[task.id], options)].push(task);
  return result;
}

/**
 * `count` different tasks (all of them, where there are fewer): the hard and retired shares first, the rest from those
 * being learned and unseen ones in equal chance for each task; what is missing then comes from any pool.
 */
export function chooseTasks(
  tasks: readonly Task[],
  history: CurriculumHistory,
  count: number,
  options: CurriculumOptions,
  seed: readonly [number, ...(string | number)[]],
): Task[] {
  const [first, ...names] = seed;
  const random = new RandomStream(first, "curriculum", ...names);
  const byPool = pools(tasks, history, options);
  const shuffled = (pool: Task[]) => random.shuffle(pool);
  const hard = shuffled(byPool.hard);
  const solved = shuffled(byPool.solved);
  const active = shuffled([...byPool.learning, ...byPool.unseen]);
  const chosen = [
    ...hard.splice(0, Math.round(options.retryShare * count)),
    ...solved.splice(0, Math.round(options.recheckShare * count)),
  ];
  chosen.push(...active.splice(0, Math.max(0, count - chosen.length)));
  // Too few active tasks: hard ones can still become solvable, solved ones teach nothing.
  chosen.push(...[...hard, ...solved].splice(0, Math.max(0, count - chosen.length)));
  return chosen.slice(0, count);
}
