/**
 * Speed of the JavaScript checker: candidates a second with five tests each, messages to the worker processes and
 * comparison of the values included, and how long a runaway candidate outlives its limit.
 *
 * Run alone: `npm run build && node --import jiti/register bench/checker.ts`.
 */
import { pathToFileURL } from "node:url";
import { createJavaScriptPool, type JavaScriptPool } from "../src/sandbox/javascript-pool.ts";
import type { CodeReference } from "../src/tasks/code.ts";
import { javascriptVerifier } from "../src/verifiers/code/javascript.ts";
import type { VerifyItem } from "../src/verifiers/verifier.ts";

/** Candidates in one round, and rounds of which the median counts. */
const CANDIDATES = 4096;
const ROUNDS = 7;
/** A candidate is a few steps over a short list, as a policy would write it; each has five tests. */
const STEPS = [
  "map(x => x * 2)",
  "filter(x => x > 5)",
  "sort((a, b) => b - a)",
  "slice(0, 4)",
  "reverse()",
  "map(x => x - 1)",
];

function items(): VerifyItem<CodeReference>[] {
  const inputs = [0, 1, 2, 3, 4].map((k) => [3 * k, 1, 4, 1, 5, 9, 2, 6 + k]);
  const tests = inputs.map((xs) => ({ args: [xs], expected: xs.map((x) => x * 2) }));
  const reference: CodeReference = { visible: tests.slice(0, 1), hidden: tests.slice(1), heldOut: [] };
  return Array.from({ length: CANDIDATES }, (_, i) => {
    const steps = [0, 1, 2].slice(0, 1 + (i % 3)).map((k) => STEPS[(i + k * 5) % STEPS.length]);
    const completion = `xs${i % 2 === 0 ? "" : " => xs"}.${steps.join(".")}`;
    return { task: { id: "bench", prompt: "", reference, source: "bench", tags: [] }, completion };
  });
}

/** Candidates a second on `workers` warm processes: the median round. */
async function rate(workers: number): Promise<number> {
  const verifier = javascriptVerifier({ workers, form: { kind: "expression", parameters: ["xs"] } });
  const batch = items();
  const rates: number[] = [];
  // The first two rounds warm up V8 on both sides.
  for (let round = -2; round < ROUNDS; round++) {
    const start = performance.now();
    const verdicts = await verifier.verify(batch);
    if (round >= 0) rates.push((batch.length / (performance.now() - start)) * 1000);
    const judged = verdicts.filter(({ outcome }) => outcome === "pass" || outcome === "fail").length;
    if (judged !== batch.length) throw new Error(`bench: expected ${batch.length} judged candidates, got ${judged}`);
  }
  await verifier.close();
  return rates.sort((a, b) => a - b)[ROUNDS >> 1];
}

/** Milliseconds from a candidate's time limit to its end (for a killed process: until it is gone), worst of three. */
async function overrun(pool: JavaScriptPool, source: string): Promise<number> {
  let worst = 0;
  for (let round = 0; round < 3; round++) {
    await pool.ready();
    const start = performance.now();
    await pool.run([{ source, form: { kind: "function" }, calls: [[]] }]);
    worst = Math.max(worst, performance.now() - start - pool.limits.wallMs);
  }
  return worst;
}

/** Prints the figures. */
export async function benchChecker(): Promise<void> {
  for (const workers of [1, 2]) {
    const perSecond = await rate(workers);
    console.log(
      `checker: ${perSecond.toFixed(0)} candidates/s, 5 tests each, ${workers} process${workers === 1 ? "" : "es"}, warm`,
    );
  }
  const pool = createJavaScriptPool({ workers: 1 });
  const loop = await overrun(pool, "() => { for (;;); }");
  const native = await overrun(pool, "() => new Array(2 ** 26).join('xxxx').length");
  await pool.close();
  console.log(
    `checker: a loop ends ${loop.toFixed(1)} ms after its limit of ${pool.limits.wallMs} ms (interrupted; its process lives on)`,
  );
  console.log(
    `checker: a native loop's process is gone ${native.toFixed(1)} ms after the limit (killed from outside after ${pool.limits.killGraceMs} ms of grace)`,
  );
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) await benchChecker();
