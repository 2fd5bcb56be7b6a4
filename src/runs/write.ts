import { closeSync, fstatSync, fsyncSync, ftruncateSync, openSync, readdirSync, writeSync } from "node:fs";
import { join } from "node:path";
import { errorMessage, RlvrError } from "../base/errors.ts";
import { syncDirectory } from "../base/files.ts";

const diskCodes = new Set(["ENOSPC", "EDQUOT", "EFBIG", "EIO", "EROFS", "EACCES", "EPERM"]);

/** True for an error of the disk or of permissions, rather than of the program. */
export function isDiskError(error: unknown): boolean {
  return diskCodes.has((error as NodeJS.ErrnoException | undefined)?.code ?? "");
}

/** The error of a write that failed; what was there before is unchanged when it is thrown. */
export function writeFailed(path: string, cause: unknown): RlvrError {
  return new RlvrError("RLVR_WRITE_FAILED", `write: expected to write ${path}, got ${errorMessage(cause)}`, {
    next: "free disk space or choose another folder, then continue with --resume; nothing that was written before is lost",
    cause,
  });
}

/**
 * Adds bytes to the end of a file and waits until they are on disk. When that fails the file is cut back to its former
 * length and `RLVR_WRITE_FAILED` is thrown.
 */
export function appendDurably(path: string, text: string): void {
  let fd: number | undefined;
  let before = 0;
  try {
    fd = openSync(path, "a+");
    const bytes = Buffer.from(text);
    before = fstatSync(fd).size;
    for (let offset = 0; offset < bytes.byteLength; ) {
      offset += writeSync(fd, bytes, offset, bytes.byteLength - offset);
    }
    fsyncSync(fd);
  } catch (cause) {
    if (fd !== undefined) cutBack(fd, before);
    throw writeFailed(path, cause);
  } finally {
    if (fd !== undefined) closeSync(fd);
  }
}

function cutBack(fd: number, size: number): void {
  try {
    ftruncateSync(fd, size);
  } catch {
    // A partial last line is removed at the next start.
  }
}

/** Flushes every file in a folder, and the folder itself, to disk. */
export function syncTree(folder: string): void {
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) {
      syncTree(path);
    } else if (entry.isFile()) {
      const fd = openSync(path, "r+");
      try {
        fsyncSync(fd);
      } finally {
        closeSync(fd);
      }
    }
  }
  syncDirectory(folder);
}
