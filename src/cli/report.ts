import { join } from "node:path";
import { Command } from "commander";
import { errorMessage } from "../base/errors.ts";
import { writeFileAtomic } from "../base/files.ts";
import { renderReport } from "../report/html.ts";

/** `rlvr report`: writes a run's report again, for example after a crash. */
export function command(finish: (code: number) => void): Command {
  return new Command("report")
    .description("Write report.html of a run.")
    .argument("<run>", "the folder of a run")
    .option("--json", "print one JSON object a line on standard output, and nothing else there")
    .action((run: string, options: { json?: boolean }) => {
      const path = join(run, "report.html");
      writeFileAtomic(path, renderReport(run));
      const line = options.json
        ? JSON.stringify({ event: "report", run, path })
        : `${path}\nnext: open it in a browser`;
      process.stdout.write(`${line}\n`);
      finish(0);
    });
}

/** Waits for a loop, and writes the report of its run also where it ends with an error. */
export async function withReport<T>(session: { run(): string | undefined }, loop: Promise<T>): Promise<T> {
  try {
    return await loop;
  } finally {
    const run = session.run();
    if (run) saveReport(run);
  }
}

/** Writes the report at the end of a run. What was trained counts more: a failure is told and not thrown. */
function saveReport(run: string): void {
  try {
    writeFileAtomic(join(run, "report.html"), renderReport(run));
  } catch (error) {
    process.stderr.write(`report: expected to write it in ${run}, got ${errorMessage(error)}\n`);
  }
}
