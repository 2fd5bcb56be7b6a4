/**
 * Rules that warn of a run drifting: nothing is broken, but what the numbers show is seldom what was wanted. Each speaks
 * when its condition begins to hold, not at every step that it goes on. Pure, like the rules in `alerts.ts`.
 */
import type { Alert } from "./events.ts";
import type { MetricRecord } from "./metrics.ts";

export interface TrendOptions {
  /** Steps without a rise in reward that are worth a word. */
  flatSteps: number;
  /** Share of the reward's variance that format alone may explain. */
  formatShare: number;
  /** Factor by which lengths may grow or shrink against the run's first steps. */
  lengthFactor: number;
  /** Share of completions that may be cut off. */
  truncatedShare: number;
  /** Factor over its recent median that divergence or gradient norm may reach. */
  spikeFactor: number;
  /** Share of the first steps' entropy below which exploration has ended. */
  entropyShare: number;
}

/** Steps that a recent or an early average is taken over. */
const WINDOW = 5;

const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;

function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)];
}

/** The values of a metric, oldest first; steps that did not log it are left out. */
function series(history: readonly MetricRecord[], name: string): number[] {
  return history.map((record) => record[name]).filter((value) => typeof value === "number");
}

interface Finding {
  message: string;
  values: Record<string, number>;
}

type Rule = (history: readonly MetricRecord[], options: TrendOptions) => Finding | null;

const rewardFlat: Rule = (history, { flatSteps }) => {
  const rewards = series(history, "reward/mean").slice(-flatSteps);
  if (rewards.length < flatSteps || mean(rewards) >= 0.95) return null;
  const half = Math.floor(flatSteps / 2);
  const [early, late] = [rewards.slice(0, half), rewards.slice(-half)];
  const rise = mean(late) - mean(early);
  // Two standard errors of that difference, from neighbouring steps: a trend does not count as noise.
  const noise = Math.sqrt(mean(rewards.slice(1).map((reward, i) => (reward - rewards[i]) ** 2)) / 2);
  const limit = 2 * noise * Math.sqrt(2 / half);
  if (rise > limit) return null;
  return {
    message: `expected a rising reward, got a change of ${rise.toFixed(3)} over ${flatSteps} steps, within its noise (${limit.toFixed(3)})`,
    values: { rise, limit },
  };
};

const formatDominance: Rule = (history, { formatShare }) => {
  const shares = series(history, "reward/format-share").slice(-WINDOW);
  if (shares.length < WINDOW || mean(shares) <= formatShare) return null;
  const share = mean(shares);
  return {
    message: `expected the task to decide the reward, got ${(100 * share).toFixed(0)} % of its variance from the format alone`,
    values: { share, limit: formatShare },
  };
};

function lengthRule(name: "length/right" | "length/wrong", which: string): Rule {
  return (history, { lengthFactor }) => {
    const lengths = series(history, name);
    if (lengths.length < 2 * WINDOW) return null;
    const first = mean(lengths.slice(0, WINDOW));
    const now = mean(lengths.slice(-WINDOW));
    const factor = now / first;
    if (factor < lengthFactor && factor > 1 / lengthFactor) return null;
    return {
      message: `expected ${which} completions of about ${first.toFixed(0)} tokens, got ${now.toFixed(0)}: ${factor.toFixed(2)} times the first steps' length`,
      values: { first, now, factor },
    };
  };
}

const truncation: Rule = (history, { truncatedShare }) => {
  const share = history[history.length - 1]["length/truncated"] ?? 0;
  if (share <= truncatedShare) return null;
  return {
    message: `expected completions to end by themselves, got ${(100 * share).toFixed(0)} % cut off: raise rollouts.maxTokens, or most rewards judge half an answer`,
    values: { share, limit: truncatedShare },
  };
};

function spikeRule(name: "kl/k3" | "optimizer/grad-norm", what: string): Rule {
  return (history, { spikeFactor }) => {
    const values = series(history, name);
    const now = values[values.length - 1];
    const before = values.slice(-4 * WINDOW - 1, -1);
    if (before.length < 2 * WINDOW) return null;
    const usual = median(before);
    // The factor alone would speak at every step of a run that stands still.
    if (now <= spikeFactor * usual || now < 1e-3) return null;
    return {
      message: `expected ${what} near its recent ${usual.toPrecision(2)}, got ${now.toPrecision(2)}`,
      values: { now, usual },
    };
  };
}

const entropyCollapse: Rule = (history, { entropyShare }) => {
  const entropies = series(history, "entropy");
  if (entropies.length < 2 * WINDOW) return null;
  const first = mean(entropies.slice(0, WINDOW));
  const now = mean(entropies.slice(-WINDOW));
  if (now >= entropyShare * first) return null;
  return {
    message: `expected the policy to keep exploring, got an entropy of ${now.toPrecision(2)} nats against ${first.toPrecision(2)} in the first steps`,
    values: { first, now },
  };
};

const RULES: readonly (readonly [code: string, rule: Rule])[] = [
  ["RLVR_ALERT_REWARD_FLAT", rewardFlat],
  ["RLVR_ALERT_FORMAT_DOMINANCE", formatDominance],
  ["RLVR_ALERT_LENGTH_RIGHT", lengthRule("length/right", "right")],
  ["RLVR_ALERT_LENGTH_WRONG", lengthRule("length/wrong", "wrong")],
  ["RLVR_ALERT_TRUNCATION", truncation],
  ["RLVR_ALERT_KL_SPIKE", spikeRule("kl/k3", "the divergence from the reference policy")],
  ["RLVR_ALERT_GRADIENT_SPIKE", spikeRule("optimizer/grad-norm", "the gradient norm")],
  ["RLVR_ALERT_ENTROPY", entropyCollapse],
];

/** The warnings that begin at the newest record of a history (oldest first). */
export function trendAlertsAt(history: readonly MetricRecord[], options: TrendOptions): Alert[] {
  if (history.length === 0) return [];
  const step = history[history.length - 1].step;
  return RULES.flatMap(([code, rule]): Alert[] => {
    const finding = rule(history, options);
    if (finding === null || (history.length > 1 && rule(history.slice(0, -1), options) !== null)) return [];
    return [{ level: "warn", code, step, ...finding }];
  });
}
