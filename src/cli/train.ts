import { join } from "node:path";
import { Command } from "commander";
import { commandConfig, printConfig, resumedConfig } from "./config.ts";
import { addConfigOptions, configFlags } from "./flags.ts";
import { duration } from "./format.ts";
import { loops } from "./loops.ts";
import { withReport } from "./report.ts";
import { withSession } from "./session.ts";

/** `rlvr train`: reinforcement learning against the config's verifier, evaluated before and after. */
export function command(finish: (code: number) => void): Command {
  const train = new Command("train")
    .description("Train the config's model against its verifier, and evaluate it before and after on untouched tasks.")
    .argument("[config]", "config file, or the folder of rlvr.config.ts; the current one when absent")
    .option("--resume <dir>", "continue the run in this folder, with the settings it was started with");
  addConfigOptions(train, {}, ["sft", "distill"]);
  return train.action(async (path: string | undefined, options: Record<string, string>) => {
    const flags = configFlags(options);
    const { resume } = options;
    const loaded = resume ? await resumedConfig("train", resume, path, flags) : await commandConfig(path, flags);
    if (options.printConfig) return printConfig(loaded);
    const code = await withSession(Boolean(options.json), async (session) => {
      const { signal, onEvent, last, progress } = session;
      const trainRlvr = await loops.trainRlvr();
      const result = await withReport(
        session,
        trainRlvr(loaded.config, { configPath: loaded.configPath, resume, signal, onEvent }),
      );
      const { run, steps, seconds, evaluation } = result;
      if (result.interrupted) {
        last({ event: "interrupted", run, step: steps });
        progress?.print(`interrupted after step ${steps}, saved in ${run}`);
        progress?.print(`next: rlvr train --resume ${run}`);
        return 130;
      }
      const { before, after } = evaluation;
      last({ event: "done", run, steps, seconds, evaluation: { before: brief(before), after: brief(after) } });
      progress?.summary(evaluation, [
        `${steps} steps in ${duration(seconds)}, written to ${run}`,
        `next: open ${join(run, "report.html")}, or evaluate on more tasks: rlvr eval ${run} --evaluation.tasks 512`,
      ]);
      return 0;
    });
    finish(code);
  });
}

/** The keys of an evaluation that the `done` line promises. */
export function brief<E extends { passAt1: unknown; tasks: number; samplesPerTask: number } | null>(evaluation: E): E {
  if (!evaluation) return evaluation;
  const { passAt1, tasks, samplesPerTask } = evaluation;
  return { passAt1, tasks, samplesPerTask } as E;
}
