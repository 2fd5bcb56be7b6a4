/**
 * Names of the metrics that rules and the report know. A loop may log others; they are shown apart.
 * Whatever depends on the wall clock is under `time/` or `speed/`: everything else is the same for the same seed.
 */
export const metricNames = {
  "reward/mean": "mean reward of the step's rollouts, verdict error left out",
  "reward/std": "standard deviation of the same rewards",
  "reward/format-share": "share of the reward's variance that having an answer of the required form explains",
  "groups/mixed": "groups with different rewards: the ones that teach",
  "groups/all-pass": "groups whose completions all pass",
  "groups/all-fail": "groups whose completions all fail",
  "groups/format-only": "groups that differ in having an answer of the required form, and in nothing else",
  "groups/zero-advantage": "share of groups that teach nothing",
  "groups/acceptance": "with dynamic sampling: groups trained on, as a share of those sampled",
  "groups/dropped-all-pass": "with dynamic sampling: groups replaced because all completions passed",
  "groups/dropped-all-fail": "with dynamic sampling: groups replaced because all completions failed",
  "groups/dropped-unjudged": "with dynamic sampling: groups replaced because fewer than two could be judged",
  "groups/dropped-surplus": "with dynamic sampling: groups with a difference that a full batch had no room for",
  "rollouts/sampled": "completions sampled for the step's batch",
  "rollouts/kept": "completions in the batch that is trained on",
  "rollouts/rounds": "with dynamic sampling: rounds of sampling",
  "rollouts/stale": "with batches behind: completions dropped because their weights were too old",
  "curriculum/unseen": "tasks not tried yet",
  "curriculum/hard": "tasks solved too seldom",
  "curriculum/learning": "tasks solved now and then",
  "curriculum/solved": "tasks retired",
  "verdicts/pass": "completions judged right",
  "verdicts/fail": "completions judged wrong",
  "verdicts/invalid": "completions without an answer of the required form",
  "verdicts/error": "completions that the verifier failed to judge",
  "verdicts/retried": "verdicts error that were judged a second time",
  "verdicts/visible-pass-hidden-fail": "completions that pass the visible tests and fail the hidden ones",
  entropy: "mean entropy of the policy where tokens were sampled, in nats",
  "length/mean": "mean length of completions, in tokens",
  "length/right": "mean length of passing completions, in tokens",
  "length/wrong": "mean length of other completions, in tokens",
  "length/truncated": "share of completions cut at the token limit",
  loss: "loss of the objective; about 0 on the first update of a step, where every ratio is 1",
  "kl/k1": "mean of log(policy / reference) over tokens, in nats",
  "kl/k3": "the same divergence by the estimator that is never negative, in nats",
  "kl/coefficient": "weight of the divergence from the reference, where it is adapted",
  "kl/rollout-k1": "divergence of the policy from the one that sampled, estimator k1, in nats",
  "kl/rollout-k3": "the same by k3",
  "ratio/mean": "mean ratio of token probabilities, policy to sampling policy; 1 on the first update of a step",
  "ratio/max": "largest such ratio",
  "clip/low": "share of tokens clipped below",
  "clip/high": "share of tokens clipped above",
  "optimizer/grad-norm": "global norm of the gradient before clipping",
  "optimizer/updates": "updates applied",
  "optimizer/learning-rate": "step size of the update",
  "logprob/gap": "largest difference of a token's log-probability between decoding and training, in nats",
  "tokens/generated": "tokens sampled",
  "tokens/wasted": "with dynamic sampling: tokens of completions that are not trained on",
  "tokens/prompts": "tokens of prompts, once for each group",
  "tokens/trained": "tokens run forwards and backwards",
  "tokens/forward": "tokens run forwards only: where nothing has a gradient, and under the reference policy",
  "time/generate": "seconds spent sampling",
  "time/verify": "seconds spent verifying",
  "time/update": "seconds spent in forward, backward and optimizer",
  "time/total": "seconds of the whole step",
  "speed/generate": "tokens sampled a second",
  "speed/verify": "completions judged a second",
  "speed/update": "tokens trained a second",
} as const;

export type MetricName = keyof typeof metricNames;

/** One line of `metrics.jsonl`: a step, counted from 1, with its metrics. A number that was not finite reads as null. */
export type MetricRecord = { step: number } & Record<string, number | null>;

/** True for metrics that differ between two runs of the same seed. */
export function dependsOnClock(name: string): boolean {
  return name.startsWith("time/") || name.startsWith("speed/");
}
