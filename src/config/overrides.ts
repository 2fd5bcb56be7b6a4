import { RlvrError } from "../base/errors.ts";
import { configFields, type Field } from "./fields.ts";
import { nearest } from "./nearest.ts";
import { show } from "./parse.ts";

/** A value that can be written as text: in a flag, a variable, or the record of a run. */
export type PlainSetting = string | number | boolean | Record<string, number>;

/** Values by dotted path, as flags and environment variables give them. */
export type Overrides = Record<string, PlainSetting>;

/** `RLVR_*` variables that are not config keys. */
export const reservedVariables = ["RLVR_DEBUG"];

const usage = (code: string, message: string, next: string): RlvrError => new RlvrError(code, message, { next });

/**
 * A text turned into the type its key has. Range checks are left to the schema, so that all of them are told together.
 * Throws `RLVR_USAGE`.
 *
 * @param name the flag or variable, for the message
 */
export function typedValue(field: Field, value: PlainSetting, name: string): PlainSetting {
  const refuse = () =>
    usage("RLVR_USAGE", `${name}: expected ${field.expected}, got ${show(value)}`, `${name}: ${field.description}`);
  if (field.kind === "numbers") {
    const numbers = typeof value === "object" ? value : numbersOf(String(value));
    if (numbers === undefined) throw refuse();
    return numbers;
  }
  const text = String(value).trim();
  if (field.kind === "boolean") {
    if (text === "true" || text === "1") return true;
    if (text === "false" || text === "0") return false;
    throw refuse();
  }
  if (field.kind === "enum") {
    const choice = field.choices?.find((candidate) => String(candidate) === text);
    if (choice === undefined) throw refuse();
    return choice;
  }
  if (field.kind === "string") return String(value);
  const number = text === "" ? Number.NaN : Number(text);
  if (!Number.isFinite(number)) throw refuse();
  return number;
}

/** `first=0.7,second=0.3` as an object; undefined where it is something else. */
function numbersOf(text: string): Record<string, number> | undefined {
  const entries = text.split(",").map((part): [string, number] => {
    const at = part.lastIndexOf("=");
    const number = part.slice(at + 1).trim();
    return [part.slice(0, Math.max(0, at)).trim(), number === "" ? Number.NaN : Number(number)];
  });
  return entries.every(([name, number]) => name !== "" && Number.isFinite(number))
    ? Object.fromEntries(entries)
    : undefined;
}

/** Finds the key that a flag names; throws `RLVR_USAGE` with the nearest one. */
export function fieldAt(path: string, name: string): Field {
  const fields = configFields();
  const field = fields.find((candidate) => candidate.path === path);
  if (field) return field;
  const paths = fields.map((candidate) => candidate.path);
  const suggestion = nearest(path, paths) ?? paths.find((candidate) => candidate.endsWith(`.${path}`));
  throw usage(
    "RLVR_USAGE",
    `${name}: expected a known config key, got ${JSON.stringify(path)}${suggestion ? `; did you mean ${suggestion}?` : ""}`,
    "`rlvr help config` lists every key",
  );
}

/** The `RLVR_*` variables of an environment by dotted path, typed. An unknown one is an error, like an unknown key. */
export function environmentOverrides(environment: Record<string, string | undefined>): Overrides {
  const fields = configFields();
  const overrides: Overrides = {};
  for (const [variable, value] of Object.entries(environment)) {
    if (!variable.startsWith("RLVR_") || reservedVariables.includes(variable) || value === undefined) continue;
    const field = fields.find((candidate) => candidate.variable === variable);
    if (!field) {
      const suggestion = nearest(
        variable,
        fields.map((candidate) => candidate.variable),
      );
      throw usage(
        "RLVR_USAGE",
        `environment: expected RLVR_ and a known config key, got ${variable}${suggestion ? `; did you mean ${suggestion}?` : ""}`,
        "unset it, or see `rlvr help config` for every variable",
      );
    }
    overrides[field.path] = typedValue(field, value, variable);
  }
  return overrides;
}

/** A copy of a config value with the overrides set; objects on the way are copied, or made where absent. */
export function applyOverrides(value: Record<string, unknown>, overrides: Overrides): Record<string, unknown> {
  return Object.entries(overrides).reduce(
    (result, [path, override]) => setAt(result, path.split("."), override),
    value,
  );
}

function setAt(value: Record<string, unknown>, [key, ...rest]: string[], override: unknown): Record<string, unknown> {
  if (rest.length === 0) return { ...value, [key]: override };
  const inner = value[key] ?? {};
  // Something that is not an object stays: the schema says what is wrong with it.
  if (typeof inner !== "object") return value;
  return { ...value, [key]: setAt(inner as Record<string, unknown>, rest, override) };
}
