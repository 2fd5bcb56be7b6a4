/** `npm run bench`: rates and ratios measured on this machine, in one run. */
import { cpus } from "node:os";
import { benchChecker } from "./checker.ts";
import { benchEngine } from "./engine.ts";

console.log(`${cpus().length} cores, ${cpus()[0]?.model ?? "unknown processor"}, Node ${process.versions.node}`);
const only = process.argv[2];
if (only === undefined || only === "engine") await benchEngine();
if (only === undefined || only === "checker") await benchChecker();
