import { join } from "node:path";
import { Command } from "commander";
import { commandConfig, printConfig, resumedConfig } from "./config.ts";
import { type Aliases, addConfigOptions, configFlags } from "./flags.ts";
import { duration, typed } from "./format.ts";
import { loops } from "./loops.ts";
import { withReport } from "./report.ts";
import { withSession } from "./session.ts";
import { brief } from "./train.ts";

const aliases: Aliases = {
  steps: "distill.steps",
  method: "distill.method",
  teacher: "distill.teacher",
  out: "distill.out",
};

/** `rlvr distill`: learning from a teacher or a data mix, evaluated before and after. */
export function command(finish: (code: number) => void): Command {
  const distill = new Command("distill")
    .description(
      "Train the config's model, the student: on a teacher's answers (responses), on a teacher's probabilities of the " +
        "student's own answers (on-policy), or on a mix of the config's demonstrations (continue).",
    )
    .argument("[config]", "config file, or the folder of rlvr.config.ts; the current one when absent")
    .option("--resume <dir>", "continue the run in this folder, with the settings it was started with");
  addConfigOptions(distill, aliases, ["objective", "rewards", "curriculum", "reference", "optimizer"]);
  return distill.action(async (path: string | undefined, options: Record<string, string>) => {
    const flags = configFlags(options, aliases);
    const { resume } = options;
    const loaded = resume ? await resumedConfig("distill", resume, path, flags) : await commandConfig(path, flags);
    if (options.printConfig) return printConfig(loaded);
    const code = await withSession(Boolean(options.json), async (session) => {
      const { signal, onEvent, last, progress } = session;
      const trainDistill = await loops.trainDistill();
      const result = await withReport(
        session,
        trainDistill(loaded.config, { configPath: loaded.configPath, resume, signal, onEvent }),
      );
      const { run, steps, seconds, evaluation, model } = result;
      if (result.interrupted) {
        last({ event: "interrupted", run, step: steps });
        progress?.print(`interrupted after step ${steps}, saved in ${run}`);
        progress?.print(`next: rlvr distill --resume ${run}`);
        return 130;
      }
      const { before, after } = evaluation;
      last({ event: "done", run, steps, seconds, model, evaluation: { before: brief(before), after: brief(after) } });
      progress?.summary(evaluation, [
        `${steps} steps in ${duration(seconds)}, model written to ${typed(model)}; costs: ${join(run, "costs.json")}`,
        `next: open ${join(run, "report.html")}, or go on with reinforcement: rlvr train ${typed(loaded.configPath)} --model ${typed(model)}`,
      ]);
      return 0;
    });
    finish(code);
  });
}
