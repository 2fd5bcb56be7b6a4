import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { basename, join } from "node:path";
import { gzipSync } from "node:zlib";
import { errorMessage, RlvrError } from "../base/errors.ts";
import { writeFileAtomic } from "../base/files.ts";
import {
  type Checkpoint,
  dropCheckpointsAfter,
  listCheckpoints,
  repairCheckpoints,
  writeCheckpoint,
} from "./checkpoints.ts";
import type { Alert, Evaluation, RunEvent } from "./events.ts";
import { parseLines, toLine } from "./lines.ts";
import { lockFolder } from "./lock.ts";
import type { MetricRecord } from "./metrics.ts";
import { isRunFolder, readRun } from "./read.ts";
import type { RolloutRecord } from "./records.ts";
import { appendDurably, isDiskError, writeFailed } from "./write.ts";

export interface CreateRunOptions {
  /** Folder of all runs; made when absent. */
  root: string;
  /** Name of the new folder. When absent: `prefix` with the first free number. */
  name?: string;
  /** First part of an automatic name, for example the recipe's; `run` when absent. */
  prefix?: string;
  configPath: string;
  /** `describeConfig` of the resolved config. */
  config: Record<string, unknown>;
  manifest: Record<string, unknown>;
}

const rolloutName = (step: number) => `step-${String(step).padStart(6, "0")}.jsonl.gz`;

function json(value: unknown): string {
  return `${JSON.stringify(value, null, 2)}\n`;
}

/** Makes the folder; returns its path. Only one of several processes gets a name. */
function makeFolder({ root, name, prefix = "run" }: CreateRunOptions): string {
  try {
    mkdirSync(root, { recursive: true });
    for (let number = 1; ; number++) {
      const path = join(root, name ?? `${prefix}-${String(number).padStart(3, "0")}`);
      try {
        mkdirSync(path);
        return path;
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
        if (name === undefined) continue;
        const next = isRunFolder(path)
          ? `continue that run with --resume ${path}`
          : `remove ${path}, which holds no run`;
        throw new RlvrError(
          "RLVR_RUN_EXISTS",
          `run: expected a new name, got ${JSON.stringify(name)}, and ${path} exists`,
          {
            next: `choose another --run name, or ${next}`,
          },
        );
      }
    }
  } catch (error) {
    if (error instanceof RlvrError) throw error;
    throw writeFailed(join(root, name ?? prefix), error);
  }
}

/**
 * The folder of a run, held by this process until `close`. Every write is an append or an atomic replacement, so that a
 * crash or a full disk never costs what was there.
 */
export class RunFolder {
  readonly path: string;
  readonly #release: () => void;

  private constructor(path: string, release: () => void) {
    this.path = path;
    this.#release = release;
  }

  /** Makes a new run. Throws `RLVR_RUN_EXISTS`, `RLVR_WRITE_FAILED`. */
  static create(options: CreateRunOptions): RunFolder {
    const path = makeFolder(options);
    const release = lockFolder(path);
    try {
      const run = new RunFolder(path, release);
      mkdirSync(join(path, "rollouts"));
      mkdirSync(join(path, "checkpoints"));
      writeFileAtomic(join(path, "manifest.json"), json(options.manifest));
      writeFileAtomic(join(path, "config.json"), json({ configPath: options.configPath, config: options.config }));
      return run;
    } catch (error) {
      rmSync(path, { recursive: true, force: true });
      throw isDiskError(error) ? writeFailed(path, error) : error;
    }
  }

  /**
   * Opens a run to continue it. Throws `RLVR_RUN_MISSING`, `RLVR_RUN_LOCKED`.
   *
   * Call `rewind` with the step of the checkpoint that the loop continues from.
   */
  static open(path: string): RunFolder {
    readRun(path);
    const run = new RunFolder(path, lockFolder(path));
    repairCheckpoints(join(path, "checkpoints"));
    return run;
  }

  get name(): string {
    return basename(this.path);
  }

  /** Adds a step to `metrics.jsonl`. */
  appendMetrics(step: number, metrics: Record<string, number>): void {
    appendDurably(join(this.path, "metrics.jsonl"), toLine({ step, ...metrics }));
  }

  /** Adds an event (alert, refusal, retry, return, evaluation) to `events.jsonl`. */
  appendEvent(event: RunEvent | ({ event: string } & Record<string, unknown>)): void {
    appendDurably(join(this.path, "events.jsonl"), toLine(event));
  }

  /** Writes the rollouts of a step; the same records give the same bytes. */
  writeRollouts(step: number, records: readonly RolloutRecord[]): void {
    const bytes = gzipSync(records.map(toLine).join(""));
    bytes[9] = 255; // the operating system's field: "unknown", so that every platform writes the same
    writeFileAtomic(join(this.path, "rollouts", rolloutName(step)), bytes);
  }

  /** Keeps a copy of a step's rollouts in `refused/`, where going back to an earlier step does not remove them. */
  keepRollouts(step: number): void {
    const folder = join(this.path, "refused");
    mkdirSync(folder, { recursive: true });
    const copies = readdirSync(folder).length;
    const name = rolloutName(step).replace(".jsonl", `-${copies + 1}.jsonl`);
    writeFileAtomic(join(folder, name), readFileSync(join(this.path, "rollouts", rolloutName(step))));
  }

  /** Keeps an evaluation as `evaluation-before.json` or `evaluation-after.json`. */
  writeEvaluation(when: "before" | "after", evaluation: Evaluation): void {
    writeFileAtomic(join(this.path, `evaluation-${when}.json`), json(evaluation));
  }

  /** The evaluation written before, so that a resumed run need not repeat it. */
  evaluation(when: "before" | "after"): Evaluation | null {
    const path = join(this.path, `evaluation-${when}.json`);
    return existsSync(path) ? (JSON.parse(readFileSync(path, "utf8")) as Evaluation) : null;
  }

  /** Writes a small file of the run, for example `report.html`, atomically. */
  writeFile(name: string, data: string | Uint8Array): void {
    writeFileAtomic(join(this.path, name), data);
  }

  /** See `checkpoints.ts`. `good: false` keeps it out of automatic returns. */
  writeCheckpoint(
    step: number,
    write: (folder: string) => void | Promise<void>,
    options: { keep: number; good?: boolean },
  ): Promise<Checkpoint> {
    return writeCheckpoint(join(this.path, "checkpoints"), step, write, options);
  }

  /** The newest complete checkpoint; with `good`, the newest that no alert spoke against; none after step `atMost`. */
  latestCheckpoint({ good = false, atMost = Number.POSITIVE_INFINITY } = {}): Checkpoint | null {
    const all = listCheckpoints(join(this.path, "checkpoints"));
    return all.findLast((checkpoint) => checkpoint.step <= atMost && (checkpoint.good || !good)) ?? null;
  }

  /** The metrics so far, oldest first. */
  metrics(): MetricRecord[] {
    return readRun(this.path).metrics();
  }

  /** How often this run has returned to an earlier checkpoint by itself. */
  returns(): number {
    return readRun(this.path)
      .events()
      .filter((event) => event.event === "alert" && (event as unknown as Alert).level === "return").length;
  }

  /**
   * The alert that asks for a return, where the run ended before it had returned; null else. A loop that resumes has to
   * return first.
   */
  undoneReturn(): Alert | null {
    const last = readRun(this.path)
      .events()
      .findLast(({ event, level }) => event === "returned" || (event === "alert" && level === "return"));
    return last?.event === "alert" ? (last as unknown as Alert) : null;
  }

  /** The config as it was recorded when the run was made. */
  config(): Record<string, unknown> {
    return readRun(this.path).config;
  }

  /**
   * Goes back to a step: metrics, rollouts and checkpoints after it are removed, so that what follows equals a run that
   * was never interrupted. Of the events after it only returns stay. The partial last line of a crash goes too.
   */
  rewind(step: number): void {
    this.#filterLines("metrics.jsonl", (record) => (record.step ?? 0) <= step);
    this.#filterLines("events.jsonl", (record) => (record.step ?? 0) <= step || record.level === "return");
    for (const file of readdirSync(join(this.path, "rollouts"))) {
      const number = Number(/^step-(\d+)\.jsonl\.gz$/.exec(file)?.[1] ?? Number.POSITIVE_INFINITY);
      if (number > step) rmSync(join(this.path, "rollouts", file), { force: true });
    }
    rmSync(join(this.path, "evaluation-after.json"), { force: true });
    dropCheckpointsAfter(join(this.path, "checkpoints"), step);
  }

  #filterLines(name: string, keep: (record: { step?: number; level?: string }) => boolean): void {
    const path = join(this.path, name);
    if (!existsSync(path)) return;
    const text = readFileSync(path, "utf8");
    const kept = parseLines<{ step?: number; level?: string }>(text, path).filter(keep).map(toLine).join("");
    if (kept !== text) writeFileAtomic(path, kept);
  }

  /** Gives the folder back to other processes. */
  close(): void {
    try {
      this.#release();
    } catch (cause) {
      throw new RlvrError("RLVR_WRITE_FAILED", `run: expected to release ${this.path}, got ${errorMessage(cause)}`, {
        next: "remove its run.lock file",
        cause,
      });
    }
  }
}
