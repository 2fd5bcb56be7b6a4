/** Rules over the history of metrics that say when a run goes wrong. Pure: the same history gives the same alerts. */
import type { Alert } from "./events.ts";
import type { MetricRecord } from "./metrics.ts";

export interface AlertOptions {
  logprobGapWarn: number;
  logprobGapStop: number;
  collapseShare: number;
  collapseWindow: number;
  deadSteps: number;
  /** What follows from `deadSteps` where no group ever was mixed. `warn` when absent. */
  deadAction?: "warn" | "stop" | "adapt";
}

/** Metrics that must be finite wherever they are logged. */
const mustBeFinite = /^(loss|reward|entropy|kl|clip|optimizer|logprob)(\/|$)/;

const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;

/** Standard deviation of the noise around a trend, from neighbouring differences: a steady fall does not inflate it. */
function noise(values: readonly number[]): number {
  const squares = values.slice(1).map((value, index) => (value - values[index]) ** 2);
  return squares.length === 0 ? 0 : Math.sqrt(mean(squares) / 2);
}

/** The last step at which the reward was near `level`: a run should go back to before the fall, not into it. */
function lastHealthyStep(history: readonly MetricRecord[], level: number): number {
  return history.findLast((record) => (record["reward/mean"] ?? 0) >= level)?.step ?? 0;
}

function nonFinite(history: readonly MetricRecord[]): Alert | null {
  const now = history[history.length - 1];
  const names = Object.keys(now).filter((name) => mustBeFinite.test(name) && !Number.isFinite(now[name]));
  if (names.length === 0) return null;
  return {
    level: "return",
    code: "RLVR_ALERT_NOT_FINITE",
    message: `expected finite numbers, got none for ${names.join(", ")}`,
    step: now.step,
    values: { healthyStep: now.step - 1 },
  };
}

function logprobGap(history: readonly MetricRecord[], options: AlertOptions): Alert | null {
  const now = history[history.length - 1];
  const gap = now["logprob/gap"] ?? 0;
  const before = history[history.length - 2]?.["logprob/gap"] ?? 0;
  const stop = gap > options.logprobGapStop;
  if (!stop && (gap <= options.logprobGapWarn || before > options.logprobGapWarn)) return null;
  const limit = stop ? options.logprobGapStop : options.logprobGapWarn;
  return {
    level: stop ? "stop" : "warn",
    code: "RLVR_ALERT_LOGPROB_GAP",
    message: `expected decoding and training to agree within ${limit} nats a token, got ${gap.toPrecision(3)}`,
    step: now.step,
    values: { gap, limit },
  };
}

/** Two steps in a row far below the moving average before them, by more than the reward's own noise. */
function suddenCollapse(history: readonly MetricRecord[], options: AlertOptions): Alert | null {
  const rewards = history.map((record) => record["reward/mean"] ?? 0);
  const last = rewards.slice(-2);
  const earlier = rewards.slice(0, -2).slice(-3 * options.collapseWindow);
  const window = earlier.slice(-options.collapseWindow);
  if (window.length < Math.ceil(options.collapseWindow / 2)) return null;
  const average = mean(window);
  const limit = options.collapseShare * average;
  if (!last.every((reward) => reward < limit) || average - mean(last) <= 4 * noise(earlier)) return null;
  return collapse(history, average, `over the ${window.length} steps before it was ${average.toFixed(3)}`, options);
}

/** A slow fall: the moving average itself far below the highest it has been. */
function slowCollapse(history: readonly MetricRecord[], options: AlertOptions): Alert | null {
  const rewards = history.map((record) => record["reward/mean"] ?? 0);
  const size = options.collapseWindow;
  if (rewards.length < 2 * size) return null;
  const averages = rewards.slice(size - 1).map((_, index) => mean(rewards.slice(index, index + size)));
  const best = Math.max(...averages);
  if (averages[averages.length - 1] >= options.collapseShare * best) return null;
  return collapse(history, best, `had been ${best.toFixed(3)} over ${size} steps`, options);
}

function collapse(history: readonly MetricRecord[], average: number, said: string, options: AlertOptions): Alert {
  const now = history[history.length - 1];
  const reward = now["reward/mean"] ?? 0;
  return {
    level: "return",
    code: "RLVR_ALERT_COLLAPSE",
    message: `expected a reward near its moving average, which ${said}, got ${reward.toFixed(3)}`,
    step: now.step,
    values: { reward, average, healthyStep: lastHealthyStep(history, ((1 + options.collapseShare) / 2) * average) },
  };
}

/** No group taught anything for several steps; said again each time that many steps have passed. */
function deadGroups(history: readonly MetricRecord[], options: AlertOptions): Alert | null {
  const now = history[history.length - 1];
  const lastMixed = history.findLastIndex((record) => record["groups/mixed"] !== 0);
  const streak = history.length - 1 - lastMixed;
  if (streak === 0 || streak % options.deadSteps !== 0) return null;
  const allFail = now["groups/all-fail"] ?? 0;
  const allPass = now["groups/all-pass"] ?? 0;
  // Where groups were mixed once and all fail now, the policy has lost what it could do.
  const lost = lastMixed >= 0 && allFail > allPass;
  return {
    level: lost ? "return" : options.deadAction === "stop" ? "stop" : "warn",
    code: "RLVR_ALERT_DEAD_GROUPS",
    message:
      `expected groups with different rewards, got none for ${streak} steps ` +
      `(now ${allPass} all pass, ${allFail} all fail)`,
    step: now.step,
    values: { streak, allPass, allFail, healthyStep: lastMixed >= 0 ? history[lastMixed].step : 0 },
  };
}

/**
 * The alerts that the newest record of a history gives rise to. For an alert of level `return`, `values.healthyStep` is the
 * last step before things went wrong: go back to the newest good checkpoint that is not after it.
 *
 * @param history metrics of every step so far, oldest first; after a return, without the steps that were undone
 */
export function alertsAt(history: readonly MetricRecord[], options: AlertOptions): Alert[] {
  if (history.length === 0) return [];
  const broken = nonFinite(history);
  const gap = logprobGap(history, options);
  const fallen = suddenCollapse(history, options) ?? slowCollapse(history, options);
  const dead = deadGroups(history, options);
  return [broken, gap, fallen, dead].filter((alert) => alert !== null);
}
