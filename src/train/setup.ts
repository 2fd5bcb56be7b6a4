/** What both training loops do before their first step. */
import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { RlvrError } from "../base/errors.ts";
import { describeConfig, type RlvrConfig } from "../config/index.ts";
import type { RunEvent } from "../runs/events.ts";
import { type Checkpoint, makeManifest, RunFolder } from "../runs/index.ts";
import type { TaskSet } from "../tasks/task.ts";
import type { StreamState } from "./task-stream.ts";

export interface LoopOptions {
  /** Absolute path of the config file. */
  configPath: string;
  /** Run folder to continue. */
  resume?: string;
  /** When it aborts, the loop ends the step, saves and returns with `interrupted`. */
  signal: AbortSignal;
  onEvent(event: RunEvent): void;
}

/** A path of the config, which is relative to the config's file. */
export function fromConfig(configPath: string, path: string): string {
  return resolve(dirname(configPath), path);
}

export async function loadTasks(config: RlvrConfig): Promise<TaskSet> {
  return typeof config.tasks === "function" ? await config.tasks(config.seed) : config.tasks;
}

/** SHA-256 of a value's JSON, first 16 digits: tells whether two runs had the same data. */
export function digest(value: unknown): string {
  return createHash("sha256").update(JSON.stringify(value)).digest("hex").slice(0, 16);
}

/** Makes the run folder, or opens the one to continue. */
export function openRun(config: RlvrConfig, options: LoopOptions, details: Record<string, unknown>): RunFolder {
  if (options.resume === undefined) {
    return RunFolder.create({
      root: config.runsFolder,
      name: config.run,
      prefix: basename(dirname(options.configPath)),
      configPath: options.configPath,
      config: describeConfig(config),
      manifest: makeManifest(details),
    });
  }
  const run = RunFolder.open(options.resume);
  const manifest = JSON.parse(readFileSync(join(run.path, "manifest.json"), "utf8")) as Record<string, unknown>;
  for (const [name, now] of Object.entries(details)) {
    if (!name.endsWith("Hash") || manifest[name] === now) continue;
    run.close();
    throw new RlvrError("RLVR_RESUME_CHANGED", `resume: expected ${name} ${manifest[name]}, got ${now}`, {
      next: "undo the change since the run was started, or start a new run",
    });
  }
  return run;
}

/** What a loop knows beside weights and optimiser; kept in each checkpoint as `state.json`. */
export interface LoopState extends StreamState {
  /** Steps done. */
  step: number;
  /** How often the run has gone back to an earlier checkpoint by itself. */
  returns: number;
  /** Weight of the divergence from the reference, where it is adapted. */
  klCoefficient?: number;
}

const STATE_FILE = "state.json";

export async function saveState(
  run: RunFolder,
  state: LoopState,
  policy: { saveCheckpoint(folder: string): Promise<void> },
  options: { keep: number; good?: boolean; extra?(folder: string): Promise<void> },
): Promise<Checkpoint> {
  return run.writeCheckpoint(
    state.step,
    async (folder) => {
      await policy.saveCheckpoint(folder);
      await options.extra?.(folder);
      writeFileSync(join(folder, STATE_FILE), `${JSON.stringify(state)}\n`);
    },
    options,
  );
}

export async function loadState(
  checkpoint: Checkpoint,
  policy: { loadCheckpoint(folder: string, step: number): Promise<void> },
): Promise<LoopState> {
  const state = JSON.parse(readFileSync(join(checkpoint.path, STATE_FILE), "utf8")) as LoopState;
  await policy.loadCheckpoint(checkpoint.path, state.step);
  return state;
}
