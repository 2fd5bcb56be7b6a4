/** The vocabulary of the recipe: what each step means, how it is said in English, how it is written in JavaScript. */

export type StepKind =
  | "times"
  | "add"
  | "subtract"
  | "negate"
  | "square"
  | "abs"
  | "over"
  | "under"
  | "even"
  | "odd"
  | "multiples"
  | "sortUp"
  | "sortDown"
  | "reverse"
  | "takeFirst"
  | "takeLast"
  | "dropFirst"
  | "dropLast"
  | "unique"
  | "runningSum"
  | "differences"
  | "sum"
  | "count"
  | "largest"
  | "smallest";

/**
 * What a step does to the list, as far as its neighbours care: `map` changes each element by itself, `filter` keeps
 * elements by their value, `order` only moves elements, `slice` keeps elements by their position, `reduce` ends the
 * composition with one number.
 */
export type StepGroup = "map" | "filter" | "order" | "slice" | "unique" | "scan" | "reduce";

export interface Step {
  kind: StepKind;
  /** The step's number, where the kind has one. */
  k?: number;
}

export interface StepDefinition {
  group: StepGroup;
  /** Smallest and largest number of the kind. */
  range?: [low: number, high: number];
  /** The meaning; `undefined` where there is none (the largest of no numbers). Never changes its argument. */
  apply(list: readonly number[], k: number): number[] | number | undefined;
  /** JavaScript that is appended to the expression so far. */
  code(k: number): string;
  /** English, with `#` for the number. All wordings of a kind mean the same. */
  wordings: string[];
  /** Extra wordings for one number. */
  special?: Record<number, string[]>;
  /** The kind that is confused with this one most easily. */
  opposite?: StepKind;
}

export const STEPS: Record<StepKind, StepDefinition> = {
  times: {
    group: "map",
    range: [2, 5],
    apply: (list, k) => list.map((x) => x * k),
    code: (k) => `.map(x=>x*${k})`,
    wordings: ["times #", "multiply by #", "scale by #"],
    special: { 2: ["double", "double each"], 3: ["triple", "triple each"] },
    opposite: "add",
  },
  add: {
    group: "map",
    range: [1, 9],
    apply: (list, k) => list.map((x) => x + k),
    code: (k) => `.map(x=>x+${k})`,
    wordings: ["add #", "plus #", "increase by #"],
    opposite: "subtract",
  },
  subtract: {
    group: "map",
    range: [1, 9],
    apply: (list, k) => list.map((x) => x - k),
    code: (k) => `.map(x=>x-${k})`,
    wordings: ["subtract #", "minus #", "decrease by #"],
    opposite: "add",
  },
  negate: {
    group: "map",
    apply: (list) => list.map((x) => 0 - x),
    code: () => ".map(x=>-x)",
    wordings: ["negate", "negate each", "flip signs"],
    opposite: "abs",
  },
  square: {
    group: "map",
    apply: (list) => list.map((x) => x * x),
    code: () => ".map(x=>x*x)",
    wordings: ["square", "square each", "times itself"],
    opposite: "times",
  },
  abs: {
    group: "map",
    apply: (list) => list.map((x) => Math.abs(x)),
    code: () => ".map(x=>Math.abs(x))",
    wordings: ["absolute values", "drop signs", "make positive"],
    opposite: "negate",
  },
  over: {
    group: "filter",
    range: [0, 9],
    apply: (list, k) => list.filter((x) => x > k),
    code: (k) => `.filter(x=>x>${k})`,
    wordings: ["keep over #", "only above #", "remove # or less"],
    special: { 0: ["keep positive"] },
    opposite: "under",
  },
  under: {
    group: "filter",
    range: [0, 9],
    apply: (list, k) => list.filter((x) => x < k),
    code: (k) => `.filter(x=>x<${k})`,
    wordings: ["keep under #", "only below #", "remove # or more"],
    special: { 0: ["keep negative"] },
    opposite: "over",
  },
  even: {
    group: "filter",
    apply: (list) => list.filter((x) => x % 2 === 0),
    code: () => ".filter(x=>x%2==0)",
    wordings: ["keep even", "only even", "remove odd"],
    opposite: "odd",
  },
  odd: {
    group: "filter",
    apply: (list) => list.filter((x) => x % 2 !== 0),
    code: () => ".filter(x=>x%2!=0)",
    wordings: ["keep odd", "only odd", "remove even"],
    opposite: "even",
  },
  multiples: {
    group: "filter",
    range: [3, 5],
    apply: (list, k) => list.filter((x) => x % k === 0),
    code: (k) => `.filter(x=>x%${k}==0)`,
    wordings: ["keep multiples of #", "only multiples of #", "keep divisible by #"],
  },
  sortUp: {
    group: "order",
    apply: (list) => [...list].sort((a, b) => a - b),
    code: () => ".sort((a,b)=>a-b)",
    wordings: ["sort up", "sort ascending", "smallest first"],
    opposite: "sortDown",
  },
  sortDown: {
    group: "order",
    apply: (list) => [...list].sort((a, b) => b - a),
    code: () => ".sort((a,b)=>b-a)",
    wordings: ["sort down", "sort descending", "largest first"],
    opposite: "sortUp",
  },
  reverse: {
    group: "order",
    apply: (list) => [...list].reverse(),
    code: () => ".reverse()",
    wordings: ["reverse", "back to front", "flip order"],
  },
  takeFirst: {
    group: "slice",
    range: [2, 4],
    apply: (list, k) => list.slice(0, k),
    code: (k) => `.slice(0,${k})`,
    wordings: ["take first #", "keep first #", "only first #"],
    opposite: "takeLast",
  },
  takeLast: {
    group: "slice",
    range: [2, 4],
    apply: (list, k) => list.slice(-k),
    code: (k) => `.slice(-${k})`,
    wordings: ["take last #", "keep last #", "only last #"],
    opposite: "takeFirst",
  },
  dropFirst: {
    group: "slice",
    range: [1, 3],
    apply: (list, k) => list.slice(k),
    code: (k) => `.slice(${k})`,
    wordings: ["drop first #", "skip first #", "remove first #"],
    opposite: "dropLast",
  },
  dropLast: {
    group: "slice",
    range: [1, 3],
    apply: (list, k) => list.slice(0, -k),
    code: (k) => `.slice(0,-${k})`,
    wordings: ["drop last #", "skip last #", "remove last #"],
    opposite: "dropFirst",
  },
  unique: {
    group: "unique",
    apply: (list) => [...new Set(list)],
    code: () => ".filter((x,i,a)=>a.indexOf(x)==i)",
    wordings: ["unique", "remove repeats", "drop duplicates"],
  },
  runningSum: {
    group: "scan",
    apply: (list) => {
      let total = 0;
      return list.map((x) => {
        total += x;
        return total;
      });
    },
    code: () => ".map((s=>x=>s+=x)(0))",
    wordings: ["running sum", "running total", "cumulative sum"],
    opposite: "sum",
  },
  differences: {
    group: "scan",
    apply: (list) => list.slice(1).map((x, i) => x - list[i]),
    code: () => ".map((x,i,a)=>x-a[i-1]).slice(1)",
    wordings: ["differences", "gaps", "minus previous"],
  },
  sum: {
    group: "reduce",
    apply: (list) => list.reduce((a, b) => a + b, 0),
    code: () => ".reduce((a,b)=>a+b,0)",
    wordings: ["sum", "add up", "total"],
    opposite: "runningSum",
  },
  count: {
    group: "reduce",
    apply: (list) => list.length,
    code: () => ".length",
    wordings: ["count", "how many", "length"],
    opposite: "sum",
  },
  largest: {
    group: "reduce",
    apply: (list) => (list.length === 0 ? undefined : Math.max(...list)),
    code: () => ".reduce((a,b)=>a>b?a:b)",
    wordings: ["largest", "maximum", "biggest"],
    opposite: "smallest",
  },
  smallest: {
    group: "reduce",
    apply: (list) => (list.length === 0 ? undefined : Math.min(...list)),
    code: () => ".reduce((a,b)=>a<b?a:b)",
    wordings: ["smallest", "minimum", "least"],
    opposite: "largest",
  },
};

export const STEP_KINDS = Object.keys(STEPS) as StepKind[];

/** Result of the steps on a list of integers: a list, a number, or `undefined` where a step has no result. */
export function runSteps(steps: readonly Step[], input: readonly number[]): number[] | number | undefined {
  let value: number[] | number | undefined = [...input];
  for (const step of steps) {
    if (!Array.isArray(value)) return undefined;
    value = STEPS[step.kind].apply(value, step.k ?? 0);
  }
  return value;
}

/** The steps as a JavaScript expression over `xs`. */
export function renderProgram(steps: readonly Step[]): string {
  return `xs${steps.map((step) => STEPS[step.kind].code(step.k ?? 0)).join("")}`;
}
