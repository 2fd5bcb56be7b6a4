import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { RlvrError } from "./errors.ts";
import { removeQuietly, scriptPath, writeFileAtomic } from "./files.ts";

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "rlvr-files-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

function thrownBy(work: () => void): RlvrError {
  try {
    work();
  } catch (error) {
    expect(error).toBeInstanceOf(RlvrError);
    return error as RlvrError;
  }
  throw new Error("expected an error, got none");
}

describe("writeFileAtomic", () => {
  it("writes text and bytes, and takes the place of what was there", () => {
    const file = join(folder, "a");
    writeFileAtomic(file, "long first content ä");
    expect(readFileSync(file, "utf8")).toBe("long first content ä");
    writeFileAtomic(file, new Uint8Array([1, 2, 3]));
    expect([...readFileSync(file)]).toEqual([1, 2, 3]);
    writeFileAtomic(file, "");
    expect(readFileSync(file, "utf8")).toBe("");
    expect(readdirSync(folder)).toEqual(["a"]);
  });

  it("says RLVR_WRITE_FAILED, with the path, where the parent is a file, missing, or the target a folder", () => {
    writeFileSync(join(folder, "file"), "kept");
    mkdirSync(join(folder, "taken"));
    writeFileSync(join(folder, "taken", "inside"), "kept");
    for (const name of ["file/below", "missing/below", "taken"]) {
      const path = join(folder, name);
      const error = thrownBy(() => writeFileAtomic(path, "new"));
      expect(error.code).toBe("RLVR_WRITE_FAILED");
      expect(error.message).toContain(`expected to write ${path}, got `);
      expect(error.next).toContain("unchanged");
      expect(error.cause).toBeInstanceOf(Error);
    }
    expect(readFileSync(join(folder, "file"), "utf8")).toBe("kept");
    expect(readFileSync(join(folder, "taken", "inside"), "utf8")).toBe("kept");
    expect(readdirSync(folder).sort()).toEqual(["file", "taken"]);
  });
});

describe("removeQuietly", () => {
  it("removes files and folders, and passes over what it cannot remove", () => {
    mkdirSync(join(folder, "a", "b"), { recursive: true });
    removeQuietly(join(folder, "a"));
    expect(existsSync(join(folder, "a"))).toBe(false);
    writeFileSync(join(folder, "file"), "");
    expect(() => removeQuietly(join(folder, "file", "below"))).not.toThrow();
    expect(existsSync(join(folder, "file"))).toBe(true);
  });
});

describe("scriptPath", () => {
  it("names the built script, beside a built module and for a source", () => {
    expect(scriptPath("file:///p/dist/engine/client.js", "worker")).toBe("/p/dist/engine/worker.js");
    expect(scriptPath("file:///p/src/engine/client.ts", "worker")).toBe("/p/dist/engine/worker.js");
    expect(scriptPath("file:///src/p/src/engine/client.ts", "worker")).toBe("/src/p/dist/engine/worker.js");
  });
});
