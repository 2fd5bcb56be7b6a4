import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  configFields,
  configJsonSchema,
  defineConfig,
  describeConfig,
  loadConfig,
  parseConfig,
  plainValues,
} from "./index.ts";
import { editDistance, nearest } from "./nearest.ts";
import { configProblems } from "./parse.ts";

const tasks = (_seed: number) => ({ train: [], validation: [], test: [] });
const verifier = () => {
  throw new Error("not called");
};
const minimal = { model: "model", tasks, verifier };

async function failure(promise: Promise<unknown>): Promise<Error & { code?: string; next?: string }> {
  return promise.then(
    () => new Error("nothing was thrown"),
    (error) => error,
  );
}

describe("schema", () => {
  test("fills in every default", () => {
    const config = parseConfig(minimal);
    expect(config.optimizer.learningRate).toBe(1e-4);
    expect(config.sft.optimizer.learningRate).toBe(1e-3);
    expect(config.rollouts).toMatchObject({ promptsPerStep: 32, groupSize: 8, topP: 1, topK: 0 });
    expect(config.evaluation.maxTokens).toBe(config.rollouts.maxTokens);
    expect(parseConfig({ ...minimal, evaluation: { maxTokens: 7 } }).evaluation.maxTokens).toBe(7);
  });

  test("describes every key, and gives every key but the paths and optional ones a default", () => {
    const fields = configFields();
    expect(fields.filter((field) => field.description === "")).toEqual([]);
    const open = fields.filter((field) => field.default === undefined).map((field) => field.path);
    // Constants of the objective come from its preset; a new model and a teacher have no usual values.
    const preset = ["sft.from.", "objective.", "distill.", "curriculum.hardTemperature"];
    expect(open.filter((path) => !preset.some((prefix) => path.startsWith(prefix)))).toEqual([
      "model",
      "run",
      "evaluation.maxTokens",
      "sft.maxTokens",
      "sft.out",
    ]);
  });

  test("gives every key its own environment variable", () => {
    const variables = configFields().map((field) => field.variable);
    expect(new Set(variables).size).toBe(variables.length);
    expect(variables).toContain("RLVR_OPTIMIZER_LEARNING_RATE");
  });

  test("exports a JSON Schema that refuses unknown keys", () => {
    const schema = configJsonSchema() as { additionalProperties: boolean; required: string[] };
    expect(schema.additionalProperties).toBe(false);
    expect(schema.required).toEqual(["model", "tasks", "verifier"]);
  });
});

describe("problems", () => {
  const messages = (value: unknown) => configProblems(value).map((problem) => problem.message);

  test("are all told, with the nearest key", () => {
    const found = messages({
      ...minimal,
      model: 3,
      optimiser: {},
      optimizer: { learningRte: 1, beta1: 1, schedule: "cos", warmupSteps: 1.5 },
      groupSize: 4,
    });
    expect(found).toEqual([
      "model: expected a text that is not empty, got 3",
      "optimizer.beta1: expected a number >= 0 and < 1, got 1",
      "optimizer.warmupSteps: expected an integer >= 0, got 1.5",
      'optimizer.schedule: expected "constant", "linear" or "cosine", got "cos"',
      'optimizer.learningRte: expected a known key, got "learningRte"; did you mean optimizer.learningRate?',
      'optimiser: expected a known key, got "optimiser"; did you mean optimizer?',
      'groupSize: expected a known key, got "groupSize"; did you mean rollouts.groupSize?',
    ]);
  });

  test("include what is missing and rules across keys", () => {
    expect(messages({ rollouts: { topP: 0.9, topK: 5 }, alerts: { logprobGapStop: 1e-4 } })).toEqual([
      "model: expected a text that is not empty, got nothing",
      "tasks: expected a function (seed) => task set, or { train, validation, test } with a list of tasks each, got nothing",
      "verifier: expected a function () => verifier, got nothing",
      "rollouts.topP: expected 1 in training (log-probabilities must be under the distribution that was sampled), got 0.9",
      "rollouts.topK: expected 0 (off) in training (log-probabilities must be under the distribution that was sampled), got 5",
      "alerts.logprobGapStop: expected at least alerts.logprobGapWarn (0.001), got 0.0001",
    ]);
    const from = { hiddenSize: 10, layers: 1, heads: 4, keyValueHeads: 3, intermediateSize: 8, maxPositions: 16 };
    expect(messages({ ...minimal, sft: { from } })).toEqual([
      "sft.from.heads: expected a divisor of hiddenSize (10), got 4",
      "sft.from.keyValueHeads: expected a divisor of heads (4), got 3",
    ]);
    expect(messages({ ...minimal, run: "../x", objective: { ddof: 2 }, engine: 4 })).toEqual([
      `run: expected a name of letters, digits, '.', '_' and '-', got "../x"`,
      "objective.ddof: expected 0 or 1, got 2",
      "engine: expected an object, got 4",
    ]);
    expect(messages(null)).toEqual(["config: expected an object, got null"]);
  });

  test("suggest by edit distance", () => {
    expect(editDistance("kitten", "sitting")).toBe(3);
    expect(editDistance("setps", "steps")).toBe(1);
    expect(nearest("Seed", ["steps", "seed"])).toBe("seed");
    expect(nearest("zzzzzz", ["steps", "seed"])).toBeUndefined();
  });
});

describe("loadConfig", () => {
  let folder: string;
  const environment = {};
  const body = "tasks: () => ({ train: [], validation: [], test: [] }), verifier: function mine() { throw 1; }";
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), "rlvr-config-"));
    writeFileSync(join(folder, "helper.ts"), "export const rate: number = 2e-4;");
    writeFileSync(
      join(folder, "rlvr.config.ts"),
      `import { defineConfig } from "rlvr";
       import { rate } from "./helper.ts";
       export default defineConfig({ model: "model", ${body}, steps: 7, optimizer: { learningRate: rate } });`,
    );
    writeFileSync(join(folder, "broken.config.ts"), `import { x } from "./absent.ts"; export default { steps: x };`);
    writeFileSync(join(folder, "empty.config.ts"), "export const config = 1;");
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));
  const load = (path: string, options = {}) =>
    loadConfig(path, { environment, modules: { rlvr: { defineConfig } }, ...options });

  test("takes a folder or a file, and paths relative to it", async () => {
    const { config, configPath } = await load(folder);
    expect(configPath).toBe(join(folder, "rlvr.config.ts"));
    expect(config.model).toBe(join(folder, "model"));
    expect(config.steps).toBe(7);
    expect(config.optimizer.learningRate).toBe(2e-4);
    expect((await load(configPath)).config.steps).toBe(7);
  });

  test("puts defaults < file < environment < flags", async () => {
    const { config } = await load(folder, {
      environment: { RLVR_STEPS: "8", RLVR_SEED: "5", RLVR_DEBUG: "1", RLVR_EVALUATION_BEFORE_AND_AFTER: "false" },
      flags: { seed: "6", "optimizer.schedule": "cosine", model: "here" },
    });
    expect(config).toMatchObject({ steps: 8, seed: 6, optimizer: { learningRate: 2e-4, schedule: "cosine" } });
    expect(config.evaluation.beforeAndAfter).toBe(false);
    expect(config.model).toBe(join(process.cwd(), "here"));
  });

  test("refuses bad flags and variables with the nearest one", async () => {
    expect(await failure(load(folder, { flags: { "optimizer.lerningRate": "1" } }))).toMatchObject({
      code: "RLVR_USAGE",
      message: expect.stringContaining("did you mean optimizer.learningRate?"),
    });
    expect(await failure(load(folder, { flags: { steps: "many" } }))).toMatchObject({
      code: "RLVR_USAGE",
      message: '--steps: expected an integer >= 1, got "many"',
    });
    expect(await failure(load(folder, { environment: { RLVR_STEPZ: "3" } }))).toMatchObject({
      code: "RLVR_USAGE",
      message: expect.stringContaining("did you mean RLVR_STEPS?"),
    });
    expect(await failure(load(folder, { flags: { steps: "0" } }))).toMatchObject({
      code: "RLVR_CONFIG_INVALID",
      message: expect.stringContaining("steps: expected an integer >= 1, got 0"),
    });
  });

  test("tells a missing file from a file that does not load", async () => {
    expect(await failure(load(join(folder, "nowhere")))).toMatchObject({ code: "RLVR_CONFIG_MISSING" });
    expect(await failure(load(tmpdir()))).toMatchObject({ code: "RLVR_CONFIG_MISSING" });
    const broken = await failure(load(join(folder, "broken.config.ts")));
    expect(broken).toMatchObject({ code: "RLVR_CONFIG_LOAD", message: expect.stringContaining("absent.ts") });
    expect(await failure(load(join(folder, "empty.config.ts")))).toMatchObject({
      code: "RLVR_CONFIG_LOAD",
      message: expect.stringContaining("to export a config as default, got nothing"),
    });
  });

  test("recorded values replace the file's and the environment's plain ones", async () => {
    const before = await load(folder, { flags: { steps: "3", "alerts.deadSteps": "9", "sft.out": "out" } });
    const described = describeConfig(before.config);
    expect(described.verifier).toBe("function mine");
    const recorded = plainValues(JSON.parse(JSON.stringify(described)));
    const after = await load(folder, { recorded, environment: { RLVR_STEPS: "99" } });
    expect(describeConfig(after.config)).toEqual(described);
    expect(typeof after.config.tasks).toBe("function");
    const longer = await load(folder, { recorded, flags: { steps: 12 } });
    expect(longer.config).toMatchObject({ steps: 12, alerts: { deadSteps: 9 } });
  });
});
