/** The built command line in processes of its own; `npm test` builds it first. */
import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { fabricateRun } from "./cli-fabricated-run.ts";

const repository = resolve(import.meta.dirname, "../..");
const main = join(repository, "dist/cli/main.js");

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "rlvr-cli-"));
  writeFileSync(
    join(folder, "rlvr.config.ts"),
    `import { defineConfig, type Verifier } from "rlvr";
     const verifier = (): Verifier => { throw new Error("never made here"); };
     export default defineConfig({
       model: "model", tasks: () => ({ train: [], validation: [], test: [] }), verifier, steps: 7,
     });`,
  );
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Runs `rlvr` in the folder of the test's config. */
function rlvr(words: string[], environment: Record<string, string> = {}) {
  const { stdout, stderr, status } = spawnSync(process.execPath, [main, ...words], {
    cwd: folder,
    encoding: "utf8",
    env: { ...process.env, NO_COLOR: "1", ...environment },
  });
  return { stdout, stderr, status };
}

describe("help", () => {
  test("names the commands, and each command its keys from the schema", () => {
    const help = rlvr(["--help"]);
    expect(help.status).toBe(0);
    for (const name of ["train", "sft", "eval", "report"]) expect(help.stdout).toMatch(new RegExp(`\\n  ${name} `));
    expect(rlvr([]).stdout).toBe(help.stdout);
    expect(rlvr(["--version"])).toMatchObject({ status: 0, stdout: expect.stringMatching(/^\d+\.\d+\.\d+\n$/) });
    const train = rlvr(["train", "--help"]);
    expect(train.stdout).toMatch(/--optimizer\.learningRate <number> +AdamW step size/);
    expect(train.stdout).toContain("--resume <dir>");
    expect(train.stdout).not.toContain("--sft.");
    expect(rlvr(["help", "train"]).stdout).toContain("--optimizer.learningRate <number>");
    expect(rlvr(["sft", "--help"]).stdout).toMatch(/--steps <n> +short for --sft\.steps/);
  });

  test("lists every key with its variable, or as a JSON Schema", () => {
    const { stdout } = rlvr(["help", "config"]);
    expect(stdout).toContain("RLVR_OPTIMIZER_LEARNING_RATE");
    expect(stdout).toContain("alerts.maxReturns [2]");
    const schema = JSON.parse(rlvr(["help", "config", "--json"]).stdout);
    expect(schema.properties.optimizer.properties.learningRate.default).toBe(1e-4);
  });
});

describe("print-config", () => {
  test("resolves defaults, file, variables and flags", () => {
    const { stdout, status } = rlvr(["train", "--print-config", "--seed", "5", "--optimizer.learningRate", "1e-3"], {
      RLVR_SEED: "4",
      RLVR_ROLLOUTS_GROUP_SIZE: "4",
    });
    expect(status).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({
      model: join(folder, "model"),
      verifier: "function verifier",
      steps: 7,
      seed: 5,
      optimizer: { learningRate: 1e-3 },
      rollouts: { groupSize: 4 },
    });
  });

  test("in sft takes --steps for sft.steps", () => {
    const config = JSON.parse(rlvr(["sft", folder, "--print-config", "--steps", "30"]).stdout);
    expect(config).toMatchObject({ steps: 7, sft: { steps: 30 } });
  });

  test("of a run gives its recorded settings, with no other flag than --steps", async () => {
    const run = await fabricateRun(folder, 3);
    const shown = rlvr(["train", "--resume", run, "--print-config", "--steps", "9"]);
    expect(JSON.parse(shown.stdout)).toMatchObject({ steps: 9, model: "/models/base", rollouts: { groupSize: 8 } });
    const refused = rlvr(["train", "--resume", run, "--seed", "3"]);
    expect(refused).toMatchObject({
      status: 2,
      stderr: expect.stringContaining("expected no other setting than --steps"),
    });
    const report = rlvr(["report", run, "--json"]);
    expect(JSON.parse(report.stdout)).toMatchObject({ event: "report", path: join(run, "report.html") });
    expect(readFileSync(join(run, "report.html"), "utf8")).toContain("<!doctype html>");
  });
});

describe("bad input", () => {
  const cases: [title: string, words: string[], status: number, says: (string | RegExp)[]][] = [
    ["an unknown flag", ["train", "--stpes", "3"], 2, ["RLVR_USAGE", "did you mean --steps?"]],
    ["a key without its section", ["train", "--learningRate", "1"], 2, ["did you mean --optimizer.learningRate?"]],
    ["an unknown command", ["trian"], 2, ["RLVR_USAGE", "did you mean train?"]],
    ["a flag of another command", ["eval", "x", "--resume", "y"], 2, ["unknown option '--resume'"]],
    ["a flag of the wrong type", ["train", "--steps", "many"], 2, ['--steps: expected an integer >= 1, got "many"']],
    ["a flag without its value", ["train", "--steps"], 2, ["RLVR_USAGE", "argument missing"]],
    [
      "a value out of range",
      ["train", "--rollouts.groupSize", "1"],
      1,
      ["RLVR_CONFIG_INVALID", "expected an integer >= 2, got 1"],
    ],
    [
      "a choice that is none",
      ["train", "--optimizer.schedule", "cos"],
      2,
      ['expected "constant", "linear" or "cosine"'],
    ],
    [
      "training under another distribution",
      ["train", "--rollouts.topP", "0.9"],
      1,
      ["rollouts.topP: expected 1 in training"],
    ],
    ["too many arguments", ["train", "a", "b"], 2, ["RLVR_USAGE"]],
    ["a missing argument", ["eval"], 2, ["missing required argument"]],
    ["a missing config", ["train", "nowhere"], 1, ["RLVR_CONFIG_MISSING", "next: give the folder"]],
    ["a missing run", ["train", "--resume", "nowhere"], 1, ["RLVR_RUN_MISSING"]],
    ["an unknown help topic", ["help", "optimiser"], 2, ["RLVR_USAGE"]],
  ];
  test.each(cases)("%s", (_, words, status, says) => {
    const result = rlvr(words);
    for (const text of says) expect(result.stderr).toMatch(text);
    expect(result.stderr).not.toContain("    at "); // no stack for an error that was foreseen
    expect(result).toMatchObject({ status, stdout: "" });
  });

  test("a config with mistakes tells all of them", () => {
    const file = join(folder, "wrong.config.ts");
    writeFileSync(
      file,
      `export default { model: 1, tasks: () => {}, verifier: () => {}, optimiser: { learningRate: 1 } };`,
    );
    const { stderr, status } = rlvr(["train", file]);
    expect(status).toBe(1);
    expect(stderr).toContain("2 problems");
    expect(stderr).toContain("model: expected a text that is not empty, got 1");
    expect(stderr).toContain("did you mean optimizer?");
  });

  test("a config that does not load tells its own error", () => {
    const file = join(folder, "broken.config.ts");
    writeFileSync(file, `import { tasks } from "./taks.ts"; export default { tasks };`);
    const { stderr, status } = rlvr(["train", file]);
    expect(status).toBe(1);
    expect(stderr).toContain("RLVR_CONFIG_LOAD");
    expect(stderr).toContain("taks.ts");
  });

  test("a mistyped variable", () => {
    const { stderr, status } = rlvr(["train"], { RLVR_STEPZ: "3" });
    expect({ status, stderr }).toMatchObject({
      status: 2,
      stderr: expect.stringContaining("did you mean RLVR_STEPS?"),
    });
  });

  test("with --json is a JSON line too", () => {
    for (const words of [
      ["train", "--json", "--stepz", "1"],
      ["train", "nowhere", "--json"],
    ]) {
      const { stdout, stderr } = rlvr(words);
      const event = JSON.parse(stdout);
      expect(event).toMatchObject({ event: "error", code: expect.stringMatching(/^RLVR_/), next: expect.any(String) });
      expect(stderr).toContain(event.message);
    }
  });
});

describe("Ctrl-C", () => {
  /** A session that ends when it is told to, or never, in a process of its own. */
  function session(work: string): Promise<{ status: number | null; stdout: string; stderr: string }> {
    const program = `
      const { withSession } = await import(${JSON.stringify(join(repository, "dist/cli/session.js"))});
      const keep = setInterval(() => {}, 1000);
      const code = await withSession(true, (session) => new Promise((done) => { ${work} console.log("ready"); }));
      clearInterval(keep);
      process.exitCode = code;`;
    return new Promise((done) => {
      const child = spawn(process.execPath, ["--input-type=module", "-e", program]);
      const result = { status: null as number | null, stdout: "", stderr: "" };
      child.stdout.on("data", (data) => {
        result.stdout += data;
        if (result.stdout === "ready\n") child.kill("SIGINT");
      });
      child.stderr.on("data", (data) => {
        result.stderr += data;
        if (work === "") child.kill("SIGINT");
      });
      // As a shell gives it: the second Ctrl-C ends the process by its signal.
      child.on("close", (code, signal) => done({ ...result, status: signal === "SIGINT" ? 130 : code }));
    });
  }

  test("once ends in order with the loop's own code", async () => {
    const event = `{ event: "interrupted", run: "runs/a", step: 3 }`;
    const result = await session(
      `session.signal.addEventListener("abort", () => { session.onEvent(${event}); session.last(${event}); done(130); });`,
    );
    expect(result).toMatchObject({ status: 130, stdout: 'ready\n{"event":"interrupted","run":"runs/a","step":3}\n' });
    expect(result.stderr).toContain("again to stop at once");
  });

  test("twice ends at once", async () => {
    expect(await session("")).toMatchObject({ status: 130, stdout: "ready\n" });
  });
});
