import type { RunEvent } from "../runs/events.ts";
import { Progress, processScreen } from "./progress.ts";

/** What a command works with while a loop runs. */
export interface Session {
  /** Aborts on the first Ctrl-C. */
  signal: AbortSignal;
  /** For the loop. Its last event is printed by the command instead, after everything else is done. */
  onEvent(event: RunEvent): void;
  /** Prints an event as the last JSON line; nothing without `--json`. */
  last(event: RunEvent): void;
  /** Null with `--json`. */
  progress: Progress | null;
  /** The run folder, once the loop has told it. */
  run(): string | undefined;
}

const printJson = (event: RunEvent) => process.stdout.write(`${JSON.stringify(event)}\n`);

/** Runs a command's work with its progress and with Ctrl-C: once ends it in order, twice at once. */
export async function withSession<T>(json: boolean, work: (session: Session) => Promise<T>): Promise<T> {
  const controller = new AbortController();
  const progress = json ? null : new Progress(processScreen());
  let run: string | undefined;
  const interrupt = () => {
    if (controller.signal.aborted) {
      // By the signal itself: an orderly exit would tear down the engine in the middle of its work, and abort.
      process.removeAllListeners("SIGINT");
      process.kill(process.pid, "SIGINT");
      return;
    }
    controller.abort();
    progress?.clear();
    process.stderr.write("stopping after what is under way, with the state saved; again to stop at once\n");
  };
  process.on("SIGINT", interrupt);
  process.on("SIGTERM", interrupt);
  try {
    return await work({
      signal: controller.signal,
      onEvent: (event) => {
        if (event.event === "done" || event.event === "interrupted") return;
        if (event.event === "start") run = event.run;
        if (progress) progress.handle(event);
        else printJson(event);
      },
      last: (event) => {
        if (json) printJson(event);
      },
      progress,
      run: () => run,
    });
  } finally {
    progress?.clear();
    process.off("SIGINT", interrupt);
    process.off("SIGTERM", interrupt);
  }
}
