/** Batches that were sampled and wait to be trained on, and their place in checkpoints. */
import { gunzipSync, gzipSync } from "node:zlib";
import { RlvrError } from "../base/errors.ts";
import type { Collected } from "../rollouts/collect.ts";
import type { Rollout } from "../rollouts/rollout.ts";
import type { Task } from "../tasks/task.ts";

type Stored = Omit<Rollout, "task"> & { taskId: string };

/** The queue as bytes: tasks by id. Group membership is kept by position, so nothing is written twice. */
export function packQueue(queue: readonly Collected[]): Uint8Array {
  const batches = queue.map(({ kept, sampled, ...rest }) => ({
    ...rest,
    sampled: sampled.map((group) => group.map(({ task, ...rollout }): Stored => ({ ...rollout, taskId: task.id }))),
    kept: kept.map((group) => sampled.indexOf(group)),
  }));
  const bytes = gzipSync(JSON.stringify(batches));
  bytes[9] = 255; // the operating system's field: "unknown", the same everywhere
  return bytes;
}

/** The queue that `packQueue` wrote. Throws `RLVR_CHECKPOINT` where a task is not among `tasks`. */
export function unpackQueue(bytes: Uint8Array, tasks: readonly Task[]): Collected[] {
  const byId = new Map(tasks.map((task) => [task.id, task]));
  const batches = JSON.parse(gunzipSync(bytes).toString("utf8")) as (Omit<Collected, "sampled" | "kept"> & {
    sampled: Stored[][];
    kept: number[];
  })[];
  return batches.map(({ sampled: stored, kept, ...rest }) => {
    const sampled = stored.map((group) =>
      group.map(({ taskId, ...rollout }): Rollout => {
        const task = byId.get(taskId);
        if (task) return { ...rollout, task };
        throw new RlvrError("RLVR_CHECKPOINT", `checkpoint: expected task ${taskId} among the tasks, got none`, {
          next: "resume with the tasks that the run was started with",
        });
      }),
    );
    return { ...rest, sampled, kept: kept.map((index) => sampled[index]) };
  });
}
