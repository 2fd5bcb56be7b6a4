/** Objectives by name: a preset, its constants changed where asked, and the one composition of `compose.ts`. */
import { RlvrError } from "../base/errors.ts";
import { composeObjective } from "./compose.ts";
import type { Objective } from "./objective.ts";
import { type ObjectiveName, type ObjectiveOptions, PRESETS } from "./presets.ts";

const CHOICES = {
  ratio: ["token", "sequence", "sequence-token"],
  surrogate: ["clipped", "capped", "weighted", "plain"],
  correction: ["none", "truncate", "mask"],
  correctionLevel: ["token", "sequence"],
  aggregation: ["sequence-mean", "token-mean", "prompt-mean", "constant-length"],
  klEstimator: ["k1", "k2", "k3", "k1+", "k3+"],
  klRatio: [false, true],
} as const satisfies { [K in keyof ObjectiveOptions]?: readonly ObjectiveOptions[K][] };

const RANGES: Partial<Record<keyof ObjectiveOptions, [inRange: (value: number) => boolean, text: string]>> = {
  clipLow: [(x) => x >= 0 && x <= 1, "a number from 0 to 1"],
  clipHigh: [(x) => x >= 0, "a number from 0"],
  dualClip: [(x) => x > 1, "a number above 1, or null"],
  ratioCap: [(x) => x > 0, "a number above 0"],
  ratioFloor: [(x) => x >= 0, "a number from 0"],
  correctionCap: [(x) => x > 0, "a number above 0"],
  correctionFloor: [(x) => x >= 0, "a number from 0, or null"],
  constantLength: [(x) => x > 0 && x < Number.POSITIVE_INFINITY, "a number above 0"],
  klCoefficient: [(x) => x >= 0 && x < Number.POSITIVE_INFINITY, "a number from 0"],
  entropyCoefficient: [Number.isFinite, "a finite number"],
};

/**
 * All constants of the objective `name`, with `options` in place of the preset's. Other keys are left out, so that a
 * config's section can be given as it is. Throws `RLVR_OBJECTIVE` for a name or a value that there is not.
 */
export function objectiveOptions(name: ObjectiveName, options: Partial<ObjectiveOptions> = {}): ObjectiveOptions {
  const fail = (what: string, expected: string, got: unknown) =>
    new RlvrError("RLVR_OBJECTIVE", `${what}: expected ${expected}, got ${JSON.stringify(got) ?? String(got)}`);
  const preset = Object.hasOwn(PRESETS, name) ? PRESETS[name] : undefined;
  if (preset === undefined) throw fail("objective", `one of ${Object.keys(PRESETS).join(", ")}`, name);
  const given = Object.fromEntries(
    Object.entries(options).filter(([key, value]) => Object.hasOwn(preset, key) && value !== undefined),
  );
  const result: ObjectiveOptions = { ...preset, ...given };
  for (const [key, value] of Object.entries(result)) {
    const choices: readonly unknown[] | undefined = CHOICES[key as keyof typeof CHOICES];
    if (choices && !choices.includes(value)) throw fail(`${name}: ${key}`, `one of ${choices.join(", ")}`, value);
    const range = RANGES[key as keyof ObjectiveOptions];
    if (range === undefined || (value === null && preset[key as keyof ObjectiveOptions] === null)) continue;
    if (typeof value !== "number" || !range[0](value)) throw fail(`${name}: ${key}`, range[1], value);
  }
  if (result.ratioFloor > result.ratioCap)
    throw fail(`${name}: ratioFloor`, `at most ${result.ratioCap}`, result.ratioFloor);
  return result;
}

/**
 * The objective called `name`, with its constants.
 *
 * @example
 * const objective = createObjective("grpo", { clipHigh: 0.28 });
 * const { loss, gradient } = objective({ logprobs, rolloutLogprobs, advantages, mask, offsets });
 */
export function createObjective(name: ObjectiveName, options: Partial<ObjectiveOptions> = {}): Objective {
  return composeObjective(name, objectiveOptions(name, options));
}
