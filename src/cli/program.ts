import { Command, CommanderError } from "commander";
import { RlvrError } from "../base/errors.ts";
import { nearest } from "../config/nearest.ts";
import { packageVersion } from "../runs/manifest.ts";
import { reportError } from "./errors.ts";

type Build = { command(finish: (code: number) => void): Command };

/** Every command with its one line. Only the one that is called is loaded. */
const commands: Record<string, { summary: string; load(): Promise<Build> }> = {
  train: { summary: "train a model against a verifier", load: () => import("./train.ts") },
  sft: { summary: "train a model on demonstrations", load: () => import("./sft.ts") },
  distill: { summary: "train a model on what a teacher knows", load: () => import("./distill.ts") },
  eval: { summary: "evaluate a model or a run", load: () => import("./eval.ts") },
  report: { summary: "write report.html of a run", load: () => import("./report.ts") },
  help: { summary: "explain a command, or every config key: rlvr help config", load: () => import("./help.ts") },
};

export const commandNames = Object.keys(commands);

function rootCommand(): Command {
  return new Command("rlvr")
    .description("Reinforcement learning with verifiable rewards: train a language model against a checker.")
    .version(packageVersion(), "-v, --version")
    .helpCommand(false)
    .enablePositionalOptions()
    .addHelpText("after", "\nFlags of a command and config keys: rlvr <command> --help, rlvr help config\n");
}

/** A command ready to parse: errors are thrown and not printed, so that they are told in one way. */
export async function buildCommand(name: string, finish: (code: number) => void): Promise<Command> {
  const { command } = await commands[name].load();
  return command(finish);
}

/** The program with the called command loaded and the others by name only. */
async function buildProgram(called: string | undefined, finish: (code: number) => void): Promise<Command> {
  const program = rootCommand();
  for (const [name, { summary }] of Object.entries(commands)) {
    const command = name === called ? await buildCommand(name, finish) : new Command(name);
    command.summary(summary);
    program.addCommand(command);
  }
  for (const command of [program, ...program.commands]) {
    command
      .exitOverride()
      .showSuggestionAfterError(false)
      .configureOutput({ outputError: () => {} });
  }
  return program;
}

async function usageError(error: CommanderError, called: Command | undefined): Promise<RlvrError> {
  const problem = error.message.replace(/^error: /, "");
  const flag = /unknown option '([^']+)'/.exec(problem)?.[1];
  const name = /unknown command '([^']+)'/.exec(problem)?.[1];
  let suggestion = name && nearest(name, commandNames);
  if (flag && called) suggestion = (await import("./flags.ts")).nearestFlag(flag, called);
  const help = called ? `rlvr ${called.name()} --help` : "rlvr --help";
  return new RlvrError("RLVR_USAGE", `${problem}${suggestion ? `; did you mean ${suggestion}?` : ""}`, {
    next: `see ${help}`,
    cause: error,
  });
}

/** Runs a command line; gives the exit code: 0 done, 1 error, 2 usage, 130 interrupted. */
export async function runProgram(words: string[]): Promise<number> {
  const json = words.includes("--json");
  const called = words[0] !== undefined && words[0] in commands ? words[0] : undefined;
  let code = 0;
  const finish = (value: number) => {
    code = value;
  };
  let program: Command | undefined;
  try {
    program = await buildProgram(called, finish);
    if (words.length === 0) {
      program.outputHelp();
      return 0;
    }
    await program.parseAsync(words, { from: "user" });
    return code;
  } catch (error) {
    if (!(error instanceof CommanderError)) return reportError(error, json);
    if (error.exitCode === 0) return 0; // help or version was printed
    const command = program?.commands.find((candidate) => candidate.name() === called);
    return reportError(await usageError(error, command), json);
  }
}
