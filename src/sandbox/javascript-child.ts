/**
 * The process that runs candidates. It reads frames from descriptor 0 and answers on descriptor 1, both blocking: there
 * is no event loop, no timer and no other work. It ends when its input ends, so it does not outlive its parent.
 *
 * First frame: limits as JSON. Second: the bytes of the engine's WASM module. It then answers `{ "ready": … }`. Every
 * further frame is a list of jobs; each job is answered by a frame of its own as soon as it is done, because the parent
 * tells from the last answer which job is running.
 */
import { CandidateRunner } from "./candidate.ts";
import { readFrame, writeFrame } from "./frames.ts";
import { RETIRED_EXIT_CODE, type WireJob } from "./javascript-job.ts";
import type { SandboxLimits } from "./limits.ts";
import { WebAssembly } from "./quickjs-exports.ts";

interface ChildOptions {
  limits: SandboxLimits;
  /** CPU seconds after which the process retires; the hard limit of the operating system lies above. */
  retireAfterCpuSeconds: number;
}

function main(): void {
  const first = readFrame(0);
  const wasm = readFrame(0);
  if (first === undefined || wasm === undefined) return;
  const options = JSON.parse(first.toString()) as ChildOptions;
  const runner = new CandidateRunner(new WebAssembly.Module(new Uint8Array(wasm)), options.limits);
  warmUp(runner);
  send({ ready: process.version });
  for (let jobs = readFrame(0); jobs !== undefined; jobs = readFrame(0)) {
    for (const job of JSON.parse(jobs.toString()) as WireJob[]) {
      send({ id: job.id, result: runSafely(runner, job) });
      const cpu = process.cpuUsage();
      if ((cpu.user + cpu.system) / 1e6 > options.retireAfterCpuSeconds) process.exit(RETIRED_EXIT_CODE);
    }
  }
}

function runSafely(runner: CandidateRunner, job: WireJob): unknown {
  try {
    return runner.run(job);
  } catch (error) {
    return { kind: "error", message: error instanceof Error ? `${error.name}: ${error.message}` : String(error) };
  }
}

/** V8 compiles the engine function by function when it is first used; do that before the clock of a candidate runs. */
function warmUp(runner: CandidateRunner): void {
  const source = "xs => xs.map(x => x * 2).filter(x => x > 2).sort((a, b) => a - b).reverse().slice(0, 5)";
  const spare = "xs => ({ text: JSON.stringify([...new Set(xs)]), parts: 'a b'.split(' '), n: /a+/.test('aa') })";
  for (let round = 0; round < 20; round++) {
    for (const text of [source, spare, "xs => { throw new Error('x') }", "xs =>"]) {
      runner.run({ id: 0, source: text, form: { kind: "function" }, calls: [[["a", 3, 1, 2]]] });
    }
  }
}

function send(message: unknown): void {
  writeFrame(1, Buffer.from(JSON.stringify(message)));
}

main();
