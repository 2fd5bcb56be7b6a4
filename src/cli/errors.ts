import pc from "picocolors";
import { errorMessage } from "../base/errors.ts";
import type { ErrorEvent } from "../runs/events.ts";
import { useColor } from "./format.ts";

/** What went wrong, from anything that was thrown. A copy of this package in a config throws its own error class. */
export function errorEvent(error: unknown): ErrorEvent {
  const { code, next } = error as { code?: unknown; next?: unknown };
  return {
    event: "error",
    code: typeof code === "string" ? code : "RLVR_UNEXPECTED",
    message: errorMessage(error),
    ...(typeof next === "string" && { next }),
  };
}

/** Prints an error on standard error, and as a JSON line on standard output with `--json`. Gives the exit code. */
export function reportError(error: unknown, json: boolean): number {
  const event = errorEvent(error);
  const known = event.code.startsWith("RLVR_") && event.code !== "RLVR_UNEXPECTED";
  process.stderr.write(`${pc.createColors(useColor(process.stderr)).red("error")} ${event.code}\n${event.message}\n`);
  if (event.next) process.stderr.write(`next: ${event.next}\n`);
  // The place in the code helps only where the error is not one that was foreseen.
  if ((!known || process.env.RLVR_DEBUG) && error instanceof Error) process.stderr.write(`${error.stack}\n`);
  if (json) process.stdout.write(`${JSON.stringify(event)}\n`);
  return event.code === "RLVR_USAGE" ? 2 : 1;
}
