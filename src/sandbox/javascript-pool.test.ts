import { spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { afterAll, describe, expect, it } from "vitest";
import { scriptPath } from "../base/files.ts";
import type { JavaScriptJob, JobResult } from "./javascript-job.ts";
import { createJavaScriptPool } from "./javascript-pool.ts";
import type { PlainValue } from "./values.ts";

const job = (source: string, calls: PlainValue[][] = [[[3, 1, 2]]]): JavaScriptJob => ({
  source,
  form: { kind: "function" },
  calls,
});
const SORT = job("xs => xs.sort()");
const SORTED: JobResult = { kind: "ran", calls: [{ kind: "value", value: [1, 2, 3] }] };
/** Runs for seconds in the engine's own code, which looks at no interrupt. */
const NATIVE_LOOP = job("() => new Array(2 ** 26).join('xxxx').length");

function alive(pid: number): boolean {
  try {
    process.kill(pid, 0);
  } catch {
    return false;
  }
  const stat = `/proc/${pid}/stat`;
  return !(existsSync(stat) && / Z /.test(readFileSync(stat, "utf8")));
}

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setTimeout(resolve, 20));
}

describe("a pool", () => {
  const pool = createJavaScriptPool({ workers: 2 });
  afterAll(() => pool.close());

  it("returns results in order, for more jobs than fit one message", async () => {
    const jobs = Array.from({ length: 300 }, (_, i) => job(`xs => xs.length + ${i}`));
    const values = (await pool.run(jobs)).map((result) => (result.kind === "ran" ? result.calls[0] : result));
    expect(values).toEqual(jobs.map((_, i) => ({ kind: "value", value: i + 3 })));
    expect(await pool.run([])).toEqual([]);
  });

  it("carries every kind of value", async () => {
    const value = [
      Number.NaN,
      -0,
      Number.NEGATIVE_INFINITY,
      2n ** 70n,
      "\ud800é😀\0",
      null,
      undefined,
      true,
      { a: [{}] },
    ];
    expect(await pool.run([job("x => x", [[value]])])).toEqual([{ kind: "ran", calls: [{ kind: "value", value }] }]);
  });

  it("ends runaway candidates and blames nobody else", async () => {
    const results = await pool.run([
      SORT,
      job("() => { for (;;); }"),
      SORT,
      NATIVE_LOOP,
      SORT,
      job("() => { throw 1 }"),
      SORT,
    ]);
    expect(results).toEqual([
      SORTED,
      { kind: "ran", calls: [{ kind: "limit", limit: "time" }] },
      SORTED,
      expect.objectContaining({ kind: "limit", limit: "time" }),
      SORTED,
      { kind: "ran", calls: [{ kind: "thrown", name: "number", message: "1" }] },
      SORTED,
    ]);
    expect(await pool.run([SORT])).toEqual([SORTED]);
    await until(() => pool.processes().length === 2);
  });

  it("survives many hostile candidates at once", async () => {
    const hostile = [
      "() => { let a = []; for (;;) a.push(a.slice()); }",
      "() => { const f = () => f(); return f() }",
      "() => { throw new Proxy({}, { get() { for (;;); } }) }",
      "() => process.kill(process.ppid)",
      "() => { globalThis.leak = 1; return require('fs') }",
      `() => "${"y".repeat(100_000)}"`,
      "() => 'x'.repeat(1e6)",
    ];
    const results = await pool.run([...hostile.map((source) => job(source)), job("() => typeof leak")]);
    expect(results.at(-1)).toEqual({ kind: "ran", calls: [{ kind: "value", value: "undefined" }] });
    for (const result of results.slice(0, -1)) {
      expect(result.kind).toMatch(/ran|limit/);
      if (result.kind === "ran") expect(result.calls[0].kind).not.toBe("value");
    }
  });

  it("tries a job again when its process is killed by somebody else", async () => {
    const running = pool.run([job("() => { let n = 0; while (n < 2e4) n++; return n }"), SORT, SORT, SORT]);
    process.kill(pool.processes()[0], "SIGKILL");
    expect(await running).toEqual([{ kind: "ran", calls: [{ kind: "value", value: 2e4 }] }, SORTED, SORTED, SORTED]);
  });

  it("refuses jobs that cannot be sent", async () => {
    const refused: JavaScriptJob[] = [
      job("x => x", [[(() => 1) as unknown as PlainValue]]),
      job("x => x", [["x".repeat(5_000_000)]]),
      { source: "1", form: { kind: "expression", parameters: ["a) => evil(("] }, calls: [] },
      { source: "1", form: { kind: "program", entry: "f()" }, calls: [] },
    ];
    for (const bad of refused) await expect(pool.run([bad])).rejects.toMatchObject({ code: "RLVR_SANDBOX_INPUT" });
    expect(await pool.run([job(`() => 1 //${"x".repeat(300_000)}`)])).toMatchObject([{ kind: "syntax" }]);
    expect(await pool.run([SORT])).toEqual([SORTED]);
  });
});

describe("a child", () => {
  it.runIf(process.platform === "linux")("has an empty environment, and reaches no file but its own code", async () => {
    const pool = createJavaScriptPool({ workers: 1 });
    await pool.ready();
    const [pid] = pool.processes();
    expect(readFileSync(`/proc/${pid}/environ`, "utf8")).toBe("");
    const flags = readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0");
    expect(flags).toContain("--experimental-permission");
    expect(flags.filter((flag) => flag.startsWith("--allow"))).toEqual([
      expect.stringMatching(/^--allow-fs-read=.*sandbox.\*$/),
    ]);
    expect(readFileSync(`/proc/${pid}/limits`, "utf8")).toMatch(/Max file size +0 +0/);
    await pool.close();
  });
});

describe("the life of a pool", () => {
  it("leaves no process behind", async () => {
    const pool = createJavaScriptPool({ workers: 2, limits: { wallMs: 60_000 } });
    await pool.ready();
    const pids = pool.processes();
    const running = pool.run([job("() => { for (;;); }"), NATIVE_LOOP, SORT]);
    await new Promise((resolve) => setTimeout(resolve, 50));
    await pool.close();
    expect((await running).map((result) => result.kind)).toEqual(["error", "error", "error"]);
    expect(pids.filter(alive)).toEqual([]);
    expect(pool.processes()).toEqual([]);
    await expect(pool.run([SORT])).rejects.toMatchObject({ code: "RLVR_SANDBOX_CLOSED" });
    await pool.close();
  });

  it("reports an error, not a failure, when a job's process dies twice, and goes on", async () => {
    const pool = createJavaScriptPool({ workers: 1, limits: { wallMs: 60_000 } });
    const running = pool.run([job("() => { for (;;); }")]);
    let settled = false;
    void running.then(() => {
      settled = true;
    });
    while (!settled) {
      await pool.ready();
      for (const pid of pool.processes()) process.kill(pid, "SIGKILL");
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    expect(await running).toMatchObject([{ kind: "error" }]);
    expect(await pool.run([SORT])).toEqual([SORTED]);
    await pool.close();
  });

  it("says when no process can be started", async () => {
    const pool = createJavaScriptPool({ workers: 1, nodePath: "/nonexistent/node" });
    await expect(pool.ready()).rejects.toMatchObject({ code: "RLVR_SANDBOX_START" });
    expect(await pool.run([SORT])).toMatchObject([{ kind: "error" }]);
    await pool.close();
    expect(() => createJavaScriptPool({ workers: 0 })).toThrow(/workers/);
    expect(() => createJavaScriptPool({ limits: { wallMs: Number.NaN } })).toThrow(/wallMs/);
  });

  it("ends with its parent, however that ends, and does not keep it alive", async () => {
    const url = pathToFileURL(scriptPath(import.meta.url, "javascript-pool")).href;
    const script = `const { createJavaScriptPool } = await import(${JSON.stringify(url)});
      const pool = createJavaScriptPool({ workers: 2, limits: { wallMs: 500 } });
      await pool.ready();
      console.log(JSON.stringify(pool.processes()));
      if (process.argv[1] === "busy") await pool.run([{ source: "() => { for (;;); }", form: { kind: "function" }, calls: [[], []] }]);
      if (process.argv[1] === "busy") setInterval(() => {}, 1000);`;
    for (const mode of ["idle", "busy"]) {
      const parent = spawn(process.execPath, ["--input-type=module", "-e", script, mode], {
        stdio: ["ignore", "pipe", "inherit"],
      });
      const pids = await new Promise<number[]>((resolve) => {
        parent.stdout.on("data", (text: Buffer) => resolve(JSON.parse(text.toString())));
      });
      expect(pids).toHaveLength(2);
      // The idle one must end by itself.
      if (mode === "busy") parent.kill("SIGKILL");
      await until(() => !alive(parent.pid as number) && !pids.some(alive));
    }
  });
});
