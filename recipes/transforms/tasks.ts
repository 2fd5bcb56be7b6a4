import { RandomStream, type Split, type Task, type TaskSet } from "rlvr";
import type { CodeReference } from "../../src/tasks/code.ts";
import { compositionKey, type Problem, randomProblem } from "./problem.ts";

/** Tasks on each side. */
export type Sizes = Record<Split, number>;

export const DEFAULT_SIZES: Sizes = { train: 2048, validation: 128, test: 256 };

function task(id: string, { prompt, reference, family, steps }: Problem): Task<CodeReference> {
  return {
    id,
    prompt,
    reference,
    source: family,
    tags: [...new Set(steps.map((step) => step.kind))],
    difficulty: steps.length,
  };
}

/**
 * The tasks of the recipe. No composition (steps with their numbers) comes twice, and no family of compositions is on
 * two sides, whatever the seeds. A task depends on the seed, its side and its place only: a larger set starts with
 * the smaller one.
 */
export function transformsTasks(seed: number, sizes: Partial<Sizes> = {}): TaskSet<CodeReference> {
  const side = (split: Split): Task<CodeReference>[] => {
    const tasks: Task<CodeReference>[] = [];
    const seen = new Set<string>();
    for (let draw = 0; tasks.length < (sizes[split] ?? DEFAULT_SIZES[split]); draw++) {
      const problem = randomProblem(new RandomStream(seed, "transforms", split, draw), split);
      const key = compositionKey(problem.steps);
      if (seen.has(key)) continue;
      seen.add(key);
      tasks.push(task(`${split}-${String(tasks.length).padStart(4, "0")}`, problem));
    }
    return tasks;
  };
  return { train: side("train"), validation: side("validation"), test: side("test") };
}
