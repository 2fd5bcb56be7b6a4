/**
 * Runs a study: `npm run study NAME` (or all of them without a name). Every arm and seed is a run of the built command
 * line; what came out is written to docs/studies/NAME.md and NAME.svg. Runs that are there already are not repeated.
 */
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { readRun } from "../../src/runs/index.ts";
import { MATCHED, matched } from "./matched.ts";
import { picture } from "./picture.ts";
import { type Arm, STUDIES, type Study } from "./studies.ts";
import { column, curve, meanText } from "./summary.ts";

const ROOT = join(dirname(fileURLToPath(import.meta.url)), "../..");
const RUNS = join(ROOT, "runs/studies");

function runOf(study: Study, arm: number, seed: number): string {
  return join(RUNS, `${study.name}-${arm + 1}-seed-${seed}`);
}

function train(study: Study, index: number, arm: Arm, seed: number): void {
  const run = runOf(study, index, seed);
  if (existsSync(join(run, "evaluation-after.json"))) return;
  const flags = Object.entries(arm.keys).flatMap(([key, value]) => [`--${key}`, String(value)]);
  const name = run.slice(RUNS.length + 1);
  const known = existsSync(run) ? ["--resume", run] : ["recipes/transforms", "--runsFolder", RUNS, "--run", name];
  const fresh = existsSync(run) ? [] : ["--seed", String(seed), "--steps", String(study.steps), ...flags];
  const started = performance.now();
  const { status } = spawnSync(process.execPath, ["dist/cli/main.js", "train", ...known, ...fresh], {
    cwd: ROOT,
    stdio: ["ignore", "ignore", "inherit"],
  });
  if (status !== 0) throw new Error(`study ${study.name}: expected arm ${arm.name} to end with 0, got ${status}`);
  console.log(`${study.name}: ${arm.name}, seed ${seed}: ${((performance.now() - started) / 1000).toFixed(0)} s`);
}

function write(study: Study): void {
  const folder = join(ROOT, "docs/studies");
  mkdirSync(folder, { recursive: true });
  const lines = study.arms.map((arm, i) => ({
    name: arm.name,
    curves: study.seeds.map((seed) => curve(readRun(runOf(study, i, seed)).metrics(), study.drawn)),
  }));
  writeFileSync(join(folder, `${study.name}.svg`), picture(`${study.drawn} over ${study.steps} steps`, lines));
  const rows = study.arms.map((arm, i) => {
    const cells = study.columns.map((name) => meanText(study.seeds.map((seed) => column(name, runOf(study, i, seed)))));
    const keys = Object.entries(arm.keys).map(([key, value]) => `\`${key} ${value}\``);
    return `| ${[arm.name, keys.join(", ") || "the recipe's own", ...cells].join(" | ")} |`;
  });
  const table = [
    `| ${["arm", "keys", ...study.columns].join(" | ")} |`,
    `|${" --- |".repeat(study.columns.length + 2)}`,
    ...rows,
  ];
  const page = `# ${study.question}

Expected: ${study.expected}

${table.join("\n")}

Recipe \`transforms\`, ${study.steps} steps of 32 tasks × 8 completions, seeds ${study.seeds.join(", ")}: means over seeds with 95 % intervals
(Student's t; with three seeds they are wide). pass@1 on 128 untouched tasks × 8 samples.

![${study.drawn} by step](${study.name}.svg)

Lines are means over the seeds, bands the range of the seeds. Made by \`npm run study ${study.name}\`.
`;
  const path = join(folder, `${study.name}.md`);
  writeFileSync(path, page);
  console.log(table.join("\n"));
}

const wanted = process.argv[2];
if (wanted === MATCHED || wanted === undefined) matched({ root: ROOT, runs: RUNS }, process.argv[3]);
const chosen = STUDIES.filter(({ name }) => wanted === undefined || name === wanted);
if (chosen.length === 0 && wanted !== MATCHED) {
  const names = [...STUDIES.map(({ name }) => name), MATCHED];
  throw new Error(`study: expected one of ${names.join(", ")}, got ${wanted}`);
}
for (const study of chosen) {
  for (const seed of study.seeds) for (const [i, arm] of study.arms.entries()) train(study, i, arm, seed);
  write(study);
}
