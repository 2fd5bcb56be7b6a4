#!/usr/bin/env node
import { runProgram } from "./program.ts";

// A reader that goes away (`rlvr train --json | head`) is no error of the run: it goes on without being heard.
process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  if (error.code !== "EPIPE") throw error;
});

const code = await runProgram(process.argv.slice(2));
// Leave once everything is written: a worker that is still open must not keep the process.
process.stdout.write("", () => process.exit(code));
