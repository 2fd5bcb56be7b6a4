import type { RandomStream, Split } from "rlvr";
import type { CodeReference, CodeTest } from "../../src/tasks/code.ts";
import { familyOf, randomComposition, splitOf } from "./compositions.ts";
import { chooseInputs } from "./inputs.ts";
import { runSteps, STEPS, type Step } from "./steps.ts";

/** A composition with its English and its tests. */
export interface Problem {
  steps: Step[];
  family: string;
  prompt: string;
  reference: CodeReference;
}

/** Words between two steps. */
const CONNECTORS = [", ", ", ", " then "];

function describe(random: RandomStream, steps: readonly Step[]): string {
  const connector = random.pick(CONNECTORS);
  return steps
    .map(({ kind, k }) => {
      const { wordings, special } = STEPS[kind];
      const choices = [...wordings, ...((k !== undefined && special?.[k]) || [])];
      return random.pick(choices).replace("#", String(k));
    })
    .join(connector);
}

function test(steps: readonly Step[], input: number[]): CodeTest {
  return { args: [input], expected: runSteps(steps, input) };
}

/** Number of steps: 2, 3 or 4. */
function randomLength(random: RandomStream): number {
  const u = random.uniform();
  return u < 0.35 ? 2 : u < 0.75 ? 3 : 4;
}

/** A random problem of one side of the split. The same stream gives the same problem. */
export function randomProblem(random: RandomStream, split: Split): Problem {
  const length = randomLength(random);
  for (;;) {
    const steps = randomComposition(random, length);
    const family = familyOf(steps);
    if (splitOf(family) !== split) continue;
    const inputs = chooseInputs(random, steps);
    if (inputs === undefined) continue;
    const visible = test(steps, inputs.visible);
    const example = `${JSON.stringify(inputs.visible)}->${JSON.stringify(visible.expected)}`;
    return {
      steps,
      family,
      prompt: `${describe(random, steps)}\n${example}\n`,
      reference: {
        visible: [visible],
        hidden: inputs.hidden.map((input) => test(steps, input)),
        heldOut: inputs.heldOut.map((input) => test(steps, input)),
      },
    };
  }
}

/** The steps with their numbers, as one text. */
export function compositionKey(steps: readonly Step[]): string {
  return steps.map(({ kind, k }) => (k === undefined ? kind : `${kind} ${k}`)).join(">");
}
