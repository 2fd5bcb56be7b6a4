import { existsSync, statSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { createJiti } from "jiti";
import { errorMessage, RlvrError } from "../base/errors.ts";
import { configFields } from "./fields.ts";
import { applyOverrides, environmentOverrides, fieldAt, type Overrides, typedValue } from "./overrides.ts";
import { parseConfig, show } from "./parse.ts";
import type { RlvrConfig } from "./schema.ts";

/** Names looked for in a folder, the first one found wins. */
export const configNames = ["rlvr.config.ts", "rlvr.config.mts", "rlvr.config.js", "rlvr.config.mjs"];

/** Keys that hold paths: from the file relative to the file, from flags and variables to the current directory. */
const pathKeys = ["model", "sft.out", "distill.teacher", "distill.out"];

export interface LoadOptions {
  /** By dotted path; texts are turned into the key's type. They win over everything. */
  flags?: Overrides;
  /** Where `RLVR_*` variables are read; they win over the file. `process.env` when absent. */
  environment?: Record<string, string | undefined>;
  /**
   * Plain values of an earlier `describeConfig` by dotted path. They replace all of the file's and of the environment's
   * plain values, so that a resumed run keeps its settings when the file has changed.
   */
  recorded?: Record<string, unknown>;
  /** Modules handed to the config's imports as they are, by name: `{ rlvr }` shares the running copy with it. */
  modules?: Record<string, unknown>;
}

export interface LoadedConfig {
  config: RlvrConfig;
  /** Absolute path of the file. */
  configPath: string;
}

/** The config file at a path, or in a folder. Throws `RLVR_CONFIG_MISSING`. */
export function findConfig(pathOrFolder: string): string {
  const path = resolve(pathOrFolder);
  const names = configNames.join(", ");
  if (!existsSync(path)) {
    throw new RlvrError(
      "RLVR_CONFIG_MISSING",
      `config: expected a config file or its folder, got ${path}, which does not exist`,
      {
        next: `give the folder that holds one of ${names}`,
      },
    );
  }
  if (!statSync(path).isDirectory()) return path;
  const found = configNames.map((name) => join(path, name)).find((candidate) => existsSync(candidate));
  if (found) return found;
  throw new RlvrError("RLVR_CONFIG_MISSING", `config: expected one of ${names}, got none of them in ${path}`, {
    next: "give another folder, or write the config there",
  });
}

async function importConfig(path: string, modules: Record<string, unknown>): Promise<Record<string, unknown>> {
  let loaded: unknown;
  try {
    const jiti = createJiti(path, { interopDefault: false, virtualModules: modules });
    loaded = ((await jiti.import(path)) as { default?: unknown }).default;
  } catch (cause) {
    // All of it is told: a mistyped import inside the file must not look like a missing file.
    throw new RlvrError("RLVR_CONFIG_LOAD", `config: expected ${path} to load, got ${errorMessage(cause)}`, {
      next: "correct the file; its own error is the cause above",
      cause,
    });
  }
  if (typeof loaded !== "object" || loaded === null || Array.isArray(loaded)) {
    throw new RlvrError(
      "RLVR_CONFIG_LOAD",
      `config: expected ${path} to export a config as default, got ${show(loaded)}`,
      {
        next: "write `export default defineConfig({ … })`",
      },
    );
  }
  return loaded as Record<string, unknown>;
}

function textAt(value: Record<string, unknown>, path: string): string | undefined {
  const inner = path
    .split(".")
    .reduce<unknown>((node, key) => (node as Record<string, unknown> | undefined)?.[key], value);
  return typeof inner === "string" && inner !== "" ? inner : undefined;
}

/** The paths among flat values, made absolute. */
function absolutePaths(values: Overrides, base: string): Overrides {
  const paths = pathKeys.filter((key) => values[key] !== undefined && values[key] !== "");
  return Object.fromEntries(paths.map((key) => [key, resolve(base, String(values[key]))]));
}

/** Removes every plain value, so that only functions and objects made by the file are left. */
function withoutPlainValues(value: Record<string, unknown>): Record<string, unknown> {
  const sections = new Set(configFields().map((field) => field.path.split(".")[0]));
  return Object.fromEntries(Object.entries(value).filter(([key]) => !sections.has(key)));
}

/**
 * Loads, overrides and checks a config: defaults < file < `RLVR_*` variables < flags. A variable's name is the dotted key
 * in capitals with underscores: `RLVR_OPTIMIZER_LEARNING_RATE` for `optimizer.learningRate`.
 *
 * Throws `RLVR_CONFIG_MISSING`, `RLVR_CONFIG_LOAD`, `RLVR_CONFIG_INVALID`, and `RLVR_USAGE` for a bad flag or variable.
 *
 * @param pathOrFolder a config file, or a folder with one of `configNames`
 */
export async function loadConfig(pathOrFolder: string, options: LoadOptions = {}): Promise<LoadedConfig> {
  const flags: Overrides = {};
  for (const [path, value] of Object.entries(options.flags ?? {})) {
    const name = `--${path}`;
    flags[path] = typedValue(fieldAt(path, name), value, name);
  }
  const environment = options.recorded ? {} : environmentOverrides(options.environment ?? process.env);
  const configPath = findConfig(pathOrFolder);
  let value = await importConfig(configPath, options.modules ?? {});
  const paths = Object.fromEntries(pathKeys.map((key) => [key, textAt(value, key) ?? ""]));
  value = applyOverrides(value, absolutePaths(paths, dirname(configPath)));
  if (options.recorded) value = applyOverrides(withoutPlainValues(value), options.recorded as Overrides);
  const overrides = { ...environment, ...flags };
  value = applyOverrides(value, { ...overrides, ...absolutePaths(overrides, process.cwd()) });
  return { config: parseConfig(value, configPath), configPath };
}
