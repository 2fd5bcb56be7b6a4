import type { RlvrConfig } from "../config/index.ts";
import { batchAdvantages } from "../learning/advantages.ts";
import { combineRewards } from "../learning/components.ts";
import { processAdvantages } from "../learning/process.ts";
import { overlongPenalty } from "../learning/schedule.ts";
import { type Rollout, rewardOf } from "../rollouts/rollout.ts";

/** A rollout with its advantage; rollouts that could not be judged are not among them. */
export interface Scored {
  rollout: Rollout;
  advantage: number;
  /** Advantages of its tokens from the scores of their steps, weighted, where there are some. */
  process?: Float64Array;
  /** Number of its group in the batch. */
  group: number;
}

export interface ScoredBatch {
  scored: Scored[];
  /** Of reward components, where they are combined. */
  metrics: Record<string, number>;
}

/**
 * Advantages of a batch: verdicts `error` leave their groups, rewards are formed as the config says (score or weighted
 * components, less the penalty for length), and compared within each group.
 */
export function scoreGroups(groups: readonly (readonly Rollout[])[], config: RlvrConfig): ScoredBatch {
  const { objective, rewards: settings } = config;
  const { advantageScale: scale, baseline, ddof, epsilon } = objective;
  const options = { scale, baseline, ddof, epsilon };
  const judged = groups.map((group) => group.filter(({ verdict }) => rewardOf(verdict) !== null));
  const process = settings.process === "none" ? undefined : stepAdvantages(judged, config);
  const spread = (advantages: readonly (readonly number[])[]): Scored[] =>
    judged.flatMap((group, g) =>
      group.map((rollout, i) => ({
        rollout,
        advantage: advantages[g][i],
        group: g,
        ...(process ? { process: process[g][i] } : {}),
      })),
    );
  if (settings.combine === "score") {
    const rewards = judged.map((group) =>
      group.map((rollout) => (rewardOf(rollout.verdict) as number) + lengthPenalty(rollout, config)),
    );
    return { scored: spread(batchAdvantages(rewards, options)), metrics: {} };
  }
  const components = judged.map((group) =>
    group.map((rollout) => ({ ...rollout.verdict.components, length: lengthPenalty(rollout, config) })),
  );
  const combined = combineRewards(components, {
    ...options,
    mode: settings.combine === "sum" ? "sum-then-normalize" : "normalize-then-sum",
    weights: { ...settings.weights, ...(config.rollouts.overlongBuffer > 0 ? { length: 1 } : {}) },
  });
  const metrics = Object.entries(combined.components).flatMap(([name, { mean, std, normalizedStd }]) => [
    [`rewards/${name}/mean`, mean],
    [`rewards/${name}/std`, std],
    [`rewards/${name}/normalized-std`, normalizedStd],
  ]);
  return { scored: spread(combined.advantages), metrics: Object.fromEntries(metrics) };
}

/** Step scores compared within each group, as advantages of tokens; a rollout without steps has 0 everywhere. */
function stepAdvantages(groups: readonly (readonly Rollout[])[], { objective, rewards }: RlvrConfig): Float64Array[][] {
  const { advantageScale: scale, ddof, epsilon } = objective;
  const { process: credit, processWeight, processDiscount: gamma } = rewards;
  if (credit === "none") return [];
  const spans = groups.map((group) => group.map(({ tokens, steps = [] }) => ({ length: tokens.length, spans: steps })));
  const advantages = processAdvantages(spans, { credit, gamma, scale, ddof, epsilon });
  return advantages.map((group) => group.map((tokens) => tokens.map((value) => processWeight * value)));
}

/** Whether something is to be learned from a rollout. */
export function teaches({ advantage, process }: Scored): boolean {
  return advantage !== 0 || (process?.some((value) => value !== 0) ?? false);
}

function lengthPenalty({ tokens }: Rollout, { rollouts }: RlvrConfig): number {
  const { overlongBuffer: buffer, maxTokens: limit } = rollouts;
  return buffer > 0 ? overlongPenalty(tokens.length, { limit, buffer }) : 0;
}
