import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { startsWithWanted, toyTasks, toyVerifier } from "../../test/fixtures/toy/parts.ts";
import { toyConfig, toyModel, toyPolicy } from "../../test/fixtures/toy/policy.ts";
import type { RlvrUserConfig } from "../config/index.ts";
import { createObjective } from "../learning/objectives.ts";
import type { LocalPolicy } from "../policy/local.ts";
import { sampleGroups } from "../rollouts/sample.ts";
import type { Scored } from "./scoring.ts";
import { updatePolicy } from "./update.ts";

let policy: LocalPolicy;
beforeEach(async () => {
  policy = await toyPolicy();
});
afterEach(() => policy.close());

/** Rollouts of the policy as it is, with advantages that alternate. */
async function rollouts(temperature = 1): Promise<Scored[]> {
  const { groups } = await sampleGroups(policy, toyVerifier(startsWithWanted), toyTasks(1).train.slice(0, 4), {
    groupSize: 4,
    sampler: { temperature, topP: 1, topK: 0, maxTokens: 3 },
    key: [1, 1, 0],
    purpose: "reward",
  });
  return groups.flatMap((group, g) =>
    group.map((rollout, i) => ({ rollout, advantage: i % 2 === 0 ? 1 : -1, group: g })),
  );
}

/** The same with each stored log-probability off by some nats. */
function shifted(scored: Scored[], by: number): Scored[] {
  return scored.map(({ rollout, ...rest }) => ({
    rollout: { ...rollout, logprobs: rollout.logprobs.map((logprob) => logprob + by) },
    ...rest,
  }));
}

function update(scored: readonly Scored[], keys: Partial<RlvrUserConfig> = {}, rateScale = 1) {
  const config = toyConfig(keys);
  const objective = createObjective(config.objective.name, config.objective);
  const { klCoefficient } = config.objective;
  return updatePolicy(policy, scored, { config, step: 0, rateScale, klCoefficient, objective });
}

describe("updatePolicy", () => {
  it("updates, with ratios of 1 and a loss that is about 0 the first time", async () => {
    const before = await policy.version();
    const { applied, metrics } = await update(await rollouts());
    expect(applied).toBe(true);
    expect(metrics["logprob/gap"]).toBeLessThan(1e-4);
    expect(Math.abs(metrics.loss)).toBeLessThan(1e-6);
    expect(metrics["optimizer/grad-norm"]).toBeGreaterThan(0);
    expect(metrics["optimizer/learning-rate"]).toBe(1e-2);
    expect(metrics.entropy).toBeGreaterThan(1);
    const after = await policy.version();
    expect(after.step).toBe(1);
    expect(after.hash).not.toBe(before.hash);
  });

  it("refuses where decoding and training disagree, and nothing has changed", async () => {
    const before = await policy.version();
    const scored = await rollouts();
    const off = shifted(scored, 0.2);
    const { applied, metrics, widestGap } = await update(off);
    expect(applied).toBe(false);
    expect(metrics["logprob/gap"]).toBeCloseTo(0.2, 3);
    expect(off.map(({ rollout }) => rollout)).toContain(widestGap);
    expect(await policy.version()).toEqual(before);
    // Nothing is left behind for a later update either.
    await update(scored);
    const once = await policy.version();
    await policy.close();
    policy = await toyPolicy();
    await update(scored);
    expect(await policy.version()).toEqual(once);
  });

  it("names the rollout with the widest gap, and goes on below the limit", async () => {
    const scored = await rollouts();
    const [odd] = shifted([scored[5]], 0.05);
    const { applied, metrics, widestGap } = await update(scored.with(5, odd));
    expect(applied).toBe(true);
    expect(widestGap).toBe(odd.rollout);
    expect(metrics["logprob/gap"]).toBeCloseTo(0.05, 3);
  });

  it("refuses a number that is not finite, and names whose it is", async () => {
    const before = await policy.version();
    const scored = await rollouts();
    const broken = { ...scored[3], advantage: Number.NaN };
    const { applied, culprit } = await update(scored.with(3, broken));
    expect(applied).toBe(false);
    expect(culprit).toBe(broken.rollout);
    expect(await policy.version()).toEqual(before);
  });

  it("changes no weight where no advantage differs from 0", async () => {
    const { hash, step } = await policy.version();
    expect(step).toBe(0);
    const scored = (await rollouts()).map((one) => ({ ...one, advantage: 0 }));
    const { applied, metrics } = await update(scored);
    expect(applied).toBe(true);
    expect(metrics).toMatchObject({ loss: 0, "optimizer/grad-norm": 0 });
    // The step counts all the same: a resumed run cannot know that it changed nothing.
    expect(await policy.version()).toEqual({ hash, step: 1 });
    // Nor do moments of earlier updates move anything.
    await update(await rollouts());
    const moved = (await policy.version()).hash;
    await update((await rollouts()).map((one) => ({ ...one, advantage: 0 })));
    expect((await policy.version()).hash).toBe(moved);
    // With a KL term there is a gradient once the policy has left the reference.
    await policy.setReference(toyModel);
    await update(await rollouts());
    const again = (await rollouts()).map((one) => ({ ...one, advantage: 0 }));
    const kl = await update(again, { objective: { klCoefficient: 0.1 } });
    expect(kl.metrics["optimizer/grad-norm"]).toBeGreaterThan(0);
    expect(kl.metrics["kl/k3"]).toBeGreaterThan(0);
  });

  it("makes each completion with a positive advantage likelier", async () => {
    const scored = await rollouts();
    const good = scored[0].rollout;
    const total = async () => {
      const sequence = { tokens: [...good.prompt, ...good.tokens], scoreFrom: good.prompt.length };
      const { logprobs } = await policy.logprobs([sequence], { temperature: 1, keep: false });
      return logprobs.reduce((sum, value) => sum + value, 0);
    };
    const before = await total();
    await update([{ rollout: good, advantage: 1, group: 0 }]);
    const between = await total();
    expect(between).toBeGreaterThan(before);
    await update([{ rollout: good, advantage: -1, group: 0 }], { alerts: { logprobGapStop: 100 } });
    expect(await total()).toBeLessThan(between);
  });

  it("takes log-probabilities at the temperature that was sampled with", async () => {
    const scored = await rollouts(0.5);
    const right = await update(scored, { rollouts: { temperature: 0.5, maxTokens: 3 } });
    expect(right.metrics["logprob/gap"]).toBeLessThan(1e-4);
    const own = await update(await rollouts(0.5), { updates: { epochsPerStep: 1 } });
    expect(own).toMatchObject({ applied: true });
    // A rollout that was sampled otherwise than it says is noticed.
    const mislabelled = (await rollouts(0.5)).map((one) => ({
      ...one,
      rollout: {
        ...one.rollout,
        policy: { ...one.rollout.policy, step: 0 },
        sampler: { ...one.rollout.sampler, temperature: 1 },
      },
    }));
    expect(await update(mislabelled)).toMatchObject({ applied: false });
  });

  it("counts tokens and averages the rest over epochs and mini-batches", async () => {
    const scored = await rollouts();
    const one = await update(scored);
    const { applied, metrics } = await update(await rollouts(), { updates: { epochsPerStep: 2, miniBatches: 3 } });
    expect(applied).toBe(true);
    const tokens = (part: readonly Scored[]) =>
      part.reduce((sum, { rollout }) => sum + rollout.prompt.length + rollout.tokens.length, 0);
    expect(one.metrics["tokens/trained"]).toBe(tokens(scored));
    expect(metrics["tokens/trained"]).toBeGreaterThan(1.5 * tokens(scored));
  });

  it("scales the learning rate after a return", async () => {
    expect((await update(await rollouts(), {}, 0.25)).metrics["optimizer/learning-rate"]).toBe(0.0025);
  });
});
