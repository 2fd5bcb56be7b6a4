import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { startsWithWanted, toyTasks, toyVerifier } from "../../test/fixtures/toy/parts.ts";
import { toyPolicy } from "../../test/fixtures/toy/policy.ts";
import type { LocalPolicy } from "../policy/local.ts";
import type { Verdict, Verifier, VerifyItem } from "../verifiers/verifier.ts";
import { rolloutMetrics } from "./metrics.ts";
import { type Rollout, rewardOf, toRecord } from "./rollout.ts";
import { sampleGroups } from "./sample.ts";

let policy: LocalPolicy;
beforeAll(async () => {
  policy = await toyPolicy();
});
afterAll(() => policy.close());

const tasks = toyTasks(1).train.slice(0, 4);
const settings = {
  groupSize: 4,
  sampler: { temperature: 1, topP: 1, topK: 0, maxTokens: 3 },
  key: [1, 1, 0] as const,
  purpose: "reward" as const,
};
const honest = toyVerifier(startsWithWanted);

/** A verifier that answers with whatever a function makes of the honest verdicts. */
function verifier(answer: (verdicts: Verdict[], items: VerifyItem[], call: number) => unknown): Verifier {
  let calls = 0;
  return {
    ...honest,
    verify: async (items) => answer(await honest.verify(items as never), items, ++calls) as Verdict[],
  } as Verifier;
}

const error = { outcome: "error", score: 0, components: {}, evidence: {} };
const outcomes = (groups: Rollout[][]) => groups.flat().map(({ verdict }) => verdict.outcome);

describe("sampleGroups", () => {
  it("gives a group a task, with what made each completion", async () => {
    const { groups, retries } = await sampleGroups(policy, honest, tasks, settings);
    expect(groups).toHaveLength(4);
    expect(retries).toBe(0);
    const version = await policy.version();
    groups.forEach((group, g) => {
      expect(group.map(({ sample }) => sample)).toEqual([0, 1, 2, 3]);
      for (const rollout of group) {
        expect(rollout.task).toBe(tasks[g]);
        expect(rollout.prompt).toEqual(policy.encode(tasks[g].prompt));
        expect(rollout.logprobs).toHaveLength(rollout.tokens.length);
        expect(rollout.logprobs.every((logprob) => logprob <= 0)).toBe(true);
        expect(rollout).toMatchObject({ policy: version, sampler: settings.sampler });
        const ended = rollout.tokens.at(-1) === policy.tokenizer.eosIds[0];
        expect(rollout.finish).toBe(ended ? "stop" : "length");
        expect(rollout.tokens.length).toBeLessThanOrEqual(3);
      }
    });
  });

  it("draws each sample from its own stream: other tasks beside it change nothing", async () => {
    const together = (await sampleGroups(policy, honest, tasks, settings)).groups;
    for (const [g, task] of tasks.entries()) {
      const [alone] = (await sampleGroups(policy, honest, [task], settings)).groups;
      expect(alone.map(({ tokens }) => tokens)).toEqual(together[g].map(({ tokens }) => tokens));
    }
    const other = (await sampleGroups(policy, honest, tasks, { ...settings, key: [2, 1, 0] })).groups;
    expect(other.flat().map(({ text }) => text)).not.toEqual(together.flat().map(({ text }) => text));
  });

  it("judges again, once, what the verifier failed to judge, and nothing else", async () => {
    const seen: number[] = [];
    const flaky = verifier((verdicts, items, call) => {
      seen.push(items.length);
      return call === 1 ? verdicts.map((verdict, i) => (i % 5 === 0 ? error : verdict)) : verdicts;
    });
    const { groups, retries } = await sampleGroups(policy, flaky, tasks, settings);
    expect(seen).toEqual([16, 4]);
    expect(retries).toBe(4);
    const straight = await sampleGroups(policy, honest, tasks, settings);
    expect(outcomes(groups)).toEqual(outcomes(straight.groups));
  });

  it("keeps `error` where it stays, and it never counts as a reward", async () => {
    const broken = verifier((_, items) =>
      items.map((_, i) => (i % 2 === 0 ? { ...error, score: 1 } : { ...error, outcome: "pass", score: 1 })),
    );
    // The retry sees 8 items, of which every other one is judged then.
    const { groups } = await sampleGroups(policy, broken, tasks, settings);
    const failed = groups.flat().filter(({ verdict }) => verdict.outcome === "error");
    expect(failed).toHaveLength(4);
    for (const rollout of failed) {
      expect(rewardOf(rollout.verdict)).toBeNull();
      expect(toRecord(rollout, 1, null)).toMatchObject({ outcome: "error", advantage: null });
    }
    const metrics = rolloutMetrics(groups.flat());
    expect(metrics).toMatchObject({ "verdicts/error": 4, "verdicts/pass": 12, "reward/mean": 1, "reward/std": 0 });
    expect(rolloutMetrics(failed)).toMatchObject({ "reward/mean": 0, "verdicts/pass": 0, "verdicts/error": 4 });
  });

  it("takes a verifier that throws for one that failed", async () => {
    const throwing = verifier(() => {
      throw new Error("no connection");
    });
    const { groups, retries } = await sampleGroups(policy, throwing, tasks, settings);
    expect(new Set(outcomes(groups))).toEqual(new Set(["error"]));
    expect(groups[0][0].verdict.evidence).toEqual({ reason: "no connection" });
    expect(retries).toBe(16);
  });

  const cyclic: Record<string, unknown> = {};
  cyclic.self = cyclic;
  const good = { outcome: "pass", score: 1, components: {}, evidence: {} };
  const nonsense: [title: string, verdict: unknown, said: string | RegExp][] = [
    ["nothing", undefined, "got nothing"],
    ["null", null, "got null"],
    ["a number", 1, "got 1"],
    ["an unknown outcome", { ...good, outcome: "great" }, 'got "great"'],
    ["no outcome", { score: 1 }, "got nothing"],
    ["a score above 1", { ...good, score: 1.5 }, "got 1.5"],
    ["a negative score", { ...good, score: -1 }, "got -1"],
    ["a score that is no number", { ...good, score: "1" }, 'got "1"'],
    ["a score of NaN", { ...good, score: Number.NaN }, "got NaN"],
    ["components that are no numbers", { ...good, components: { format: "yes" } }, "components"],
    ["evidence that cannot be written", { ...good, evidence: cyclic }, "evidence"],
    ["evidence with a big integer", { ...good, evidence: { n: 1n } }, "evidence"],
  ];
  it.each(nonsense)("takes %s for `error`, for that completion only", async (_, verdict, said) => {
    const first = verifier((verdicts) => [verdict, ...verdicts.slice(1)]);
    const [group] = (await sampleGroups(policy, first, tasks.slice(0, 1), settings)).groups;
    const [straight] = (await sampleGroups(policy, honest, tasks.slice(0, 1), settings)).groups;
    expect(group[0].verdict).toMatchObject({ outcome: "error", score: 0 });
    expect(group[0].verdict.evidence.reason).toMatch(said);
    expect(group.slice(1).map(({ verdict }) => verdict)).toEqual(straight.slice(1).map(({ verdict }) => verdict));
    // It goes through everything that reads verdicts.
    expect(rolloutMetrics(group)["verdicts/error"]).toBe(1);
    expect(JSON.stringify(toRecord(group[0], 1, null))).toContain('"outcome":"error"');
  });

  it("fills in parts that a simple verifier leaves out", async () => {
    const bare = verifier((verdicts) => verdicts.map(({ outcome, score }) => ({ outcome, score })));
    const { groups } = await sampleGroups(policy, bare, tasks, settings);
    for (const { verdict } of groups.flat()) expect(verdict).toMatchObject({ components: {}, evidence: {} });
  });

  it.each([
    ["too short", (verdicts: Verdict[]) => verdicts.slice(1)],
    ["too long", (verdicts: Verdict[]) => [...verdicts, verdicts[0]]],
    ["no list", () => "pass"],
    ["nothing", () => undefined],
  ])("believes none of a list that is %s: verdicts could belong to others", async (_, answer) => {
    const { groups } = await sampleGroups(policy, verifier(answer), tasks, settings);
    expect(new Set(outcomes(groups))).toEqual(new Set(["error"]));
    expect(groups[0][0].verdict.evidence.reason).toContain("expected a list of 16 verdicts");
  });
});

describe("rolloutMetrics", () => {
  it("tells lengths of right and wrong answers, and of answers for the visible tests only", async () => {
    const [[base]] = (await sampleGroups(policy, honest, tasks.slice(0, 1), settings)).groups;
    const rollout = (verdict: Partial<Verdict>, length: number, finish: Rollout["finish"] = "stop"): Rollout => ({
      ...base,
      finish,
      tokens: new Array(length).fill(2),
      verdict: { outcome: "fail", score: 0, components: {}, evidence: {}, ...verdict },
    });
    const metrics = rolloutMetrics([
      rollout({ outcome: "pass", score: 1, components: { visible: 1 } }, 2),
      rollout({ components: { visible: 1 } }, 4),
      rollout({ outcome: "invalid", components: { visible: 0 } }, 6, "length"),
      rollout({ outcome: "error", score: 1, components: { visible: 1 } }, 8),
    ]);
    expect(metrics).toMatchObject({
      "reward/mean": 1 / 3,
      "components/visible": 2 / 3,
      "verdicts/pass": 1,
      "verdicts/fail": 1,
      "verdicts/invalid": 1,
      "verdicts/error": 1,
      "verdicts/visible-pass-hidden-fail": 1,
      "length/mean": 5,
      "length/right": 2,
      "length/wrong": 5,
      "length/truncated": 0.25,
      "tokens/generated": 20,
    });
    expect(rolloutMetrics([rollout({}, 1)])).not.toHaveProperty("length/right");
  });
});
