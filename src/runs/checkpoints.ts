import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { RlvrError } from "../base/errors.ts";
import { syncDirectory } from "../base/files.ts";
import { isDiskError, syncTree, writeFailed } from "./write.ts";

/** A checkpoint that is complete on disk. */
export interface Checkpoint {
  step: number;
  path: string;
  /** False when an alert spoke against the policy when it was saved: never a place to return to. */
  good: boolean;
}

/** Kept as `checkpoint.json` in the folder: what belongs to it, by relative path, with sizes in bytes. */
interface Contents {
  step: number;
  good: boolean;
  files: Record<string, number>;
}

const contentsName = "checkpoint.json";
const folderName = (step: number) => `step-${String(step).padStart(6, "0")}`;

function sizes(folder: string, root = folder): Record<string, number> {
  const files: Record<string, number> = {};
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) Object.assign(files, sizes(path, root));
    else files[relative(root, path).replaceAll("\\", "/")] = statSync(path).size;
  }
  return files;
}

function readContents(path: string): Contents | null {
  try {
    const contents = JSON.parse(readFileSync(join(path, contentsName), "utf8")) as Contents;
    const complete = Object.entries(contents.files).every(([file, size]) => statSync(join(path, file)).size === size);
    return complete ? contents : null;
  } catch {
    return null;
  }
}

/** The complete checkpoints in a folder, oldest first. A folder with a file missing or cut short is left out. */
export function listCheckpoints(folder: string): Checkpoint[] {
  if (!existsSync(folder)) return [];
  return readdirSync(folder)
    .filter((file) => /^step-\d{6,}$/.test(file))
    .flatMap((file) => {
      const path = join(folder, file);
      const contents = readContents(path);
      return contents ? [{ step: contents.step, path, good: contents.good }] : [];
    })
    .sort((a, b) => a.step - b.step);
}

/** Puts a folder of checkpoints in order after a crash: half-written ones go, a replaced one that was cut off comes back. */
export function repairCheckpoints(folder: string): void {
  if (!existsSync(folder)) return;
  for (const file of readdirSync(folder)) {
    const path = join(folder, file);
    if (file.startsWith(".old-")) {
      const target = join(folder, file.slice(".old-".length));
      if (existsSync(target)) rmSync(path, { recursive: true, force: true });
      else renameSync(path, target);
    } else if (file.startsWith(".new-")) {
      rmSync(path, { recursive: true, force: true });
    }
  }
}

/**
 * Writes a checkpoint: into a hidden folder first, flushed to disk, then renamed, so that a folder `step-…` is always
 * complete. Older ones are removed only after that. The newest `keep` stay, and the newest good one always does.
 * When the disk is full, `RLVR_WRITE_FAILED` is thrown and every earlier checkpoint is still there.
 *
 * @param write puts the files into the folder it is given
 */
export async function writeCheckpoint(
  folder: string,
  step: number,
  write: (folder: string) => void | Promise<void>,
  options: { keep: number; good?: boolean },
): Promise<Checkpoint> {
  const good = options.good ?? true;
  const path = join(folder, folderName(step));
  const fresh = join(folder, `.new-${folderName(step)}`);
  const old = join(folder, `.old-${folderName(step)}`);
  try {
    rmSync(fresh, { recursive: true, force: true });
    mkdirSync(fresh, { recursive: true });
    await write(fresh);
    const contents: Contents = { step, good, files: sizes(fresh) };
    writeFileSync(join(fresh, contentsName), `${JSON.stringify(contents, null, 2)}\n`);
    syncTree(fresh);
    if (existsSync(path)) renameSync(path, old);
    renameSync(fresh, path);
    syncDirectory(folder);
    rmSync(old, { recursive: true, force: true });
  } catch (cause) {
    rmSync(fresh, { recursive: true, force: true });
    repairCheckpoints(folder);
    const code = cause instanceof RlvrError ? cause.code : "";
    throw isDiskError(cause) || code === "RLVR_WRITE_FAILED" ? writeFailed(path, cause) : cause;
  }
  prune(folder, options.keep);
  return { step, path, good };
}

function prune(folder: string, keep: number): void {
  const all = listCheckpoints(folder);
  const lastGood = all.findLast((checkpoint) => checkpoint.good);
  for (const checkpoint of all.slice(0, Math.max(0, all.length - keep))) {
    if (checkpoint !== lastGood) rmSync(checkpoint.path, { recursive: true, force: true });
  }
}

/** Removes checkpoints after a step. */
export function dropCheckpointsAfter(folder: string, step: number): void {
  for (const checkpoint of listCheckpoints(folder)) {
    if (checkpoint.step > step) rmSync(checkpoint.path, { recursive: true, force: true });
  }
}
