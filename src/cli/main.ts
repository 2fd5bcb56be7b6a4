#!/usr/bin/env node
import { runProgram } from "./program.ts";

// A reader that goes away (`rlvr train --json | head`) is no error of the run: it goes on without being heard.
process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  if (error.code !== "EPIPE") throw error;
});

// A command may wait for something that does not keep a process by itself, such as the end of a worker.
const waiting = setInterval(() => {}, 60_000);
const code = await runProgram(process.argv.slice(2));
clearInterval(waiting);
// Leave once everything is written: a worker that is still open must not keep the process.
process.stdout.write("", () => process.exit(code));
