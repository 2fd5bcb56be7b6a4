/** Alerts of the training loop, and what they say. */
import { RlvrError } from "../base/errors.ts";
import type { Rollout } from "../rollouts/rollout.ts";
import type { Alert } from "../runs/events.ts";
import type { BatchSource } from "./batch-source.ts";

/** For an update that was refused because of a number that is not finite. */
export function refused(step: number, culprit: Rollout | undefined): Alert {
  const where = culprit ? `sample ${culprit.sample} of task ${culprit.task.id}` : "the gradient";
  return {
    level: "return",
    code: "RLVR_ALERT_NOT_FINITE",
    message: `expected finite numbers, got none for ${where}; the update was refused`,
    step,
    values: { healthyStep: step - 1 },
  };
}

/** For a batch that dynamic sampling could not fill. */
export function exhausted(step: number, reason: string, kept: number): Alert {
  return {
    level: "warn",
    code: "RLVR_ALERT_SAMPLING_EXHAUSTED",
    message: `expected a full batch, got ${reason}`,
    step,
    values: { kept },
  };
}

/** What a run does about steps without a mixed group: changes what it samples, or ends when nothing is left to try. */
export function adaptations(alerts: readonly Alert[], source: BatchSource, most: number): Alert[] {
  const dead = alerts.find(({ code, level }) => code === "RLVR_ALERT_DEAD_GROUPS" && level === "warn");
  if (!dead) return [];
  const { allPass = 0, allFail = 0 } = dead.values;
  const cause = allPass > allFail ? "all-pass" : "all-fail";
  const done = source.adapt(cause, most);
  const { step } = dead;
  if (done) return [{ level: "warn", code: "RLVR_ADAPTED", message: `from now on ${done}`, step, values: {} }];
  return [{ ...dead, level: "stop", message: `${dead.message}, and nothing is left to adapt` }];
}

/** The message with what only the loop knows. */
export function withContext(alert: Alert, widest: Rollout | undefined, diagnosis: string): string {
  if (alert.code === "RLVR_ALERT_LOGPROB_GAP" && widest) {
    return `${alert.message} (sample ${widest.sample} of task ${widest.task.id})`;
  }
  return alert.code === "RLVR_ALERT_DEAD_GROUPS" ? `${alert.message}; ${diagnosis}` : alert.message;
}

/** The error that ends a run. */
export function stopped(alert: Alert): RlvrError {
  const next =
    alert.code === "RLVR_ALERT_DEAD_GROUPS" && alert.level === "stop"
      ? "give the policy tasks that it sometimes solves: easier ones, a longer rollouts.maxTokens, or rlvr sft first"
      : "look at the last rollouts and metrics in the run folder; a lower learning rate or a longer warm-up is the usual cure";
  return new RlvrError("RLVR_STOPPED", `train: ${alert.message} (${alert.code}, step ${alert.step})`, { next });
}
