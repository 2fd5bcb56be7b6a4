import { promptText, type Rollout, rewardOf } from "../rollouts/rollout.ts";
import type { Sample } from "../runs/events.ts";

function toSample(rollout: Rollout): Sample {
  const { task, text, verdict, tokens } = rollout;
  return {
    taskId: task.id,
    prompt: promptText(task.prompt),
    completion: text,
    outcome: verdict.outcome,
    score: verdict.score,
    components: verdict.components,
    tokens: tokens.length,
  };
}

/** The best, the worst and the last completion of a step. */
export function pickSamples(rollouts: readonly Rollout[]): { best?: Sample; worst?: Sample; latest?: Sample } {
  const judged = rollouts.filter(({ verdict }) => verdict.outcome !== "error");
  if (judged.length === 0) return {};
  const byReward = [...judged].sort((a, b) => (rewardOf(b.verdict) as number) - (rewardOf(a.verdict) as number));
  return {
    best: toSample(byReward[0]),
    worst: toSample(byReward[byReward.length - 1]),
    latest: toSample(judged[judged.length - 1]),
  };
}
