/** What users get wrong: each is one clear error with what was expected, what came and what to do, and nothing is lost. */
import {
  cpSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { json, Running, rlvr, toy } from "./process.ts";
import { runState, toyVariant } from "./run-state.ts";

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "rlvr-bad-input-"));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** A copy of the toy's model, spoilt. */
function spoilt(name: string, spoil: (path: string) => void): string {
  const path = join(folder, name);
  cpSync(join(toy, "model"), path, { recursive: true });
  spoil(path);
  return path;
}

// biome-ignore lint/suspicious/noExplicitAny: files of any shape.
function editJson(path: string, edit: (value: any) => void): void {
  const value = JSON.parse(readFileSync(path, "utf8"));
  edit(value);
  writeFileSync(path, JSON.stringify(value));
}

async function refusal(words: string[]) {
  const ended = await rlvr([...words, "--json"], folder);
  const lines = ended.lines();
  const error = lines.at(-1);
  expect(error).toMatchObject({ event: "error", code: expect.any(String), next: expect.any(String) });
  // The same is said to people.
  expect(ended.stderr).toContain(error?.code);
  expect(ended.stderr).toContain(error?.message);
  expect(ended.stderr).toContain(`next: ${error?.next}`);
  expect(ended.stderr).not.toContain("    at "); // no stack
  return { status: ended.status, lines, code: error?.code as string, message: error?.message as string };
}

describe("a model folder", () => {
  const cases: [title: string, spoil: (path: string) => void, code: string, says: RegExp][] = [
    [
      "that is missing",
      (path) => rmSync(path, { recursive: true }),
      "RLVR_MODEL_FILE",
      /expected a folder .* got .*nothing there/,
    ],
    [
      "without weights",
      (path) => rmSync(join(path, "model.safetensors")),
      "RLVR_MODEL_FILE",
      /expected .*model\.safetensors.* got/,
    ],
    [
      "without tokenizer",
      (path) => rmSync(join(path, "tokenizer.json")),
      "RLVR_TOKENIZER_MISSING",
      /expected the tokenizer .* got no such file/,
    ],
    [
      "with weights that were cut short",
      (path) => truncateSync(join(path, "model.safetensors"), 15_000),
      "RLVR_SAFETENSORS",
      /model\.safetensors.*expected .* got/,
    ],
    [
      "with weights of another shape",
      (path) => editJson(join(path, "config.json"), (config) => Object.assign(config, { intermediate_size: 48 })),
      "RLVR_MODEL_WEIGHTS",
      /expected \[48,16\], got \[32,16\]/,
    ],
    [
      "with a layer too few",
      (path) => editJson(join(path, "config.json"), (config) => Object.assign(config, { num_hidden_layers: 3 })),
      "RLVR_MODEL_WEIGHTS",
      /expected 9 more tensors, got none named model\.layers\.2/,
    ],
    [
      "whose tokenizer has more tokens than the vocabulary",
      (path) => editJson(join(path, "tokenizer.json"), ({ model }) => Object.assign(model.vocab, { i: 10, j: 11 })),
      "RLVR_VOCABULARY",
      /expected 1 to 10 tokens .* got 12/,
    ],
    [
      "with a config.json that is none",
      (path) => writeFileSync(join(path, "config.json"), "{"),
      "RLVR_MODEL_FILE",
      /config\.json.*expected .* got/,
    ],
  ];
  test.each(cases)("%s", async (title, spoil, code, says) => {
    const model = spoilt(title.replaceAll(" ", "-"), spoil);
    const train = await refusal(["train", toy, "--model", model, "--run", "never"]);
    expect(train).toMatchObject({ status: 1, code });
    expect(train.message).toMatch(says);
    expect(existsSync(join(folder, "runs/never"))).toBe(false);
    expect(await refusal(["eval", model, "--config", toy])).toMatchObject({ status: 1, code, message: train.message });
  });
});

describe("tasks", () => {
  const cases: [title: string, keys: string, code: string, says: RegExp][] = [
    [
      "none",
      "tasks: () => ({ train: [], validation: [], test: [] })",
      "RLVR_TASKS_EMPTY",
      /tasks\.train: expected at least one task, got none/,
    ],
    [
      "none to evaluate",
      "tasks: (seed) => ({ ...parts.toyTasks(seed), test: [] })",
      "RLVR_TASKS_EMPTY",
      /tasks\.test: expected at least one task, got none/,
    ],
    ["of no shape", "tasks: () => []", "RLVR_TASKS_SHAPE", /tasks\.train: expected a list of tasks, got undefined/],
    [
      "with a prompt longer than the context",
      `tasks: (seed) => {
        const tasks = parts.toyTasks(seed);
        return { ...tasks, train: tasks.train.map((task, i) => (i === 3 ? { ...task, prompt: "a".repeat(20) } : task)) };
      }`,
      "RLVR_PROMPT_LENGTH",
      /task pair-.*: expected a prompt of 1 to 15 tokens .* got 20/,
    ],
    [
      "on two sides",
      "tasks: (seed) => { const tasks = parts.toyTasks(seed); return { ...tasks, test: tasks.train }; }",
      "RLVR_TASKS_ID",
      /expected unique ids, got repeats/,
    ],
  ];
  test.each(cases)("%s", async (title, keys, code, says) => {
    const config = toyVariant(folder, title.replaceAll(" ", "-"), keys);
    const result = await refusal(["train", config, "--run", "never"]);
    expect(result).toMatchObject({ status: 1, code });
    expect(result.message).toMatch(says);
    expect(existsSync(join(folder, "runs/never"))).toBe(false);
  });
});

describe("a config", () => {
  test("with a mistyped key, or a mistyped flag", async () => {
    const config = toyVariant(folder, "mistyped", "optimizer: { learningrate: 1 }");
    const file = await refusal(["train", config]);
    expect(file).toMatchObject({ status: 1, code: "RLVR_CONFIG_INVALID" });
    expect(file.message).toContain("did you mean optimizer.learningRate?");
    const flag = await refusal(["train", toy, "--optimizer.learningrate", "1"]);
    expect(flag).toMatchObject({ status: 2, code: "RLVR_USAGE" });
    expect(flag.message).toContain("did you mean --optimizer.learningRate?");
  });

  test("whose verifier cannot be made leaves an error and no run", async () => {
    const config = toyVariant(folder, "no-verifier", `verifier: () => { throw new Error("no license"); }`);
    const ended = await rlvr(["train", config, "--run", "never", "--json"], folder);
    expect(ended.status).toBe(1);
    expect(ended.lines().at(-1)).toMatchObject({ event: "error", message: expect.stringContaining("no license") });
    expect(existsSync(join(folder, "runs/never"))).toBe(false);
  });

  test("without demonstrations, in sft", async () => {
    const none = await refusal(["sft", toyVariant(folder, "none", "demonstrations: undefined")]);
    expect(none).toMatchObject({ status: 1, code: "RLVR_CONFIG_MISSING" });
    const empty = await refusal(["sft", toyVariant(folder, "empty", "demonstrations: () => []")]);
    expect(empty).toMatchObject({ status: 1, code: "RLVR_DEMONSTRATIONS_EMPTY" });
    const long = `demonstrations: () => [{ prompt: "a", completion: "b" }, { prompt: "a", completion: "b".repeat(30) }]`;
    const tooLong = await refusal(["sft", toyVariant(folder, "long", long)]);
    expect(tooLong).toMatchObject({ status: 1, code: "RLVR_DEMONSTRATION_LENGTH" });
    expect(tooLong.message).toMatch(/demonstration 1: expected .* at most 16 tokens/);
  });
});

describe("a run", () => {
  const few = ["--steps", "2", "--evaluation.tasks", "2"];

  test("that exists is not touched", async () => {
    await json(["train", toy, "--run", "mine", ...few], folder);
    const before = runState(join(folder, "runs/mine"));
    const result = await refusal(["train", toy, "--run", "mine", ...few]);
    expect(result).toMatchObject({ status: 1, code: "RLVR_RUN_EXISTS" });
    expect(result.message).toMatch(/expected a new name, got "mine"/);
    expect(runState(join(folder, "runs/mine"))).toEqual(before);
  });

  test("of training is not continued as one of sft, nor with another model", async () => {
    await json(["train", toy, "--run", "trained", ...few], folder);
    expect(await refusal(["sft", "--resume", "runs/trained"])).toMatchObject({ status: 2, code: "RLVR_USAGE" });
    const other = await refusal(["train", "--resume", "runs/trained", "--model", "elsewhere"]);
    expect(other).toMatchObject({ status: 2, code: "RLVR_USAGE" });
  });

  test("belongs to one process at a time", async () => {
    const waits = `verifier: () => {
      const verifier = parts.toyVerifier(parts.startsWithWanted);
      return { ...verifier, verify: async (items) => {
        await new Promise((done) => setTimeout(done, 1500));
        return verifier.verify(items);
      } };
    }`;
    const first = new Running(["train", toyVariant(folder, "waits", waits), "--run", "held", ...few, "--json"], folder);
    await first.until(({ stdout }) => stdout.includes('"event":"checkpoint"'));
    const second = await refusal(["train", "--resume", "runs/held"]);
    expect(second).toMatchObject({ status: 1, code: "RLVR_RUN_LOCKED" });
    expect(second.message).toContain(`in use by process ${first.pid} `);
    const ended = await first.ended;
    expect(ended).toMatchObject({ status: 0, stderr: "" });
    await json(["train", toy, "--run", "free", ...few], folder);
    expect(runState(join(folder, "runs/held"))).toEqual(runState(join(folder, "runs/free")));
    expect(readdirSync(join(folder, "runs/held")).filter((name) => name.includes("lock"))).toEqual([]);
  });

  test("without a checkpoint to evaluate", async () => {
    const result = await refusal(["eval", "runs", "--config", toy]);
    expect(result).toMatchObject({ status: 1, code: "RLVR_MODEL_FILE" });
  });
});

describe("a full disk", () => {
  const words = ["--steps", "45", "--evaluation.tasks", "2"];

  test.each([
    // metrics.jsonl has 40 kB after some 36 steps.
    ["in the middle of a run", 40, "metrics.jsonl"],
    // The optimizer's file has 39 kB: not even the first checkpoint fits.
    ["from the start", 30, "step-000000"],
  ])("%s: ends it with an error, and --resume finishes the same run", async (title, kilobytes, file) => {
    const name = title.replaceAll(" ", "-");
    const ended = await new Running(["train", toy, "--run", name, ...words, "--json"], folder, kilobytes).ended;
    expect(ended.status).toBe(1);
    const error = ended.lines().at(-1);
    expect(error).toMatchObject({
      event: "error",
      code: "RLVR_WRITE_FAILED",
      next: expect.stringContaining("--resume"),
    });
    expect(error?.message).toContain(file);
    await json(["train", "--resume", join("runs", name)], folder);
    if (!existsSync(join(folder, "runs/roomy"))) await json(["train", toy, "--run", "roomy", ...words], folder);
    expect(runState(join(folder, "runs", name))).toEqual(runState(join(folder, "runs/roomy")));
  });
});
