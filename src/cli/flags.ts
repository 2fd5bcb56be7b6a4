/** Command line options made from the config schema, so that both never drift apart. */
import { type Command, Option } from "commander";
import { configFields, type Field } from "../config/fields.ts";
import { nearest } from "../config/nearest.ts";
import type { Overrides } from "../config/overrides.ts";

const titles: Record<string, string> = {
  "": "Run",
  rollouts: "Rollouts",
  objective: "Objective",
  updates: "Updates",
  optimizer: "Optimizer",
  engine: "Engine",
  checkpoints: "Checkpoints",
  evaluation: "Evaluation",
  alerts: "Alerts",
  sft: "Supervised training",
  distill: "Distillation",
};

/** Sections of keys that do nothing in a command. */
export type Section = keyof typeof titles;

/** The choices as one word; too many of them would push every description to the right. */
const choicesWord = (field: Field): string => (field.choices ?? []).join("|");
const isWide = (field: Field): boolean => choicesWord(field).length > 22;

function placeholder(field: Field): string {
  if (field.kind === "enum") return isWide(field) ? "choice" : choicesWord(field);
  return { number: "number", integer: "n", string: "text", boolean: "true|false", numbers: "name=x,..." }[field.kind];
}

function describe(field: Field): string {
  const said = isWide(field) ? `${choicesWord(field)}: ${field.description}` : field.description;
  return field.default === undefined ? said : `${said} [${defaultText(field)}]`;
}

function defaultText({ default: value }: Field): string {
  return typeof value === "object" && value !== null ? JSON.stringify(value) : String(value);
}

/** Short flags that stand for a longer key in one command, for example `--steps` for `sft.steps`. */
export type Aliases = Record<string, string>;

/**
 * Adds an option for each key of the schema, in groups, and the ones every command has.
 *
 * @param aliases short flags of this command; they hide a key of the same name
 * @param without sections that this command does not read
 */
export function addConfigOptions(command: Command, aliases: Aliases = {}, without: Section[] = []): Command {
  const fields = configFields();
  const visible = (field: Field) => !without.includes(section(field)) && !(field.path in aliases);
  for (const [flag, path] of Object.entries(aliases)) {
    const field = fields.find((candidate) => candidate.path === path) as Field;
    command.addOption(
      new Option(`--${flag} <${placeholder(field)}>`, `short for --${path}`).helpGroup(`${titles[""]}:`),
    );
  }
  for (const field of fields.filter(visible)) {
    const option = new Option(`--${field.path} <${placeholder(field)}>`, describe(field));
    command.addOption(option.helpGroup(`${titles[section(field)]}:`));
  }
  return command
    .option("--json", "print one JSON object a line on standard output, and nothing else there")
    .option("--print-config", "print the resolved config as JSON and stop");
}

function section(field: Field): Section {
  return field.path.includes(".") ? field.path.split(".")[0] : "";
}

/** The config keys among a command's parsed options, by dotted path. */
export function configFlags(options: Record<string, unknown>, aliases: Aliases = {}): Overrides {
  const flags: Overrides = {};
  for (const { path } of configFields()) {
    if (options[path] !== undefined && !(path in aliases)) flags[path] = options[path] as string;
  }
  for (const [flag, path] of Object.entries(aliases)) {
    if (options[flag] !== undefined) flags[path] = options[flag] as string;
  }
  return flags;
}

/** The flag that an unknown one was probably meant to be. */
export function nearestFlag(flag: string, command: Command): string | undefined {
  const word = flag.replace(/^-+/, "").split("=")[0];
  const known = command.options.map((option) => option.long?.slice(2) ?? "").filter(Boolean);
  const lastPart = (name: string) => name.split(".").at(-1) as string;
  const found =
    known.find((name) => name !== word && lastPart(name).toLowerCase() === word.toLowerCase()) ??
    nearest(word, known) ??
    known.find((name) => lastPart(name) === nearest(word, known.map(lastPart)));
  return found && `--${found}`;
}

/** The help topic `config`: every key with its type, default and variable. */
export function configHelp(): string {
  const lines = [
    "Keys of rlvr.config.ts. Each is also a flag (--optimizer.learningRate 1e-4) and a variable",
    "(RLVR_OPTIMIZER_LEARNING_RATE). Defaults < file < variables < flags.",
    "",
    "model, tasks, verifier are required; tasks, verifier and demonstrations are functions, set in the file only.",
  ];
  let last: Section | undefined;
  for (const field of configFields()) {
    if (section(field) !== last) {
      last = section(field);
      lines.push("", `${titles[last]}:`);
    }
    const value = field.default === undefined ? "" : ` [${defaultText(field)}]`;
    lines.push(`  ${field.path}${value}`, `      ${field.description}`, `      ${field.expected}; ${field.variable}`);
  }
  return `${lines.join("\n")}\n`;
}
