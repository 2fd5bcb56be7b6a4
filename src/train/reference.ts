/** The reference policy during a run: how far the policy has moved from it, and when it moves itself. */
import type { RlvrConfig } from "../config/index.ts";
import { klTerm, nextKlCoefficient } from "../learning/kl.ts";
import { referenceAction } from "../learning/schedule.ts";
import type { Policy } from "../policy/policy.ts";
import type { Rollout } from "../rollouts/rollout.ts";
import { toSequence } from "./score-batch.ts";

/** Rollouts scored under the reference policy to log the divergence from it, where the loss does not need it. */
const REFERENCE_ROLLOUTS = 32;

/** Divergence of the sampling policy from the reference, on some of a step's rollouts: means over tokens, in nats. */
export async function referenceDivergence(
  policy: Policy,
  rollouts: readonly Rollout[],
): Promise<Record<string, number>> {
  const some = rollouts.slice(0, REFERENCE_ROLLOUTS);
  const options = { temperature: 1, keep: false, reference: true };
  const { logprobs } = await policy.logprobs(some.map(toSequence), options);
  const differences = some.flatMap((rollout) => rollout.logprobs).map((logprob, t) => logprob - logprobs[t]);
  const mean = (values: readonly number[]) =>
    values.reduce((sum, value) => sum + value, 0) / Math.max(1, values.length);
  return { "kl/k1": mean(differences), "kl/k3": mean(differences.map((d) => klTerm("k3", d).value)) };
}

/**
 * What the reference does after a step (from 1): nothing, a move towards the policy, or a hard reset. Gives the weight of
 * the divergence for the next step, adapted where `objective.klTarget` is set.
 */
export async function moveReference(
  policy: Policy,
  { objective, reference }: RlvrConfig,
  step: number,
  now: { klCoefficient: number; divergence: number },
): Promise<number> {
  const { klTarget: target, klHorizon: horizon } = objective;
  const { syncEvery, syncRate, resetEvery, resetOptimizer } = reference;
  const action = referenceAction(step, {
    syncEvery: syncEvery || null,
    syncRate,
    resetEvery: resetEvery || null,
    resetOptimizer,
  });
  if (action.kind === "sync") await policy.moveReference(action.rate);
  if (action.kind === "reset") {
    await policy.moveReference(1);
    if (action.resetOptimizer) await policy.resetOptimizer();
  }
  return target > 0 ? nextKlCoefficient(now.klCoefficient, now.divergence, { target, horizon }) : now.klCoefficient;
}
