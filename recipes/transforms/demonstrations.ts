import { type Demonstration, RandomStream } from "rlvr";
import type { CodeTest } from "../../src/tasks/code.ts";
import { randomStep } from "./compositions.ts";
import { type Problem, randomProblem } from "./problem.ts";
import { renderProgram, runSteps, STEP_KINDS, STEPS, type Step } from "./steps.ts";

/** How a demonstration goes wrong. */
export type Mistake = "opposite" | "drop-step" | "off-by-one" | "other-step" | "swap" | "hard-coded";

/** Relative frequency of the mistakes, among wrong demonstrations. */
const MISTAKES: Record<Mistake, number> = {
  opposite: 0.3,
  "drop-step": 0.2,
  "off-by-one": 0.2,
  "other-step": 0.15,
  swap: 0.1,
  "hard-coded": 0.05,
};

export interface DemonstrationOptions {
  count?: number;
  /** Share of demonstrations whose program is wrong, in [0, 1). */
  wrongShare?: number;
}

/** A demonstration with what is known about it. */
export interface LabelledDemonstration {
  demonstration: Demonstration;
  problem: Problem;
  /** Absent where the program is right. */
  mistake?: Mistake;
}

function isWrong(steps: readonly Step[], tests: CodeTest[]): boolean {
  return tests.some(
    ({ args, expected }) => JSON.stringify(runSteps(steps, args[0] as number[])) !== JSON.stringify(expected),
  );
}

function replaceAt(steps: readonly Step[], place: number, step: Step): Step[] {
  return steps.map((same, i) => (i === place ? step : same));
}

/** The steps with one mistake, or undefined where that mistake cannot be made at the place drawn. */
function spoil(random: RandomStream, steps: readonly Step[], mistake: Mistake): Step[] | undefined {
  const place = random.integer(steps.length);
  const { kind, k } = steps[place];
  const { group, range, opposite } = STEPS[kind];
  if (mistake === "drop-step") return steps.filter((_, i) => i !== place);
  if (mistake === "opposite") {
    if (opposite === undefined) return undefined;
    const bounds = STEPS[opposite].range;
    const number = bounds && Math.min(Math.max(k ?? bounds[0], bounds[0]), bounds[1]);
    return replaceAt(steps, place, bounds ? { kind: opposite, k: number } : { kind: opposite });
  }
  if (mistake === "off-by-one") {
    if (k === undefined || range === undefined) return undefined;
    const other = random.uniform() < 0.5 ? k - 1 : k + 1;
    return other < range[0] || other > range[1] ? undefined : replaceAt(steps, place, { kind, k: other });
  }
  if (mistake === "other-step") {
    const kinds = STEP_KINDS.filter((other) => other !== kind && STEPS[other].group === group);
    return kinds.length === 0 ? undefined : replaceAt(steps, place, randomStep(random, random.pick(kinds)));
  }
  if (place + 1 >= steps.length || STEPS[steps[place + 1].kind].group === "reduce") return undefined;
  return replaceAt(replaceAt(steps, place, steps[place + 1]), place + 1, steps[place]);
}

function drawMistake(random: RandomStream): Mistake {
  let u = random.uniform();
  for (const [mistake, share] of Object.entries(MISTAKES) as [Mistake, number][]) {
    if (u < share) return mistake;
    u -= share;
  }
  return "opposite";
}

/** A program with one mistake, wrong on at least one hidden test by the reference semantics. */
function wrongProgram(random: RandomStream, problem: Problem): { completion: string; mistake: Mistake } {
  for (;;) {
    const mistake = drawMistake(random);
    if (mistake === "hard-coded") return { completion: JSON.stringify(problem.reference.visible[0].expected), mistake };
    const steps = spoil(random, problem.steps, mistake);
    if (steps !== undefined && isWrong(steps, problem.reference.hidden))
      return { completion: renderProgram(steps), mistake };
  }
}

/** Demonstrations with their labels; for tests and statistics. Same rules as `transformsDemonstrations`. */
export function labelledDemonstrations(
  seed: number,
  { count = 20_000, wrongShare = 0.4 }: DemonstrationOptions = {},
): LabelledDemonstration[] {
  return Array.from({ length: count }, (_, i) => {
    const random = new RandomStream(seed, "transforms", "demonstration", i);
    const problem = randomProblem(random, "train");
    if (random.uniform() >= wrongShare)
      return { demonstration: { prompt: problem.prompt, completion: renderProgram(problem.steps) }, problem };
    const { completion, mistake } = wrongProgram(random, problem);
    return { demonstration: { prompt: problem.prompt, completion }, problem, mistake };
  });
}

/**
 * Prompts of train families with programs to imitate, `wrongShare` of them wrong on purpose: what is learned from them
 * leaves room for reinforcement. Demonstration i depends on the seed and i only.
 */
export function transformsDemonstrations(seed: number, options: DemonstrationOptions = {}): Demonstration[] {
  return labelledDemonstrations(seed, options).map(({ demonstration }) => demonstration);
}
