/** All of a run folder that follows from config and seed: two runs of the same are compared by it. */
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Evaluation } from "../../src/runs/events.ts";
import { dependsOnClock, readRun } from "../../src/runs/index.ts";
import { toy } from "./process.ts";

const sha256 = (path: string) => createHash("sha256").update(readFileSync(path)).digest("hex");

function withoutSeconds(evaluation: Evaluation | null): Omit<Evaluation, "seconds"> | null {
  if (!evaluation) return null;
  const { seconds: _, ...rest } = evaluation;
  return rest;
}

export function runState(path: string) {
  const run = readRun(path);
  const last = run.checkpoints().at(-1);
  if (!last) throw new Error(`no checkpoint in ${path}`);
  return {
    metrics: run
      .metrics()
      .map((record) => Object.fromEntries(Object.entries(record).filter(([name]) => !dependsOnClock(name)))),
    rollouts: readdirSync(join(path, "rollouts"))
      .sort()
      .map((file) => [file, sha256(join(path, "rollouts", file))]),
    evaluations: [withoutSeconds(run.evaluation("before")), withoutSeconds(run.evaluation("after"))],
    weights: sha256(join(last.path, "model.safetensors")),
    optimizer: sha256(join(last.path, "optimizer.safetensors")),
    state: JSON.parse(readFileSync(join(last.path, "state.json"), "utf8")),
  };
}

export const meanOf = (values: number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;

/**
 * Writes a config that is the toy's with some keys replaced; gives its path.
 *
 * @param keys inside an object literal; `toy` is the toy's config, `parts` its functions
 */
export function toyVariant(folder: string, name: string, keys: string): string {
  const path = join(folder, `${name}.config.ts`);
  writeFileSync(
    path,
    `import toy from ${JSON.stringify(join(toy, "rlvr.config.ts"))};
     import * as parts from ${JSON.stringify(join(toy, "parts.ts"))};
     export default { ...toy, model: ${JSON.stringify(join(toy, "model"))}, ${keys} };\n`,
  );
  return path;
}
