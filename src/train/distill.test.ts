import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { runState } from "../../test/e2e/run-state.ts";
import { startsWithWanted, toyDemonstrations, toyTasks, toyVerifier } from "../../test/fixtures/toy/parts.ts";
import { toyConfig } from "../../test/fixtures/toy/policy.ts";
import type { RlvrUserConfig } from "../config/index.ts";
import type { RunEvent } from "../runs/events.ts";
import { readRun } from "../runs/index.ts";
import type { Verifier } from "../verifiers/verifier.ts";
import { trainDistill } from "./distill.ts";
import { trainSft } from "./sft.ts";

type Distill = NonNullable<RlvrUserConfig["distill"]>;

let folder: string;
let teacher: string;
const signal = new AbortController().signal;
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "rlvr-distill-"));
  teacher = join(folder, "teacher");
  // A teacher that knows the toy well, of another shape.
  const from = { hiddenSize: 24, layers: 1, heads: 2, keyValueHeads: 2, intermediateSize: 32, maxPositions: 16 };
  const sft = { steps: 250, batchTokens: 160, optimizer: { learningRate: 1e-2 }, out: teacher, from };
  const config = toyConfig({ run: "teacher-run", runsFolder: folder, sft });
  await trainSft(config, { configPath: join(folder, "rlvr.config.ts"), signal, onEvent: () => {} });
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const optimizer = { learningRate: 1e-2, warmupSteps: 0 };

async function distill(
  run: string,
  distillKeys: Distill,
  keys: Partial<RlvrUserConfig> = {},
  { stopAt, resume = false }: { stopAt?: (event: RunEvent) => boolean; resume?: boolean } = {},
) {
  const events: RunEvent[] = [];
  const controller = new AbortController();
  const config = toyConfig({
    run,
    runsFolder: folder,
    evaluation: { beforeAndAfter: false },
    sft: { batchTokens: 96 },
    ...keys,
    distill: { teacher, optimizer, promptsPerStep: 8, samplesPerTask: 4, ...distillKeys },
  });
  const result = await trainDistill(config, {
    configPath: join(folder, "rlvr.config.ts"),
    signal: controller.signal,
    ...(resume ? { resume: join(folder, run) } : {}),
    onEvent: (event) => {
      events.push(event);
      if (stopAt?.(event)) controller.abort();
    },
  });
  return { result, events, view: readRun(result.run), json: (name: string) => readJson(join(result.run, name)) };
}

const readJson = (path: string) => JSON.parse(readFileSync(path, "utf8"));
const codeOf = (promise: Promise<unknown>) =>
  promise.then(
    () => "none",
    (error) => error.code,
  );

describe("on-policy distillation", () => {
  it.each<[string, Distill]>([
    ["reverse KL of sampled tokens", {}],
    ["exact reverse KL", { exact: true }],
    ["forward KL", { divergence: "forward-kl" }],
    ["generalised Jensen-Shannon", { divergence: "jsd", beta: 0.5 }],
  ])("%s: the student comes closer to the teacher", async (name, keys) => {
    const { view, json } = await distill(name.replaceAll(" ", "-"), { steps: 40, ...keys });
    const metrics = view.metrics();
    const measure = "divergence" in keys || "exact" in keys ? "distill/divergence" : "distill/reverse-kl";
    const mean = (from: number, to: number) =>
      metrics.slice(from, to).reduce((sum, record) => sum + (record[measure] as number), 0) / (to - from);
    expect(mean(35, 40)).toBeLessThan(0.75 * mean(0, 5));
    expect(Math.max(...metrics.map((record) => record["logprob/gap"] as number))).toBeLessThan(1e-3);
    const total = (metric: string) => metrics.reduce((sum, record) => sum + (record[metric] as number), 0);
    expect(json("costs.json")).toMatchObject({
      method: "distill on-policy",
      teacherTokens: total("tokens/teacher"),
      studentTokens: total("tokens/generated"),
      trainedTokens: total("tokens/trained"),
      updates: 40,
    });
  });

  it("lifts the reward, evaluates before and after, and records what it did", async () => {
    const evaluation = { tasks: 16, samplesPerTask: 8 };
    const { result, view, events } = await distill("lift", { steps: 60, exact: true }, { evaluation });
    const { before, after } = result.evaluation;
    expect(after?.passAt1.estimate).toBeGreaterThan((before?.passAt1.estimate ?? 1) + 0.2);
    expect(view.metrics().at(-1)?.["reward/mean"]).toBeGreaterThan(view.metrics()[0]["reward/mean"] as number);
    expect(view.manifest).toMatchObject({
      kind: "distill",
      method: "on-policy",
      objective: { divergence: "reverse-kl", exact: true },
      teacherHash: expect.stringMatching(/^[0-9a-f]{16}$/),
    });
    expect(view.rollouts(1)).toHaveLength(32);
    expect(events.map(({ event }) => event)).toContain("samples");
  });

  it("needs no verdicts, takes several updates a step, and continues bit for bit", async () => {
    const broken = (): Verifier => ({
      ...(toyVerifier(startsWithWanted) as Verifier),
      verify: async () => {
        throw new Error("must not be asked");
      },
    });
    const keys = { verifier: broken, updates: { epochsPerStep: 2, miniBatches: 2 }, checkpoints: { everySteps: 4 } };
    const settings: Distill = { steps: 10, judge: false };
    const whole = await distill("whole", settings, keys);
    expect(whole.view.rollouts(1)[0].outcome).toBe("unjudged");
    expect(whole.view.metrics()[0]).not.toHaveProperty("reward/mean");
    expect(whole.json("costs.json").updates).toBe(40);

    const stopAt = (event: RunEvent) => event.event === "step" && event.step === 6;
    const stopped = await distill("parts", settings, keys, { stopAt });
    expect(stopped.result).toMatchObject({ interrupted: true, steps: 6 });
    const ended = await distill("parts", settings, keys, { resume: true });
    expect(ended.events[0]).toMatchObject({ event: "start", resumedFrom: 6 });
    expect(runState(ended.result.run)).toEqual(runState(whole.result.run));
    const { seconds: _a, ...costs } = ended.json("costs.json");
    const { seconds: _b, ...expected } = whole.json("costs.json");
    expect(costs).toEqual(expected);
  });

  it("refuses a teacher with another tokenizer, and one that is not there", async () => {
    const recipe = join(import.meta.dirname, "../../recipes/transforms/model");
    expect(await codeOf(distill("other", { teacher: recipe }))).toBe("RLVR_TOKENIZERS_DIFFER");
    expect(await codeOf(distill("none", { teacher: undefined }))).toBe("RLVR_CONFIG_MISSING");
    expect(existsSync(join(folder, "other"))).toBe(false);
  });
});

describe("teacher responses", () => {
  const keys: Distill = { method: "responses", steps: 40, samplesPerTask: 6 };

  it("keeps what passes, trains on it, and counts the rest by reason", async () => {
    const evaluation = { tasks: 16, samplesPerTask: 8 };
    const { result, json, view } = await distill("verified", keys, { evaluation });
    const summary = json("responses.json");
    expect(summary.sampled).toBe(240);
    const dropped = Object.values(summary.dropped as Record<string, number>).reduce((sum, count) => sum + count, 0);
    expect(summary.kept + dropped).toBe(240);
    expect(summary.dropped.duplicate).toBeGreaterThan(100);
    expect(summary.acceptance).toBeCloseTo(summary.kept / 240, 12);
    expect(result.evaluation.after?.passAt1.estimate).toBeGreaterThan(
      (result.evaluation.before?.passAt1.estimate ?? 1) + 0.2,
    );
    expect(json("costs.json")).toMatchObject({
      method: "distill responses",
      teacherTokens: summary.teacherTokens,
      studentTokens: 0,
      updates: 40,
    });
    expect(view.manifest).toMatchObject({
      method: "responses",
      filter: "verified",
      teacherParameters: expect.any(Number),
    });
  });

  it("without a filter asks no verifier, and still leaves out what cannot be learned from", async () => {
    const seen: string[] = [];
    const verifier = () => toyVerifier((completion) => seen.push(completion) > 0);
    const { json } = await distill(
      "unfiltered",
      { ...keys, filter: "none", temperature: 3, maxTokens: 2 },
      { verifier },
    );
    expect(seen).toEqual([]);
    const { dropped, kept, sampled } = json("responses.json");
    expect(dropped.truncated).toBeGreaterThan(0);
    expect(Object.keys(dropped).sort()).toEqual(["duplicate", "empty", "truncated"]);
    expect(kept).toBeLessThan(sampled);
  });

  it("asks only once for what it has, and continues bit for bit", async () => {
    const tasks = toyTasks(1);
    // More than one part of tasks.
    const train = [...tasks.train, ...tasks.train.map((task) => ({ ...task, id: `${task.id}-again` }))];
    const more = { tasks: { ...tasks, train }, sft: { batchTokens: 96, heldOutShare: 0.2, evaluateEverySteps: 10 } };
    const whole = await distill("whole-responses", keys, more);
    expect(whole.view.metrics()[0]["heldout/loss"]).toBeGreaterThan(0);

    let asked = 0;
    const stopAt = (event: RunEvent) => event.event === "progress" && event.done > 0 && ++asked === 1;
    const first = await distill("part-responses", keys, more, { stopAt });
    expect(first.result).toMatchObject({ interrupted: true, steps: 0 });
    expect(readdirSync(join(first.result.run, "responses"))).toEqual(["part-000000.jsonl.gz"]);
    const before = readFileSync(join(first.result.run, "responses/part-000000.jsonl.gz"));
    const second = await distill("part-responses", keys, more, {
      resume: true,
      stopAt: (event) => event.event === "step" && event.step === 20,
    });
    expect(second.result).toMatchObject({ interrupted: true, steps: 20 });
    const last = await distill("part-responses", keys, more, { resume: true });
    expect(readFileSync(join(first.result.run, "responses/part-000000.jsonl.gz"))).toEqual(before);
    expect(last.json("responses.json").hash).toBe(whole.json("responses.json").hash);
    expect(runState(last.result.run)).toEqual(runState(whole.result.run));
  });

  it("says why nothing is left", async () => {
    const verifier = () => toyVerifier(() => false);
    await expect(distill("nothing", keys, { verifier })).rejects.toMatchObject({
      code: "RLVR_RESPONSES_EMPTY",
      message: expect.stringMatching(/got none of 240 \(.*failed.*\)/),
    });
    expect(await codeOf(distill("both", { ...keys, server: { url: "http://127.0.0.1:1" } }))).toBe(
      "RLVR_CONFIG_MISSING",
    );
  });

  it("takes a server as teacher, whose tokenizer is its own business", async () => {
    let requests = 0;
    const server = createServer((request, response) => {
      let body = "";
      request.on("data", (part) => {
        body += part;
      });
      request.on("end", () => {
        requests++;
        const { prompt, n } = JSON.parse(body);
        // One answer at a time, now and then a busy moment.
        if (requests % 7 === 3) return response.writeHead(503, { "retry-after": "0" }).end();
        const text = n % 2 === 0 ? prompt.at(-1) : "h";
        response.end(JSON.stringify({ choices: [{ text, finish_reason: "stop" }], usage: { prompt_tokens: 2 } }));
      });
    });
    await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`;
    try {
      const { json, view } = await distill("server", {
        ...keys,
        teacher: undefined,
        samplesPerTask: 2,
        steps: 20,
        tasks: 10,
        server: { url, model: "some", concurrency: 3 },
      });
      expect(json("responses.json")).toMatchObject({ sampled: 20, tasks: 10 });
      expect(json("responses.json").kept).toBeGreaterThanOrEqual(9);
      // Two tokens of prompt and one of answer for each of 20 requests.
      expect(json("costs.json")).toMatchObject({ teacherTokens: 60, flops: { teacher: null, total: null } });
      expect(view.manifest.teacherServer).toEqual({ url, model: "some" });
    } finally {
      server.close();
    }
  });
});

describe("continued training on a mix", () => {
  const demonstrations = (seed: number) => [
    ...toyDemonstrations(seed).map((demonstration) => ({ ...demonstration, dataset: "last" })),
    ...toyDemonstrations(seed).map(({ prompt }) => ({ prompt, completion: String(prompt[0]), dataset: "first" })),
    { prompt: "a", completion: "b" },
  ];
  const keys: Distill = { method: "continue", steps: 30, teacher: undefined };

  it("records the mix with its hashes, and trains in its shares", async () => {
    const mix = { last: 3, first: 1 };
    const sft = { batchTokens: 96, heldOutShare: 0.2, evaluateEverySteps: 10 };
    const { view, json, events } = await distill("mix", { ...keys, mix }, { demonstrations, sft });
    const [last, first] = view.manifest.datasets as Record<string, unknown>[];
    expect(last).toMatchObject({ name: "last", share: 0.75, demonstrations: 32, tokens: 128 });
    expect(first).toMatchObject({ name: "first", share: 0.25, hash: expect.stringMatching(/^[0-9a-f]{16}$/) });
    expect(view.manifest).toMatchObject({ objective: "next token, answers only", method: "continue" });
    const losses = view.metrics().map((metrics) => metrics["heldout/loss/last"] as number);
    expect(losses.at(-1)).toBeLessThan(losses[0]);
    expect(view.metrics()[0]).toHaveProperty(["heldout/loss/first"]);
    expect(json("costs.json")).toMatchObject({ method: "distill continue", teacherTokens: 0, updates: 30 });
    expect(events.find(({ event }) => event === "plan")).toMatchObject({
      values: { "dataset last": "32 (75 % of tokens)" },
    });
  });

  it("is the same when it is interrupted", async () => {
    const mix = { first: 0.5, default: 0.5 };
    const sft = { batchTokens: 64, promptLoss: true };
    const whole = await distill("whole-mix", { ...keys, mix }, { demonstrations, sft });
    const stopAt = (event: RunEvent) => event.event === "step" && event.step === 10;
    await distill("parts-mix", { ...keys, mix }, { demonstrations, sft }, { stopAt });
    const ended = await distill("parts-mix", { ...keys, mix }, { demonstrations, sft }, { resume: true });
    expect(runState(ended.result.run)).toEqual(runState(whole.result.run));
    expect(whole.view.manifest.objective).toBe("next token, all tokens");
  });

  it("says which datasets there are", async () => {
    await expect(distill("typo", { ...keys, mix: { lest: 1 } }, { demonstrations })).rejects.toMatchObject({
      code: "RLVR_MIX",
      next: expect.stringContaining("last, first, default"),
    });
    expect(await codeOf(distill("no-mix", keys, { demonstrations }))).toBe("RLVR_CONFIG_MISSING");
    expect(() => toyConfig({ distill: { mix: { a: 0 } } })).toThrow("distill.mix.a");
  });
});
