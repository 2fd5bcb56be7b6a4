import type { RandomStream } from "rlvr";
import { runSteps, STEPS, type Step } from "./steps.ts";

/** Inputs of each test set. */
export const TESTS_PER_SET = 5;

/** Results beyond this are not used: they would be exact, but no one wants to read them. */
const LARGEST_RESULT = 1e6;

export interface Inputs {
  visible: number[];
  hidden: number[][];
  heldOut: number[][];
}

const textOf = (value: unknown): string => JSON.stringify(value) ?? "undefined";

function randomList(random: RandomStream, length: number, low: number, high: number): number[] {
  const list = Array.from({ length }, () => low + random.integer(high - low + 1));
  // Repeats are what `unique` and strict comparisons are about: half of the lists get some.
  if (length > 2 && random.uniform() < 0.5) {
    for (let repeats = 1 + random.integer(2); repeats > 0; repeats--)
      list[random.integer(length)] = list[random.integer(length)];
  }
  return list;
}

/** No elements, one element, all equal, none positive: the inputs that people forget. */
function edgeLists(random: RandomStream): number[][] {
  const value = random.integer(19) - 9;
  return random.shuffle([
    [],
    [random.integer(19) - 9],
    Array.from({ length: 2 + random.integer(3) }, () => value),
    randomList(random, 4 + random.integer(3), -12, -1),
  ]);
}

/** Every way to leave out one or more steps, but not all. */
export function shortened(steps: readonly Step[]): Step[][] {
  const result: Step[][] = [];
  for (let mask = 1; mask < 2 ** steps.length - 1; mask++) result.push(steps.filter((_, i) => (mask >> i) & 1));
  return result;
}

/** The steps with one number off by one, or one step in place of the kind it is confused with. */
function near(steps: readonly Step[]): Step[][] {
  return steps.flatMap((step, i) => {
    const changed: Step[] = [];
    if (step.k !== undefined) changed.push({ ...step, k: step.k + 1 });
    const opposite = STEPS[step.kind].opposite;
    if (opposite !== undefined) changed.push({ kind: opposite, k: step.k ?? 2 });
    return changed.map((other) => steps.map((same, j) => (j === i ? other : same)));
  });
}

function isUsable(result: number[] | number | undefined): boolean {
  const numbers = Array.isArray(result) ? result : [result];
  return numbers.every((x) => x !== undefined && Math.abs(x) <= LARGEST_RESULT);
}

interface Candidate {
  input: number[];
  result: string;
  /** For each wrong variant of the steps, whether this input tells it from the right one. */
  tells: boolean[];
}

/**
 * Picks the inputs of one test set: an edge case where the composition has a result for one, then, one by one, the
 * input that tells most of the remaining wrong variants from the right one. Undefined when some shortened composition
 * passes all of them, or when the results hardly vary.
 */
function chooseSet(
  pool: Candidate[],
  edges: Candidate[],
  mustTell: number,
  visibleResult: string,
): Candidate[] | undefined {
  const chosen = edges.slice(0, 1);
  const left = [...pool];
  const told = pool[0].tells.map((_, i) => chosen.some((c) => c.tells[i]));
  while (chosen.length < TESTS_PER_SET) {
    let best = 0;
    let most = -1;
    left.forEach((candidate, i) => {
      const gain = candidate.tells.filter((tells, v) => tells && !told[v]).length;
      if (gain > most) [best, most] = [i, gain];
    });
    const [next] = left.splice(best, 1);
    chosen.push(next);
    next.tells.forEach((tells, v) => {
      told[v] ||= tells;
    });
  }
  if (told.slice(0, mustTell).includes(false)) return undefined;
  const results = chosen.map((candidate) => candidate.result);
  if (new Set(results).size < 3) return undefined;
  return results.filter((result) => result === visibleResult).length <= 1 ? chosen : undefined;
}

/** An input for the prompt: short, with small numbers and a result that says something. */
function chooseVisible(random: RandomStream, steps: readonly Step[]): number[] | undefined {
  const variants = shortened(steps);
  let best: number[] | undefined;
  let most = 0;
  for (let attempt = 0; attempt < 6; attempt++) {
    const input = randomList(random, 4 + random.integer(2), -9, 9);
    const result = runSteps(steps, input);
    if (!isUsable(result) || (Array.isArray(result) && result.length === 0)) continue;
    const text = textOf(result);
    if (text === textOf(input) || text.length > 16) continue;
    const told = 1 + variants.filter((variant) => textOf(runSteps(variant, input)) !== text).length;
    if (told > most) [best, most] = [input, told];
  }
  return best;
}

/**
 * Inputs for the three sets, all different, such that each of the hidden and the held-out set has an input on which
 * leaving out any of the steps shows. Undefined when the draw allows none: the composition then has a step without
 * effect, or its results hardly vary.
 */
export function chooseInputs(random: RandomStream, steps: readonly Step[]): Inputs | undefined {
  const visible = chooseVisible(random, steps);
  if (visible === undefined) return undefined;
  const required = shortened(steps);
  const variants = [...required, ...near(steps)];
  const seen = new Set([textOf(visible)]);
  const candidates = (lists: number[][]): Candidate[] =>
    lists.flatMap((input) => {
      const result = runSteps(steps, input);
      if (seen.has(textOf(input)) || !isUsable(result)) return [];
      seen.add(textOf(input));
      const text = textOf(result);
      return [{ input, result: text, tells: variants.map((variant) => textOf(runSteps(variant, input)) !== text) }];
    });
  const edges = candidates(edgeLists(random));
  const pool = candidates(Array.from({ length: 20 }, () => randomList(random, 5 + random.integer(5), -12, 15)));
  if (pool.length < 2 * TESTS_PER_SET) return undefined;
  const half = pool.length >> 1;
  const visibleResult = textOf(runSteps(steps, visible));
  const hidden = chooseSet(pool.slice(0, half), edges.slice(0, 1), required.length, visibleResult);
  const heldOut = hidden && chooseSet(pool.slice(half), edges.slice(1, 2), required.length, visibleResult);
  if (!hidden || !heldOut) return undefined;
  return { visible, hidden: hidden.map((c) => c.input), heldOut: heldOut.map((c) => c.input) };
}
