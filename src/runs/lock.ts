import { linkSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import { RlvrError } from "../base/errors.ts";
import { isDiskError, writeFailed } from "./write.ts";

/** Who holds a run folder. The start time tells a process from a later one that got the same id. */
interface Owner {
  pid: number;
  host: string;
  /** Of this start of the machine; null where the platform does not tell. */
  boot: string | null;
  /** In clock ticks since that start; null where the platform does not tell. */
  started: string | null;
}

const name = (generation: number) => `run.lock.${generation}`;

function read(path: string): string | null {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return null;
  }
}

function startedAt(pid: number): string | null {
  const stat = read(`/proc/${pid}/stat`);
  // The second field is the command in brackets and may contain anything; the start time is the 22nd.
  return stat?.slice(stat.lastIndexOf(")") + 2).split(" ")[19] ?? null;
}

const bootId = (): string | null => read("/proc/sys/kernel/random/boot_id")?.trim() ?? null;

function self(): Owner {
  return { pid: process.pid, host: hostname(), boot: bootId(), started: startedAt(process.pid) };
}

function processExists(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}

/** True when the process that wrote a lock is gone for certain. */
export function isStale(owner: Owner): boolean {
  if (owner.host !== hostname()) return false; // cannot be judged from here
  if (owner.boot !== null && owner.boot !== bootId()) return true;
  if (!processExists(owner.pid)) return true;
  const started = startedAt(owner.pid);
  return owner.started !== null && started !== null && owner.started !== started;
}

interface Lock {
  generation: number;
  path: string;
  owner: Owner | null;
}

function locks(folder: string): Lock[] {
  const found: Lock[] = [];
  for (const file of readdirSync(folder)) {
    const generation = Number(/^run\.lock\.(\d+)$/.exec(file)?.[1]);
    if (!generation) continue;
    const path = join(folder, file);
    const text = read(path);
    if (text === null) continue; // released meanwhile
    try {
      found.push({ generation, path, owner: JSON.parse(text) as Owner });
    } catch {
      found.push({ generation, path, owner: null });
    }
  }
  return found;
}

/** A lock that cannot be read was cut off by a crash, unless it is being written this moment. */
function isHeld(lock: Lock): boolean {
  if (lock.owner) return !isStale(lock.owner);
  try {
    return Date.now() - statSync(lock.path).mtimeMs < 10_000;
  } catch {
    return false;
  }
}

function refuse(folder: string, lock: Lock): RlvrError {
  const who = lock.owner ? `process ${lock.owner.pid} on ${lock.owner.host}` : "another process";
  return new RlvrError("RLVR_RUN_LOCKED", `run: expected ${folder} to be free, got it in use by ${who}`, {
    next: `wait for it or end it, or use another --run name; if that machine is gone for good, remove ${lock.path}`,
  });
}

/** Creates a file with its content in one go; false when it exists. */
function createExclusive(path: string, content: string): boolean {
  const temporary = `${path}.${process.pid}`;
  try {
    writeFileSync(temporary, content);
    linkSync(temporary, path);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EEXIST") return false;
    if (isDiskError(error) && (error as NodeJS.ErrnoException).code !== "EPERM") throw writeFailed(path, error);
    // No hard links here: exclusive creation is as safe, with a short moment in which the file is empty.
    try {
      writeFileSync(path, content, { flag: "wx" });
      return true;
    } catch (inner) {
      if ((inner as NodeJS.ErrnoException).code === "EEXIST") return false;
      throw writeFailed(path, inner);
    }
  } finally {
    rmSync(temporary, { force: true });
  }
}

/**
 * Takes a run folder for this process and returns the function that gives it back. A lock whose process is gone is
 * taken over: the next generation's file is created, which only one of several processes can do, and then the old one
 * is removed. Throws `RLVR_RUN_LOCKED`.
 */
export function lockFolder(folder: string): () => void {
  for (;;) {
    const before = locks(folder);
    const holder = before.find(isHeld);
    if (holder) throw refuse(folder, holder);
    const generation = Math.max(0, ...before.map((lock) => lock.generation)) + 1;
    const path = join(folder, name(generation));
    if (!createExclusive(path, `${JSON.stringify(self())}\n`)) continue;
    // Somebody with an older view of the folder may have taken another generation: then neither goes on.
    const other = locks(folder).find((lock) => lock.generation !== generation && isHeld(lock));
    if (other) {
      rmSync(path, { force: true });
      throw refuse(folder, other);
    }
    for (const old of before) rmSync(old.path, { force: true });
    return () => rmSync(path, { force: true });
  }
}
