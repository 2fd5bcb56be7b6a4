import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import { errorMessage, RlvrError } from "../base/errors.ts";
import { type Checkpoint, listCheckpoints } from "./checkpoints.ts";
import type { Evaluation } from "./events.ts";
import { parseLines, readLines } from "./lines.ts";
import type { MetricRecord } from "./metrics.ts";
import type { RolloutRecord } from "./records.ts";

/** A run on disk, to look at. Reading needs no lock and works beside a process that is writing. */
export interface RunView {
  path: string;
  configPath: string;
  config: Record<string, unknown>;
  manifest: Record<string, unknown>;
  metrics(): MetricRecord[];
  events(): ({ event: string } & Record<string, unknown>)[];
  evaluation(when: "before" | "after"): Evaluation | null;
  /** Steps whose rollouts are kept, in order. */
  rolloutSteps(): number[];
  rollouts(step: number): RolloutRecord[];
  checkpoints(): Checkpoint[];
}

function readJson<T>(path: string): T | null {
  if (!existsSync(path)) return null;
  try {
    return JSON.parse(readFileSync(path, "utf8")) as T;
  } catch (cause) {
    throw new RlvrError("RLVR_RUN_DAMAGED", `run: expected JSON in ${path}, got ${errorMessage(cause)}`, {
      next: "restore the file from a copy",
      cause,
    });
  }
}

/** True for a folder that a run was made in. */
export function isRunFolder(path: string): boolean {
  return existsSync(join(path, "config.json")) && existsSync(join(path, "manifest.json"));
}

/** Opens a run for reading. Throws `RLVR_RUN_MISSING`, `RLVR_RUN_DAMAGED`. */
export function readRun(path: string): RunView {
  if (!isRunFolder(path)) {
    const got = existsSync(path) ? "a folder without config.json and manifest.json" : "nothing there";
    throw new RlvrError("RLVR_RUN_MISSING", `run: expected the folder of a run at ${path}, got ${got}`, {
      next: "give a folder under runs/, for example runs/transforms-001",
    });
  }
  const record = readJson<{ configPath: string; config: Record<string, unknown> }>(join(path, "config.json"));
  const rollouts = join(path, "rollouts");
  return {
    path,
    configPath: record?.configPath ?? "",
    config: record?.config ?? {},
    manifest: readJson(join(path, "manifest.json")) ?? {},
    metrics: () => readLines(join(path, "metrics.jsonl")),
    events: () => readLines(join(path, "events.jsonl")),
    evaluation: (when) => readJson(join(path, `evaluation-${when}.json`)),
    rolloutSteps: () =>
      (existsSync(rollouts) ? readdirSync(rollouts) : [])
        .map((file) => Number(/^step-(\d+)\.jsonl\.gz$/.exec(file)?.[1] ?? Number.NaN))
        .filter((step) => !Number.isNaN(step))
        .sort((a, b) => a - b),
    rollouts: (step) => {
      const file = join(rollouts, `step-${String(step).padStart(6, "0")}.jsonl.gz`);
      return existsSync(file) ? parseLines(gunzipSync(readFileSync(file)).toString("utf8"), file) : [];
    },
    checkpoints: () => listCheckpoints(join(path, "checkpoints")),
  };
}
