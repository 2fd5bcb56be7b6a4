import { RlvrError } from "../base/errors.ts";
import { describeConfig, plainValues } from "../config/describe.ts";
import { type LoadedConfig, loadConfig } from "../config/load.ts";
import type { Overrides } from "../config/overrides.ts";
import { readRun } from "../runs/read.ts";

/** Loads a config with `import … from "rlvr"` inside it bound to this running copy. */
async function load(path: string, options: { flags: Overrides; recorded?: Overrides }): Promise<LoadedConfig> {
  const rlvr = await import("../index.ts");
  return loadConfig(path, { ...options, modules: { rlvr, "rlvr/config": rlvr } });
}

/** The config at a path, or in the current directory when there is no path. */
export function commandConfig(path: string | undefined, flags: Overrides): Promise<LoadedConfig> {
  return load(path ?? ".", { flags });
}

/**
 * The config of an earlier run: its recorded values, and the functions of its config file.
 *
 * @param path the config file, where it is not where it was
 */
export function recordedConfig(run: string, path: string | undefined, flags: Overrides): Promise<LoadedConfig> {
  const record = readRun(run);
  return load(path ?? record.configPath, { flags, recorded: plainValues(record.config) });
}

/**
 * The config of a run to continue. Only keys that leave the steps done so far as they were may be given.
 *
 * @param kind the command that continues it, which must be the one that started it
 */
export async function resumedConfig(
  kind: "train" | "sft" | "distill",
  run: string,
  path: string | undefined,
  flags: Overrides,
): Promise<LoadedConfig> {
  const made = readRun(run).manifest.kind;
  if (made !== undefined && made !== kind) {
    throw new RlvrError("RLVR_USAGE", `--resume: expected a run of rlvr ${kind}, got one of rlvr ${made}`, {
      next: `rlvr ${made} --resume ${run}`,
    });
  }
  const allowed = ["steps", "sft.steps", "distill.steps"];
  const refused = Object.keys(flags).filter((flag) => !allowed.includes(flag));
  if (refused.length > 0) {
    const got = refused.map((flag) => `--${flag}`).join(", ");
    throw new RlvrError("RLVR_USAGE", `--resume: expected no other setting than --steps, got ${got}`, {
      next: "a run continues with the settings it was started with; start a new run to change them",
    });
  }
  return recordedConfig(run, path, flags);
}

/** For `--print-config`. */
export function printConfig({ config }: LoadedConfig): void {
  process.stdout.write(`${JSON.stringify(describeConfig(config), null, 2)}\n`);
}
