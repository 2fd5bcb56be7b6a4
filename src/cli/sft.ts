import { Command } from "commander";
import { commandConfig, printConfig, resumedConfig } from "./config.ts";
import { type Aliases, addConfigOptions, configFlags } from "./flags.ts";
import { duration, typed } from "./format.ts";
import { loops } from "./loops.ts";
import { withReport } from "./report.ts";
import { withSession } from "./session.ts";

const aliases: Aliases = { steps: "sft.steps", out: "sft.out" };

/** `rlvr sft`: supervised training on the config's demonstrations. */
export function command(finish: (code: number) => void): Command {
  const sft = new Command("sft")
    .description("Train a model on the config's demonstrations: the config's own model, or random weights of sft.from.")
    .argument("[config]", "config file, or the folder of rlvr.config.ts; the current one when absent")
    .option("--resume <dir>", "continue the run in this folder, with the settings it was started with");
  addConfigOptions(sft, aliases, [
    "rollouts",
    "objective",
    "updates",
    "optimizer",
    "alerts",
    "rewards",
    "curriculum",
    "reference",
    "distill",
  ]);
  return sft.action(async (path: string | undefined, options: Record<string, string>) => {
    const flags = configFlags(options, aliases);
    const { resume } = options;
    const loaded = resume ? await resumedConfig("sft", resume, path, flags) : await commandConfig(path, flags);
    if (options.printConfig) return printConfig(loaded);
    const code = await withSession(Boolean(options.json), async (session) => {
      const { signal, onEvent, last, progress } = session;
      const trainSft = await loops.trainSft();
      const result = await withReport(
        session,
        trainSft(loaded.config, { configPath: loaded.configPath, resume, signal, onEvent }),
      );
      const { run, steps, seconds, model } = result;
      if (result.interrupted) {
        last({ event: "interrupted", run, step: steps });
        progress?.print(`interrupted after step ${steps}, saved in ${run}`);
        progress?.print(`next: rlvr sft --resume ${run}`);
        return 130;
      }
      last({ event: "done", run, steps, seconds, model });
      progress?.print(`${steps} steps in ${duration(seconds)}, model written to ${typed(model)}`);
      progress?.print(`next: rlvr eval ${typed(model)} --config ${typed(loaded.configPath)}`);
      return 0;
    });
    finish(code);
  });
}
