import { closeSync, fsyncSync, openSync, renameSync, rmSync, writeSync } from "node:fs";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";
import { errorMessage, RlvrError } from "./errors.ts";

/** Flushes a directory entry to disk; silently skipped where the platform cannot open a directory. */
export function syncDirectory(path: string): void {
  try {
    const fd = openSync(path, "r");
    try {
      fsyncSync(fd);
    } finally {
      closeSync(fd);
    }
  } catch {
    // Windows cannot open directories; the rename itself is still atomic there.
  }
}

/**
 * Writes a file so that a reader, or the next start after a crash or a full disk, sees either the old content or the
 * whole new content. Throws `RLVR_WRITE_FAILED`; the old file is untouched then.
 */
export function writeFileAtomic(path: string, data: string | Uint8Array): void {
  const temporary = `${path}.tmp-${process.pid}`;
  try {
    const fd = openSync(temporary, "w");
    try {
      const bytes = typeof data === "string" ? Buffer.from(data) : data;
      for (let offset = 0; offset < bytes.byteLength; ) {
        offset += writeSync(fd, bytes, offset, bytes.byteLength - offset);
      }
      fsyncSync(fd);
    } finally {
      closeSync(fd);
    }
    renameSync(temporary, path);
    syncDirectory(dirname(path));
  } catch (cause) {
    removeQuietly(temporary);
    throw new RlvrError("RLVR_WRITE_FAILED", `write: expected to write ${path}, got ${errorMessage(cause)}`, {
      next: "free disk space or choose another folder; the file that was there before is unchanged",
      cause,
    });
  }
}

/** Removes what a failed write left; a failure to do so must not hide the first one. */
export function removeQuietly(path: string): void {
  try {
    rmSync(path, { recursive: true, force: true });
  } catch {
    // Nothing can be done about it.
  }
}

/**
 * Path of a compiled script beside the calling module, for worker threads and child processes.
 * Tests run from TypeScript sources, but Node 20 cannot start a `.ts` file: they use the built copy in `dist/`.
 */
export function scriptPath(moduleUrl: string, name: string): string {
  const path = fileURLToPath(new URL(`./${name}.js`, moduleUrl));
  return moduleUrl.endsWith(".ts") ? path.replace(/([/\\])src([/\\])(?!.*[/\\]src[/\\])/, "$1dist$2") : path;
}
