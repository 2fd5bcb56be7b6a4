/**
 * The cheaper paths at matched cost: teacher responses, on-policy distillation and RLVR from the same base model, with
 * as many steps as bring each to the RLVR run's floating-point operations, and to its seconds. Steps come from two short
 * runs of each method, as cost is a start and so much a step. The teacher is the RLVR run of the same seed, gone on for
 * as long again; what it cost is not in the table.
 */
import { spawnSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { readRun } from "../../src/runs/index.ts";
import type { Costs } from "../../src/train/costs.ts";
import { scatter } from "./picture.ts";
import { mean, meanText } from "./summary.ts";

export const MATCHED = "cheaper-paths";
const SEEDS = [1, 2, 3];
const STEPS = 30;
const SHORT = [10, 40] as const;

const METHODS: Record<string, Record<string, string | number>> = {
  // One answer in four tries each is plenty: answers that are equal to another of the task are left out.
  responses: { "distill.tasks": 1024, "distill.samplesPerTask": 4, "sft.batchTokens": 2048 },
  // The batch of the RLVR run: 32 tasks × 8 completions.
  "on-policy": { "distill.promptsPerStep": 32, "distill.samplesPerTask": 8 },
};
type Measure = "FLOPs" | "seconds";
const MEASURES: Measure[] = ["FLOPs", "seconds"];

interface Place {
  root: string;
  runs: string;
}

const costsOf = (run: string): Costs => JSON.parse(readFileSync(join(run, "costs.json"), "utf8"));
const costOf = (run: string, measure: Measure): number =>
  measure === "seconds" ? costsOf(run).seconds : (costsOf(run).flops.total ?? Number.NaN);

function rlvr(place: Place, args: string[], run: string): void {
  const started = performance.now();
  const { status } = spawnSync(process.execPath, ["dist/cli/main.js", ...args], {
    cwd: place.root,
    stdio: ["ignore", "ignore", "inherit"],
  });
  if (status !== 0) throw new Error(`${run}: expected to end with 0, got ${status}`);
  console.log(`${run}: ${((performance.now() - started) / 1000).toFixed(0)} s`);
}

function train(place: Place, name: string, seed: number, steps: number): string {
  const run = join(place.runs, name);
  if (existsSync(join(run, "evaluation-after.json"))) return run;
  const fresh = ["recipes/transforms", "--runsFolder", place.runs, "--run", name, "--seed", String(seed)];
  const from = existsSync(run) ? ["--resume", run] : [...fresh, "--steps", String(steps)];
  rlvr(place, ["train", ...from], name);
  return run;
}

interface Distilled {
  method: string;
  seed: number;
  steps: number;
  evaluate: boolean;
}

function distill(place: Place, name: string, { method, seed, steps, evaluate }: Distilled): string {
  const run = join(place.runs, name);
  if (existsSync(join(run, evaluate ? "evaluation-after.json" : "costs.json"))) return run;
  const keys = { ...METHODS[method], "distill.method": method, "distill.steps": steps };
  const flags = Object.entries(keys).flatMap(([key, value]) => [`--${key}`, String(value)]);
  const teacher = newestCheckpoint(join(place.runs, `${MATCHED}-teacher-seed-${seed}`));
  const fresh = ["recipes/transforms", "--runsFolder", place.runs, "--run", name, "--seed", String(seed), ...flags];
  const once = [...fresh, "--distill.teacher", teacher, "--evaluation.beforeAndAfter", String(evaluate)];
  rlvr(place, ["distill", ...(existsSync(run) ? ["--resume", run] : once)], name);
  return run;
}

function newestCheckpoint(run: string): string {
  const names = readdirSync(join(run, "checkpoints")).filter((name) => name.startsWith("step-"));
  return join(run, "checkpoints", names.sort()[names.length - 1]);
}

/** Steps that bring a method to `budget`, by the line through two short runs. */
export function stepsFor(short: readonly { steps: number; cost: number }[], budget: number): number {
  const [a, b] = short;
  const each = (b.cost - a.cost) / (b.steps - a.steps);
  return Math.max(1, Math.round(a.steps + (budget - a.cost) / each));
}

interface Arm {
  name: string;
  runs: string[];
}

/** Runs what is missing (of one method, where it is named) and, once all is there, writes the page. */
export function matched(place: Place, only?: string): void {
  const name = (...parts: (string | number)[]) => [MATCHED, ...parts].join("-");
  const base = SEEDS.map((seed) => train(place, name("rlvr", "seed", seed), seed, STEPS));
  const teachers = SEEDS.map((seed) => train(place, name("teacher", "seed", seed), seed, 2 * STEPS));
  const arms: Arm[] = [{ name: `RLVR, ${STEPS} steps`, runs: base }];
  for (const method of Object.keys(METHODS)) {
    if (only !== undefined && only !== method) continue;
    const short = SHORT.map((steps) => {
      const run = distill(place, name(method, "short", steps), { method, seed: 1, steps, evaluate: false });
      return { steps, run };
    });
    for (const measure of MEASURES) {
      const budget = mean(base.map((run) => costOf(run, measure)));
      const steps = stepsFor(
        short.map(({ steps, run }) => ({ steps, cost: costOf(run, measure) })),
        budget,
      );
      const runs = SEEDS.map((seed) =>
        distill(place, name(method, measure.toLowerCase(), "seed", seed), { method, seed, steps, evaluate: true }),
      );
      arms.push({ name: `${method}, same ${measure}`, runs });
    }
  }
  if (only === undefined) write(place, arms, teachers);
}

const after = (run: string) => readRun(run).evaluation("after")?.passAt1.estimate ?? Number.NaN;
const gain = (run: string) => after(run) - (readRun(run).evaluation("before")?.passAt1.estimate ?? Number.NaN);
const tera = (run: string) => costOf(run, "FLOPs") / 1e12;

const COLUMNS: Record<string, (run: string) => number> = {
  "pass@1 after": after,
  "gain a TFLOP": (run) => gain(run) / tera(run),
  "gain a minute": (run) => (60 * gain(run)) / costsOf(run).seconds,
  TFLOPs: tera,
  seconds: (run) => costsOf(run).seconds,
  updates: (run) => costsOf(run).updates,
  "student tokens": (run) => costsOf(run).studentTokens,
  "teacher tokens": (run) => costsOf(run).teacherTokens,
};

function write(place: Place, arms: Arm[], teachers: string[]): void {
  const folder = join(place.root, "docs/studies");
  const points = arms.map(({ name, runs }) => ({
    name,
    points: runs.map((run): [number, number] => [tera(run), after(run)]),
  }));
  writeFileSync(join(folder, `${MATCHED}.svg`), scatter("pass@1 after, by TFLOPs", points));
  const names = Object.keys(COLUMNS);
  const table = [
    `| ${["arm", ...names].join(" | ")} |`,
    `|${" --- |".repeat(names.length + 1)}`,
    ...arms.map(({ name, runs }) => {
      const cells = names.map((column) => meanText(runs.map((run) => COLUMNS[column](run))));
      return `| ${[name, ...cells].join(" | ")} |`;
    }),
  ];
  const keys = Object.entries(METHODS).map(([method, values]) => {
    const said = Object.entries(values).map(([key, value]) => `\`${key} ${value}\``);
    return `\`${method}\`: ${said.join(", ")}`;
  });
  const page = `# What do teacher responses and on-policy distillation bring at the cost of an RLVR run?

Expected: with a good teacher at hand, more for the same cost than RLVR, on-policy distillation most (Thinking Machines,
"On-Policy Distillation", 2025).

${table.join("\n")}

Recipe \`transforms\`, all from the shipped base model, seeds ${SEEDS.join(", ")}: means over seeds with 95 % intervals (Student's t; with
three seeds they are wide). pass@1 on 128 untouched tasks × 8 samples. Steps of each method are those that bring it to
the RLVR runs' mean cost, by a line through two short runs of ${SHORT.join(" and ")} steps. Other keys, ${keys.join("; ")}.

The teacher is the RLVR run of the same seed after ${2 * STEPS} steps: pass@1 ${meanText(teachers.map(after))}, made for ${meanText(teachers.map(tera))}
TFLOPs, which no row includes. Who has to train the teacher first pays for it first.

![pass@1 by cost](${MATCHED}.svg)

Made by \`npm run study ${MATCHED}\`.
`;
  writeFileSync(join(folder, `${MATCHED}.md`), page);
  console.log(table.join("\n"));
}
