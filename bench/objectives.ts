/**
 * Cost of each objective, loss and gradient, for 16384 tokens in 128 sequences: milliseconds a call, to be compared with
 * the seconds of a training step. `all on` has every optional part switched on.
 *
 * Run alone: `node --import jiti/register bench/objectives.ts`.
 */
import { pathToFileURL } from "node:url";
import { RandomStream } from "../src/base/random.ts";
import type { ObjectiveBatch } from "../src/learning/objective.ts";
import { createObjective } from "../src/learning/objectives.ts";
import { type ObjectiveName, type ObjectiveOptions, PRESETS } from "../src/learning/presets.ts";
import { median, row } from "./print.ts";

const SEQUENCES = 128;
const LENGTH = 128;
const ROUNDS = 41;
const ALL_ON: Partial<ObjectiveOptions> = {
  dualClip: 3,
  correction: "mask",
  correctionLevel: "sequence",
  aggregation: "prompt-mean",
  klCoefficient: 0.04,
  entropyCoefficient: 0.01,
};

function batch(): ObjectiveBatch {
  const random = new RandomStream(1, "bench", "objectives");
  const draw = (f: (t: number) => number) => Float32Array.from({ length: SEQUENCES * LENGTH }, (_, t) => f(t));
  const logprobs = draw(() => -3 * random.uniform());
  return {
    logprobs,
    rolloutLogprobs: draw((t) => logprobs[t] + 0.1 * random.normal()),
    oldLogprobs: draw((t) => logprobs[t] + 0.1 * random.normal()),
    referenceLogprobs: draw((t) => logprobs[t] + 0.1 * random.normal()),
    advantages: draw(() => random.normal()),
    entropies: draw(() => random.uniform()),
    mask: draw(() => 1),
    offsets: Array.from({ length: SEQUENCES + 1 }, (_, s) => s * LENGTH),
    groups: Array.from({ length: SEQUENCES }, (_, s) => s >> 3),
  };
}

/** Prints and returns the median milliseconds of one call, by objective. */
export function benchObjectives(): Record<string, number> {
  const input = batch();
  const measured: Record<string, number> = {};
  const variants = Object.keys(PRESETS).map((name): [string, ObjectiveName, Partial<ObjectiveOptions>] => [
    name,
    name as ObjectiveName,
    {},
  ]);
  variants.push(["grpo, all on", "grpo", ALL_ON], ["gspo, all on", "gspo", ALL_ON]);
  for (const [label, name, options] of variants) {
    const objective = createObjective(name, options);
    const times: number[] = [];
    // The first rounds warm up V8.
    for (let round = -20; round < ROUNDS; round++) {
      const start = performance.now();
      objective(input);
      if (round >= 0) times.push(performance.now() - start);
    }
    measured[label] = median(times);
    row(`objective ${label}, ${SEQUENCES * LENGTH} tokens`, `${measured[label].toFixed(2)} ms`);
  }
  return measured;
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) benchObjectives();
