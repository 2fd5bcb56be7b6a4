/** `rlvr distill` as a process: killed, interrupted, continued, and what it prints. */
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { json, Running, repository, rlvr, toy } from "./process.ts";
import { runState, toyVariant } from "./run-state.ts";

let folder: string;
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "rlvr-distill-e2e-"));
  await json(["sft", toy, "--run", "teacher-run", "--steps", "200", "--out", "teacher"], folder);
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const run = (name: string) => join(folder, "runs", name);
const common = ["--teacher", "teacher", "--distill.optimizer.learningRate", "1e-2", "--checkpoints.everySteps", "1"];

/** Starts a run, kills it with SIGKILL at these lines of its output, and lets it finish; gives how often it was alive. */
async function killed(name: string, words: string[], moments: number[]): Promise<number> {
  let alive = 0;
  for (const lines of moments) {
    const start = existsSync(run(name)) ? ["--resume", join("runs", name)] : [toy, "--run", name, ...words];
    const running = new Running(["distill", ...start, "--json"], folder);
    await running.until((now) => now.lineCount() >= lines);
    running.kill("SIGKILL");
    const { status, stderr } = await running.ended;
    expect(stderr).toBe("");
    if (status === 128 + 9) alive++;
  }
  const last = await json(["distill", "--resume", join("runs", name)], folder);
  expect(last.at(-1)).toMatchObject({ event: "done", run: join("runs", name) });
  return alive;
}

describe("kill -9 and --resume end as an uninterrupted run", () => {
  test("on-policy", async () => {
    const words = [...common, "--steps", "30", "--distill.exact", "true"];
    const lines = await json(["distill", toy, "--run", "whole", ...words], folder);
    expect(await killed("killed", words, [1, 12, 20])).toBeGreaterThanOrEqual(2);
    expect(runState(run("killed"))).toEqual(runState(run("whole")));
    expect(runState(run("whole")).metrics).toHaveLength(30);

    expect(lines.map(({ event }) => event)).toEqual(expect.arrayContaining(["start", "plan", "step", "checkpoint"]));
    expect(lines.at(-1)).toMatchObject({
      event: "done",
      steps: 30,
      model: join("runs", "whole", "checkpoints", "step-000030"),
      evaluation: { before: { tasks: 16 }, after: { tasks: 16 } },
    });
    const [before, after] = lines.filter(({ event }) => event === "evaluation");
    expect([before.when, after.when]).toEqual(["before", "after"]);
    const ids = ({ evaluation }: (typeof lines)[0]) => evaluation.perTask.map(({ id }: { id: string }) => id);
    expect(ids(before)).toEqual(ids(after));
    expect(JSON.parse(readFileSync(join(run("whole"), "costs.json"), "utf8"))).toMatchObject({ updates: 30 });
    expect(readFileSync(join(run("whole"), "report.html"), "utf8")).toContain("pass@1");
  });

  test("responses", async () => {
    const words = [...common, "--method", "responses", "--steps", "120", "--sft.heldOutShare", "0.2"];
    words.push("--sft.evaluateEverySteps", "5", "--sft.patience", "4");
    await json(["distill", toy, "--run", "whole-text", ...words], folder);
    expect(await killed("killed-text", words, [1, 8, 14])).toBeGreaterThanOrEqual(2);
    expect(runState(run("killed-text"))).toEqual(runState(run("whole-text")));
    expect(existsSync(join(run("killed-text"), "best"))).toBe(false);
  });
});

test("Ctrl-C saves, says how to go on, and the trained model goes where it was wanted", async () => {
  const slow = `verifier: () => {
    const verifier = parts.toyVerifier(parts.startsWithWanted);
    return { ...verifier, verify: async (items) => {
      await new Promise((done) => setTimeout(done, 60));
      return verifier.verify(items);
    } };
  }`;
  const config = toyVariant(folder, "slow", slow);
  const running = new Running(["distill", config, "--run", "stopped", ...common, "--steps", "20"], folder);
  await running.until(({ stdout }) => stdout.includes("step 5/20"));
  running.kill("SIGINT");
  const { status, stdout } = await running.ended;
  expect(status).toBe(130);
  expect(stdout).toContain(`next: rlvr distill --resume ${join("runs", "stopped")}`);
  const lines = await json(["distill", "--resume", "runs/stopped", "--steps", "12"], folder);
  expect(lines.at(-1)).toMatchObject({ event: "done", steps: 12 });

  const shown = await rlvr(["distill", toy, "--run", "out", ...common, "--steps", "3", "--out", "trained"], folder);
  expect(shown.stdout).toContain("method on-policy");
  expect(shown.stdout).toMatch(/gain {12}[+-]\d/);
  expect(existsSync(join(folder, "trained", "tokenizer.json"))).toBe(true);
});

test("mistakes are told before anything is written", async () => {
  const recipe = join(repository, "recipes/transforms/model");
  const other = await rlvr(["distill", toy, "--run", "mistake", "--teacher", recipe], folder);
  expect(other.status).toBe(1);
  expect(other.stderr).toContain("RLVR_TOKENIZERS_DIFFER");
  expect(other.stderr).toContain("distill.method responses");
  const nobody = await rlvr(["distill", toy, "--run", "mistake"], folder);
  expect([nobody.status, nobody.stderr]).toEqual([1, expect.stringContaining("distill.teacher")]);
  const mix = await rlvr(["distill", toy, "--distill.mix", "code"], folder);
  expect([mix.status, mix.stderr]).toEqual([2, expect.stringContaining("first=0.7,second=0.3")]);
  expect(existsSync(run("mistake"))).toBe(false);
  const wrong = await rlvr(["train", "--resume", "runs/teacher-run"], folder);
  expect([wrong.status, wrong.stderr]).toEqual([2, expect.stringContaining("rlvr sft --resume")]);
});

test("a mix given by a flag is recorded and kept when the run is continued", async () => {
  const config = toyVariant(
    folder,
    "mix",
    `demonstrations: (seed) => parts.toyDemonstrations(seed).map((one, i) => ({ ...one, dataset: i % 2 ? "odd" : "even" }))`,
  );
  const words = ["--method", "continue", "--distill.mix", "odd=1,even=3", "--evaluation.beforeAndAfter", "false"];
  await json(["distill", config, "--run", "mixed", ...words, "--steps", "4"], folder);
  const recorded = JSON.parse(readFileSync(join(run("mixed"), "config.json"), "utf8"));
  expect(recorded.config.distill.mix).toEqual({ odd: 1, even: 3 });
  const lines = await json(["distill", "--resume", "runs/mixed", "--steps", "8"], folder);
  expect(lines.at(-1)).toMatchObject({ event: "done", steps: 8 });
  expect(lines.find(({ event }) => event === "plan")?.values).toHaveProperty(["dataset even"]);
});
