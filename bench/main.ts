/** `npm run bench`: rates and ratios measured on this machine, in one run. */
import { cpus } from "node:os";
import { benchChecker } from "./checker.ts";
import { benchEngine, shippedUpdate } from "./engine.ts";
import { benchObjectives } from "./objectives.ts";
import { row } from "./print.ts";

console.log(`${cpus().length} cores, ${cpus()[0]?.model ?? "unknown processor"}, Node ${process.versions.node}`);
const only = process.argv[2];
if (only === undefined || only === "engine") await benchEngine();
if (only === undefined || only === "checker") await benchChecker();
if (only === undefined || only === "objectives") {
  const updateMs = await shippedUpdate();
  const slowest = Math.max(...Object.values(benchObjectives()));
  row("slowest objective, share of an update of 16,384 tokens", `${((100 * slowest) / updateMs).toFixed(1)} %`);
}
