import { RandomStream, type Split } from "rlvr";
import { STEP_KINDS, STEPS, type Step, type StepKind } from "./steps.ts";

const REDUCERS = STEP_KINDS.filter((kind) => STEPS[kind].group === "reduce");
const OTHERS = STEP_KINDS.filter((kind) => STEPS[kind].group !== "reduce");

/** Share of compositions that end with one number. */
const REDUCER_SHARE = 0.3;

/** Pairs of neighbours that amount to one other step. */
const COLLAPSING = new Set([
  "add>subtract",
  "subtract>add",
  "sortUp>reverse",
  "sortDown>reverse",
  "runningSum>differences",
  "differences>runningSum",
]);

/** A step of the kind with a number drawn from the kind's range. */
export function randomStep(random: RandomStream, kind: StepKind): Step {
  const range = STEPS[kind].range;
  return range === undefined ? { kind } : { kind, k: range[0] + random.integer(range[1] - range[0] + 1) };
}

/**
 * A random composition of `count` steps: no kind twice, a reducer only at the end, no neighbours that collapse into
 * one step. Whether each step matters is for the inputs to show (`problem.ts`).
 */
export function randomComposition(random: RandomStream, count: number): Step[] {
  for (;;) {
    const kinds = random.shuffle(OTHERS).slice(0, count);
    if (random.uniform() < REDUCER_SHARE) kinds[count - 1] = random.pick(REDUCERS);
    if (kinds.every((kind, i) => i === 0 || !COLLAPSING.has(`${kinds[i - 1]}>${kind}`)))
      return kinds.map((kind) => randomStep(random, kind));
  }
}

const MIRROR: Partial<Record<StepKind, StepKind>> = {
  takeFirst: "takeLast",
  takeLast: "takeFirst",
  dropFirst: "dropLast",
  dropLast: "dropFirst",
};
const INCREASING: StepKind[] = ["times", "add", "subtract"];
const INJECTIVE: StepKind[] = [...INCREASING, "negate"];
const LINEAR: StepKind[] = ["times", "negate"];
const KEEPS_DIVISORS: StepKind[] = ["negate", "abs"];
const DIVISIBILITY: StepKind[] = ["even", "odd", "multiples"];
/** Slices that may come before or after a scan. */
const SCAN_SLICES: Partial<Record<StepKind, StepKind[]>> = {
  differences: ["dropFirst", "dropLast"],
  runningSum: ["takeFirst", "dropLast"],
};

/** Whether two neighbouring steps may change places without changing the function, whatever their numbers. */
function commute(a: StepKind, b: StepKind): boolean {
  const one = (x: StepKind, y: StepKind): boolean => {
    const [gx, gy] = [STEPS[x].group, STEPS[y].group];
    if (gx === "filter") return gy === "filter" || gy === "order" || gy === "unique";
    if (gx === "map" && (y === "reverse" || gy === "slice")) return true;
    if (INCREASING.includes(x) && y === "sortUp") return true;
    if (INJECTIVE.includes(x) && gy === "unique") return true;
    if (LINEAR.includes(x) && gy === "scan") return true;
    if (KEEPS_DIVISORS.includes(x) && DIVISIBILITY.includes(y)) return true;
    if (x === "square" && (y === "even" || y === "odd")) return true;
    if (x === "times" && (y === "negate" || y === "abs")) return true;
    if (x === "add" && y === "subtract") return true;
    if (gx === "unique" && y === "sortUp") return true;
    if (SCAN_SLICES[x]?.includes(y)) return true;
    return x === "dropFirst" && y === "dropLast";
  };
  return one(a, b) || one(b, a);
}

/** What two neighbouring steps are the same as, where a reversal or a change of sign can move behind or vanish. */
function rewritten(a: StepKind, b: StepKind): StepKind[] | undefined {
  if (a === "negate" && b === "negate") return [];
  if (a === "negate" && b === "sortUp") return ["sortUp", "negate", "reverse"];
  if (a !== "reverse") return undefined;
  if (b === "reverse") return [];
  if (b === "sortUp" || STEPS[b].group === "reduce") return [b];
  if (b === "differences") return ["differences", "negate", "reverse"];
  const mirrored = MIRROR[b] ?? (commute("reverse", b) ? b : undefined);
  return mirrored && [mirrored, "reverse"];
}

/**
 * The family of a composition: its step kinds, numbers ignored, in a form that is the same for compositions that differ
 * only in steps that may change places ("keep even, sort up" and "sort up, keep even"), or in the side from which a list
 * is taken ("reverse, take first" and "take last, reverse"). To sort down is to sort up and reverse.
 */
export function familyOf(steps: readonly Step[]): string {
  let kinds = steps.flatMap<StepKind>(({ kind }) => (kind === "sortDown" ? ["sortUp", "reverse"] : [kind]));
  for (let i = 0; i + 1 < kinds.length; ) {
    const other = rewritten(kinds[i], kinds[i + 1]);
    if (other === undefined) i++;
    else {
      kinds = [...kinds.slice(0, i), ...other, ...kinds.slice(i + 2)];
      i = Math.max(0, i - 1);
    }
  }
  const ordered: StepKind[] = [];
  while (kinds.length > 0) {
    let best = 0;
    for (let i = 1; i < kinds.length; i++) {
      const canLead = kinds.slice(0, i).every((earlier) => commute(earlier, kinds[i]));
      if (canLead && kinds[i] < kinds[best]) best = i;
    }
    ordered.push(...kinds.splice(best, 1));
  }
  return ordered.join(">");
}

/**
 * The side a family is on: 70 % train, 10 % validation, 20 % test. It depends on nothing but the family, so that no
 * seed of tasks or demonstrations ever moves a test family into training.
 */
export function splitOf(family: string): Split {
  const place = new RandomStream(0, "transforms", "side", family).integer(20);
  return place < 14 ? "train" : place < 16 ? "validation" : "test";
}
