import { Command } from "commander";
import { RlvrError } from "../base/errors.ts";
import { isRunFolder, readRun } from "../runs/read.ts";
import { commandConfig, printConfig, recordedConfig } from "./config.ts";
import { addConfigOptions, configFlags } from "./flags.ts";
import { duration, interval, typed } from "./format.ts";
import { loops } from "./loops.ts";
import { withSession } from "./session.ts";
import { brief } from "./train.ts";

/** The model folder of a run: its newest checkpoint. */
function newestModel(run: string): string {
  const newest = readRun(run).checkpoints().at(-1);
  if (newest) return newest.path;
  throw new RlvrError("RLVR_RUN_EMPTY", `eval: expected a checkpoint in ${run}, got none`, {
    next: `continue the run with rlvr train --resume ${run}, or give a model folder`,
  });
}

/** `rlvr eval`: pass@1 of one model on a split. */
export function command(finish: (code: number) => void): Command {
  const evaluate = new Command("eval")
    .description(
      "Evaluate a model, or the newest checkpoint of a run, on tasks of a split (the test split by default).",
    )
    .argument("<model-or-run>", "Hugging Face model folder, or the folder of a run")
    .option("--config <path>", "config file or its folder; a run's own config, or the current folder's, when absent");
  addConfigOptions(evaluate, {}, [
    "rollouts",
    "objective",
    "updates",
    "optimizer",
    "alerts",
    "checkpoints",
    "sft",
    "distill",
  ]);
  return evaluate.action(async (target: string, options: Record<string, string>) => {
    const flags = configFlags(options);
    const isRun = isRunFolder(target);
    const loaded =
      isRun && !options.config
        ? await recordedConfig(target, undefined, flags)
        : await commandConfig(options.config, flags);
    if (options.printConfig) return printConfig(loaded);
    const model = isRun ? newestModel(target) : target;
    const code = await withSession(Boolean(options.json), async ({ signal, onEvent, last, progress }) => {
      const started = performance.now();
      const evaluateModel = await loops.evaluateModel();
      const evaluation = await evaluateModel(loaded.config, { model, signal, onEvent });
      if (signal.aborted) return 130;
      const seconds = (performance.now() - started) / 1000;
      last({ event: "done", model, seconds, evaluation: brief(evaluation) });
      const { tasks, samplesPerTask, passAt1 } = evaluation;
      progress?.print(`pass@1  ${interval(passAt1)}  ${model}`);
      progress?.print(`        ${tasks} tasks x ${samplesPerTask} samples, 95 % interval, ${duration(seconds)}`);
      progress?.print(`next: rlvr train ${typed(loaded.configPath)}`);
      return 0;
    });
    finish(code);
  });
}
