import type { RlvrConfig } from "../config/index.ts";
import type { TokenSequence } from "../engine/index.ts";
import { klPenalty } from "../learning/kl.ts";
import type { ObjectiveBatch } from "../learning/objective.ts";
import { maskTruncated } from "../learning/schedule.ts";
import type { Policy } from "../policy/policy.ts";
import type { Rollout } from "../rollouts/rollout.ts";
import { type Scored, teaches } from "./scoring.ts";

/** The objective's arrays for some rollouts, and how to find the rollouts in them. */
export interface ScoredTokens extends ObjectiveBatch {
  logprobs: Float32Array;
  rollouts: { rollout: Rollout; at: number }[];
  /** Mean entropy over tokens, in nats. */
  entropy: number;
  /** Tokens run forwards and backwards, prompts included. */
  trainedTokens: number;
  /** Tokens run forwards only: where nothing has a gradient, and under the reference policy. */
  forwardTokens: number;
}

export interface ScoreOptions {
  config: RlvrConfig;
  /** Weight of the divergence from the reference, as it is adapted now. */
  klCoefficient: number;
  /** The trainer's own log-probabilities before the step's first update, where the objective corrects for the sampler. */
  oldLogprobs?: ReadonlyMap<Rollout, Float32Array>;
}

export function toSequence({ prompt, tokens, sampler }: Rollout): TokenSequence {
  return { tokens: [...prompt, ...tokens], scoreFrom: prompt.length, temperature: sampler.temperature };
}

/** Scores rollouts under the policy as it is now, ready for `policy.backward`. */
export async function scoreTokens(
  policy: Policy,
  part: readonly Scored[],
  options: ScoreOptions,
): Promise<ScoredTokens> {
  const { config, klCoefficient, oldLogprobs } = options;
  const { klPlace, klEstimator, entropyCoefficient } = config.objective;
  const { temperature, maskTruncated: leaveOutTruncated } = config.rollouts;
  // A sequence is run backwards only where something can have a gradient.
  const otherTerms = klCoefficient > 0 || entropyCoefficient > 0;
  const sequences = part.map((scored) => ({
    ...toSequence(scored.rollout),
    frozen: !otherTerms && !teaches(scored),
  }));
  const { logprobs, entropies, offsets } = await policy.logprobs(sequences, { temperature, keep: true });
  const total = logprobs.length;
  const rolloutLogprobs = Float32Array.from(part.flatMap(({ rollout }) => rollout.logprobs));
  const all = new Float32Array(total).fill(1);
  const truncated = part.map(({ rollout }) => rollout.finish === "length");
  const mask = leaveOutTruncated ? maskTruncated(all, offsets, truncated) : all;
  const advantages = new Float32Array(total);
  for (const [s, { advantage, process }] of part.entries()) {
    advantages.fill(advantage, offsets[s], offsets[s + 1]);
    process?.forEach((value, t) => {
      advantages[offsets[s] + t] += value;
    });
  }
  const referenceLogprobs =
    klCoefficient > 0
      ? (await policy.logprobs(sequences, { temperature, keep: false, reference: true })).logprobs
      : undefined;
  if (referenceLogprobs && klPlace === "advantage") {
    const estimator = klEstimator === "k1" || klEstimator === "k2" ? klEstimator : "k3";
    const penalty = klPenalty(
      { rolloutLogprobs, referenceLogprobs, mask },
      { coefficient: klCoefficient, estimator, center: true },
    );
    for (let t = 0; t < total; t++) advantages[t] += penalty[t];
  }
  const old = oldLogprobs && part.flatMap(({ rollout }) => Array.from(oldLogprobs.get(rollout) ?? []));
  return {
    logprobs,
    rolloutLogprobs,
    ...(old ? { oldLogprobs: Float32Array.from(old) } : {}),
    ...(referenceLogprobs ? { referenceLogprobs } : {}),
    advantages,
    entropies,
    mask,
    offsets,
    groups: part.map(({ group }) => group),
    rollouts: part.map(({ rollout }, s) => ({ rollout, at: offsets[s] })),
    entropy: entropies.reduce((sum, value) => sum + value, 0) / Math.max(1, total),
    trainedTokens: tokensOf(sequences.filter(({ frozen }) => !frozen)),
    forwardTokens: tokensOf(sequences.filter(({ frozen }) => frozen)) + (referenceLogprobs ? tokensOf(sequences) : 0),
  };
}

function tokensOf(sequences: readonly TokenSequence[]): number {
  return sequences.reduce((sum, { tokens }) => sum + tokens.length, 0);
}

/** Log-probabilities of rollouts under the policy as it is now, by rollout. */
export async function ownLogprobs(policy: Policy, rollouts: readonly Rollout[]): Promise<Map<Rollout, Float32Array>> {
  const sequences = rollouts.map(toSequence);
  const { logprobs, offsets } = await policy.logprobs(sequences, { temperature: 1, keep: false });
  return new Map(rollouts.map((rollout, s) => [rollout, logprobs.slice(offsets[s], offsets[s + 1])]));
}
