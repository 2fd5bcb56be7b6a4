import { errorMessage, RlvrError } from "../base/errors.ts";
import { configFields, keysAt } from "./fields.ts";
import { nearest } from "./nearest.ts";
import { configSchema, type RlvrConfig, resolveObjective } from "./schema.ts";

/** One thing that is wrong with a config. */
export interface ConfigProblem {
  path: string;
  message: string;
}

const SPECIAL: Record<string, string> = {
  tasks: "a function (seed) => task set, or { train, validation, test } with a list of tasks each",
  verifier: "a function () => verifier",
  demonstrations: "a function (seed) => list of { prompt, completion }",
};

/** A value as a person would write it, short. */
export function show(value: unknown): string {
  if (value === undefined) return "nothing";
  if (typeof value === "function") return "a function";
  if (typeof value === "number" || typeof value === "bigint") return String(value);
  let text: string;
  try {
    text = JSON.stringify(value) ?? String(value);
  } catch (error) {
    text = `a value that cannot be printed (${errorMessage(error)})`;
  }
  return text.length > 60 ? `${text.slice(0, 57)}…` : text;
}

function at(value: unknown, path: readonly PropertyKey[]): unknown {
  return path.reduce<unknown>((inner, key) => (inner as Record<PropertyKey, unknown> | undefined)?.[key], value);
}

function unknownKey(parent: string, key: string): ConfigProblem {
  const path = parent ? `${parent}.${key}` : key;
  const siblings = keysAt(parent);
  const all = configFields().map((field) => field.path);
  const sameName = all.filter((candidate) => candidate.split(".").at(-1) === key);
  const suggestion = nearest(key, siblings) ?? sameName[0] ?? nearest(path, all);
  const fullSuggestion = suggestion && siblings.includes(suggestion) && parent ? `${parent}.${suggestion}` : suggestion;
  return {
    path,
    message: `${path}: expected a known key, got ${JSON.stringify(key)}${
      fullSuggestion ? `; did you mean ${fullSuggestion}?` : `; known here: ${siblings.join(", ")}`
    }`,
  };
}

/** Every problem of a config value, in the order of the schema; empty when it is good. */
export function configProblems(value: unknown): ConfigProblem[] {
  const result = configSchema.safeParse(value);
  if (result.success) return [];
  const problems: ConfigProblem[] = [];
  for (const issue of result.error.issues) {
    const path = issue.path.join(".");
    if (issue.code === "unrecognized_keys") {
      problems.push(...issue.keys.map((key) => unknownKey(path, key)));
      continue;
    }
    const got = show(at(value, issue.path));
    const field = configFields().find((candidate) => candidate.path === path);
    // Rules across keys carry their own text; everything else is said from the schema.
    const own = issue.code === "custom" && issue.message.startsWith("expected");
    const expected = own
      ? issue.message.slice("expected ".length)
      : (field?.expected ?? SPECIAL[path] ?? (keysAt(path).length > 0 ? "an object" : issue.message));
    problems.push({ path, message: `${path || "config"}: expected ${expected}, got ${got}` });
  }
  return problems;
}

/**
 * Checks a config and fills in the defaults. Throws `RLVR_CONFIG_INVALID` with every problem, one a line.
 *
 * @param where what the config came from, for the message
 */
export function parseConfig(value: unknown, where = "config"): RlvrConfig {
  const problems = configProblems(value);
  if (problems.length > 0) {
    const lines = problems.map((problem) => `  ${problem.message}`).join("\n");
    throw new RlvrError(
      "RLVR_CONFIG_INVALID",
      `${where}: expected a valid config, got ${count(problems.length)}:\n${lines}`,
      {
        next: "correct the keys named above; `rlvr help config` lists every key with its unit and default",
      },
    );
  }
  const parsed = configSchema.parse(value);
  return {
    ...parsed,
    evaluation: { ...parsed.evaluation, maxTokens: parsed.evaluation.maxTokens ?? parsed.rollouts.maxTokens },
    objective: resolveObjective(parsed.objective, parsed.rollouts.maxTokens),
  };
}

function count(problems: number): string {
  return problems === 1 ? "1 problem" : `${problems} problems`;
}
