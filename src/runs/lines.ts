import { existsSync, readFileSync } from "node:fs";
import { RlvrError } from "../base/errors.ts";

/** A record as one line of JSON. Numbers that are not finite become null. */
export function toLine(record: unknown): string {
  return `${JSON.stringify(record)}\n`;
}

/**
 * The records of a JSON-lines text. A last line without its end was cut off by a crash and is left out; anything else
 * that does not parse throws `RLVR_RUN_DAMAGED`.
 */
export function parseLines<T>(text: string, where: string): T[] {
  const lines = text.split("\n");
  lines.pop(); // empty after a complete last line, partial otherwise
  return lines.map((line, index) => {
    try {
      return JSON.parse(line) as T;
    } catch (cause) {
      throw new RlvrError(
        "RLVR_RUN_DAMAGED",
        `${where}:${index + 1}: expected a JSON object, got ${line.slice(0, 60)}`,
        {
          next: "restore the file from a copy, or remove that line",
          cause,
        },
      );
    }
  });
}

/** The records of a JSON-lines file; none when it does not exist. */
export function readLines<T>(path: string): T[] {
  return existsSync(path) ? parseLines<T>(readFileSync(path, "utf8"), path) : [];
}
