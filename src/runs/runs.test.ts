import { spawn, spawnSync } from "node:child_process";
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { hostname, tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { makeManifest, RunFolder, readRun } from "./index.ts";
import { isStale } from "./lock.ts";

let root: string;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), "rlvr-runs-"));
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

const create = (name?: string) =>
  RunFolder.create({
    root,
    name,
    prefix: "toy",
    configPath: "/x/rlvr.config.ts",
    config: { steps: 3 },
    manifest: { a: 1 },
  });

function codeOf(action: () => unknown): string {
  try {
    action();
  } catch (error) {
    return (error as { code: string }).code;
  }
  return "nothing thrown";
}

describe("a run folder", () => {
  test("gets the first free number, and refuses a name that is taken", () => {
    expect(create().name).toBe("toy-001");
    expect(create().name).toBe("toy-002");
    const mine = create("mine");
    expect(() => create("mine")).toThrowError(/mine.*exists/);
    expect(codeOf(() => create("mine"))).toBe("RLVR_RUN_EXISTS");
    expect(readRun(mine.path)).toMatchObject({
      configPath: "/x/rlvr.config.ts",
      config: { steps: 3 },
      manifest: { a: 1 },
    });
    expect(codeOf(() => RunFolder.open(join(root, "absent")))).toBe("RLVR_RUN_MISSING");
  });

  test("after a crash and a rewind holds what an uninterrupted run holds", async () => {
    const step = async (run: RunFolder, number: number) => {
      run.appendMetrics(number, { "reward/mean": number / 3, loss: number === 2 ? Number.NaN : 0 });
      run.appendEvent({ event: "alert", step: number, level: "warn" });
      run.writeRollouts(number, [
        { step: number, taskId: "t", sample: 0, prompt: "p", completion: "c", outcome: "pass", score: 1 },
      ]);
      if (number % 2 === 0) {
        await run.writeCheckpoint(number, (folder) => writeFileSync(join(folder, "weights"), `w${number}`), {
          keep: 3,
        });
      }
    };
    const content = (path: string): Record<string, string> =>
      Object.fromEntries(
        readdirSync(path, { recursive: true, withFileTypes: true })
          .filter((entry) => entry.isFile() && !entry.name.startsWith("run.lock"))
          .map((entry) => join(entry.parentPath, entry.name))
          .map((file) => [file.slice(path.length), readFileSync(file).toString("base64")]),
      );
    const whole = create("whole");
    for (let number = 1; number <= 6; number++) await step(whole, number);

    const cut = create("cut");
    for (let number = 1; number <= 5; number++) await step(cut, number);
    appendFileSync(join(cut.path, "metrics.jsonl"), '{"step":6,"rew');
    mkdirSync(join(cut.path, "checkpoints", ".new-step-000006"));
    cut.close();
    const again = RunFolder.open(cut.path);
    const from = again.latestCheckpoint();
    expect(from?.step).toBe(4);
    again.rewind(4);
    expect(again.metrics().map((record) => record.step)).toEqual([1, 2, 3, 4]);
    expect(again.metrics()[1].loss).toBeNull();
    for (let number = 5; number <= 6; number++) await step(again, number);
    expect(content(again.path)).toEqual(content(whole.path));
  });

  test("keeps returns and evaluations over a rewind", () => {
    const run = create();
    run.appendEvent({ event: "evaluation", when: "before" });
    run.appendEvent({ event: "alert", step: 9, level: "return" });
    run.appendEvent({ event: "alert", step: 9, level: "warn" });
    run.rewind(5);
    expect(readRun(run.path).events()).toHaveLength(2);
    expect(run.returns()).toBe(1);
  });

  test("says which line of a damaged file is wrong", () => {
    const run = create();
    writeFileSync(join(run.path, "metrics.jsonl"), '{"step":1}\n{"st\n{"step":3}\n');
    expect(() => run.metrics()).toThrowError(/metrics\.jsonl:2/);
  });
});

describe("checkpoints", () => {
  const save = (run: RunFolder, step: number, good = true, keep = 2) =>
    run.writeCheckpoint(step, (folder) => writeFileSync(join(folder, "weights"), "1234"), { keep, good });

  test("keep the newest, and the newest good one whatever its age", async () => {
    const run = create();
    await save(run, 10);
    await save(run, 20, false);
    await save(run, 30, false);
    await save(run, 40, false);
    expect(
      readRun(run.path)
        .checkpoints()
        .map((checkpoint) => checkpoint.step),
    ).toEqual([10, 30, 40]);
    expect(run.latestCheckpoint()?.step).toBe(40);
    expect(run.latestCheckpoint({ good: true })?.step).toBe(10);
    expect(run.latestCheckpoint({ atMost: 35 })?.step).toBe(30);
  });

  test("that are incomplete are passed over", async () => {
    const run = create();
    await save(run, 10);
    const second = await save(run, 20);
    truncateSync(join(second.path, "weights"), 2);
    expect(run.latestCheckpoint()?.step).toBe(10);
  });

  test("survive a writer that fails, and a replacement that is cut off", async () => {
    const run = create();
    const first = await save(run, 10);
    const broken = run.writeCheckpoint(
      10,
      (folder) => {
        writeFileSync(join(folder, "weights"), "12");
        throw Object.assign(new Error("no space left"), { code: "ENOSPC" });
      },
      { keep: 2 },
    );
    await expect(broken).rejects.toMatchObject({ code: "RLVR_WRITE_FAILED" });
    expect(readFileSync(join(first.path, "weights"), "utf8")).toBe("1234");
    expect(readdirSync(join(run.path, "checkpoints"))).toEqual(["step-000010"]);
    const { renameSync } = await import("node:fs");
    renameSync(first.path, join(run.path, "checkpoints", ".old-step-000010"));
    run.close();
    expect(RunFolder.open(run.path).latestCheckpoint()?.step).toBe(10);
  });
});

describe("the lock", () => {
  test("refuses a second holder and is given back", () => {
    const run = create();
    expect(codeOf(() => RunFolder.open(run.path))).toBe("RLVR_RUN_LOCKED");
    run.close();
    const second = RunFolder.open(run.path);
    expect(codeOf(() => RunFolder.open(run.path))).toBe("RLVR_RUN_LOCKED");
    second.close();
    expect(readdirSync(run.path).filter((file) => file.startsWith("run.lock"))).toEqual([]);
  });

  test("of a dead process, of an earlier start and of a reused id is taken over", () => {
    const dead = spawnSync(process.execPath, ["-e", ""]).pid;
    const own = { host: hostname(), boot: null, started: null };
    const run = create();
    run.close();
    const owners = [
      { ...own, pid: dead },
      { ...own, pid: process.pid, boot: "another start" },
    ];
    if (existsSync("/proc/self/stat")) owners.push({ ...own, pid: process.pid, started: "1" } as never);
    for (const owner of owners) {
      writeFileSync(join(run.path, "run.lock.7"), JSON.stringify(owner));
      const taken = RunFolder.open(run.path);
      expect(readdirSync(run.path).filter((file) => file.startsWith("run.lock"))).toEqual(["run.lock.8"]);
      taken.close();
    }
  });

  test("of another machine is left alone", () => {
    expect(isStale({ pid: 1, host: "elsewhere", boot: null, started: null })).toBe(false);
    const run = create();
    run.close();
    writeFileSync(
      join(run.path, "run.lock.1"),
      JSON.stringify({ pid: 1, host: "elsewhere", boot: null, started: null }),
    );
    expect(codeOf(() => RunFolder.open(run.path))).toBe("RLVR_RUN_LOCKED");
  });

  test("goes to one of several processes at most, also over a stale one", async () => {
    const run = create();
    run.close();
    const dead = spawnSync(process.execPath, ["-e", ""]).pid;
    writeFileSync(
      join(run.path, "run.lock.3"),
      JSON.stringify({ pid: dead, host: hostname(), boot: null, started: null }),
    );
    const tries = mkdtempSync(join(root, "tries-"));
    const children = Array.from({ length: 4 }, (_, i) =>
      child(`
      const { readdirSync } = await import("node:fs");
      let result;
      try { RunFolder.open(${JSON.stringify(run.path)}); result = "held"; }
      catch (error) { result = error.code; }
      console.log(result);
      writeFileSync(join(${JSON.stringify(tries)}, "${i}"), "");
      // A holder that ends may be taken over from: it stays until all have tried, however slowly they start.
      while (readdirSync(${JSON.stringify(tries)}).length < 4) await new Promise((done) => setTimeout(done, 20));`),
    );
    const results = await Promise.all(children);
    expect(results.filter((result) => result.includes("held")).length).toBeLessThanOrEqual(1);
    expect(results.every((result) => /held|RLVR_RUN_LOCKED/.test(result))).toBe(true);
  });
});

/** Runs a program with `RunFolder` in scope in a process of its own; gives its output. */
function child(body: string, limitBlocks?: number): Promise<string> {
  const program = `
    const { createJiti } = await import("jiti");
    const { writeFileSync } = await import("node:fs");
    const { join } = await import("node:path");
    const { RunFolder, readRun } = await createJiti(${JSON.stringify(import.meta.url)}).import("./index.ts");
    ${body}`;
  const node = [process.execPath, "--input-type=module", "-e", program];
  const command = limitBlocks ? ["bash", "-c", `ulimit -f ${limitBlocks}; exec "$0" "$@"`, ...node] : node;
  return new Promise((done) => {
    const started = spawn(command[0], command.slice(1), {
      cwd: resolve(import.meta.dirname, "../.."),
      env: { ...process.env, JITI_FS_CACHE: "false" },
    });
    let output = "";
    started.stdout.on("data", (data) => {
      output += data;
    });
    started.stderr.on("data", (data) => {
      output += data;
    });
    started.on("close", () => done(output));
  });
}

// A limit on the size of files acts like a full disk, and needs no rights: 8 blocks of 1,024 bytes.
test.skipIf(process.platform === "win32")("a full disk is told, and loses nothing", async () => {
  const path = join(root, "toy-001");
  const output = await child(
    `
    const run = RunFolder.create({ root: ${JSON.stringify(root)}, prefix: "toy", configPath: "c", config: {}, manifest: {} });
    const told = [];
    const attempt = async (action) => { try { await action(); } catch (error) { told.push(error.code); } };
    await run.writeCheckpoint(1, (folder) => writeFileSync(join(folder, "weights"), "good"), { keep: 1 });
    for (let step = 1; step <= 4; step++) await attempt(() => run.appendMetrics(step, { ["x".repeat(3000)]: step }));
    await attempt(() => run.writeFile("report.html", "small"));
    await attempt(() => run.writeFile("report.html", "y".repeat(20000)));
    await attempt(() => run.writeCheckpoint(2, (folder) => writeFileSync(join(folder, "weights"), "z".repeat(20000)), { keep: 1 }));
    console.log(JSON.stringify(told));`,
    8,
  );
  expect(output.trim()).toBe(JSON.stringify(Array(4).fill("RLVR_WRITE_FAILED")));
  const view = readRun(path);
  expect(view.metrics().map((record) => record.step)).toEqual([1, 2]);
  expect(readFileSync(join(path, "metrics.jsonl"), "utf8").endsWith("}\n")).toBe(true);
  expect(readFileSync(join(path, "report.html"), "utf8")).toBe("small");
  expect(view.checkpoints().map((checkpoint) => checkpoint.step)).toEqual([1]);
});

test("a manifest names versions and holds nothing that depends on the clock", () => {
  const manifest = makeManifest({ seeds: { run: 1 } });
  expect(manifest).toMatchObject({
    seeds: { run: 1 },
    versions: { rlvr: expect.any(String), onnxruntime: expect.any(String) },
  });
  expect(makeManifest({ seeds: { run: 1 } })).toEqual(manifest);
});
