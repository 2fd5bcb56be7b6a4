import type { Rollout } from "./rollout.ts";
import { rewardOf } from "./rollout.ts";

function mean(values: readonly number[]): number {
  return values.length === 0 ? 0 : values.reduce((sum, value) => sum + value, 0) / values.length;
}

/**
 * Metrics of a set of rollouts, by the names of `runs/metrics.ts`; verdicts `error` count only as such.
 * A mean over nothing (no right completion, say) is left out.
 */
export function rolloutMetrics(rollouts: readonly Rollout[]): Record<string, number> {
  const judged = rollouts.filter(({ verdict }) => verdict.outcome !== "error");
  const rewards = judged.map(({ verdict }) => rewardOf(verdict) as number);
  const center = mean(rewards);
  const count = (outcome: string) => rollouts.filter(({ verdict }) => verdict.outcome === outcome).length;
  const lengths = (keep: (rollout: Rollout) => boolean) => judged.filter(keep).map(({ tokens }) => tokens.length);
  const right = lengths(({ verdict }) => verdict.outcome === "pass");
  const wrong = lengths(({ verdict }) => verdict.outcome !== "pass");
  const components: Record<string, number[]> = {};
  for (const { verdict } of judged) {
    for (const [name, value] of Object.entries(verdict.components)) {
      components[name] ??= [];
      components[name].push(value);
    }
  }
  return {
    "reward/mean": center,
    "reward/std": Math.sqrt(mean(rewards.map((reward) => (reward - center) ** 2))),
    "reward/format-share": formatShare(judged),
    ...Object.fromEntries(Object.entries(components).map(([name, values]) => [`components/${name}`, mean(values)])),
    "verdicts/pass": count("pass"),
    "verdicts/fail": count("fail"),
    "verdicts/invalid": count("invalid"),
    "verdicts/error": count("error"),
    "verdicts/visible-pass-hidden-fail": judged.filter(isHardCodingSuspect).length,
    "length/mean": mean(rollouts.map(({ tokens }) => tokens.length)),
    ...(right.length > 0 ? { "length/right": mean(right) } : {}),
    ...(wrong.length > 0 ? { "length/wrong": mean(wrong) } : {}),
    "length/truncated": mean(rollouts.map(({ finish }) => Number(finish === "length"))),
    "tokens/generated": rollouts.reduce((sum, { tokens }) => sum + tokens.length, 0),
  };
}

/** Passes what the prompt shows and fails what it does not: a program written for the visible example, often. */
export function isHardCodingSuspect({ verdict }: Pick<Rollout, "verdict">): boolean {
  return verdict.components.visible === 1 && verdict.outcome === "fail";
}

/** Share of the reward's variance that is explained by whether there is an answer of the required form at all. */
function formatShare(judged: readonly Rollout[]): number {
  const all = judged.map(({ verdict }) => rewardOf(verdict) as number);
  const center = mean(all);
  const total = mean(all.map((reward) => (reward - center) ** 2));
  if (total === 0) return 0;
  const between = [true, false].map((invalid) => {
    const part = judged.filter(({ verdict }) => (verdict.outcome === "invalid") === invalid);
    const rewards = part.map(({ verdict }) => rewardOf(verdict) as number);
    return rewards.length * (mean(rewards) - center) ** 2;
  });
  return (between[0] + between[1]) / judged.length / total;
}
