import { resolve } from "node:path";
import { RlvrError } from "../base/errors.ts";
import { RandomStream } from "../base/random.ts";
import type { RlvrConfig } from "../config/index.ts";
import { checkPrompts, engineOptions, LocalPolicy } from "../policy/local.ts";
import type { Policy } from "../policy/policy.ts";
import { isHardCodingSuspect, rolloutMetrics } from "../rollouts/metrics.ts";
import type { Rollout } from "../rollouts/rollout.ts";
import { sampleGroups } from "../rollouts/sample.ts";
import type { Evaluation, Interval, RunEvent, TaskResult } from "../runs/events.ts";
import { validateTasks } from "../tasks/splits.ts";
import type { Task, TaskSet } from "../tasks/task.ts";
import type { Verifier } from "../verifiers/verifier.ts";
import { bootstrapMean } from "./intervals.ts";
import { passAtK } from "./pass-at-k.ts";

/** Completions judged between two looks at the abort signal. */
const CHUNK_SAMPLES = 512;

/** The tasks of an evaluation: the same ones for the same seed, whatever was trained. */
export function evaluationTasks(tasks: TaskSet, settings: RlvrConfig["evaluation"]): Task[] {
  return new RandomStream(settings.seed, "evaluation tasks").shuffle(tasks[settings.split]).slice(0, settings.tasks);
}

export interface EvaluatePolicyOptions {
  signal?: AbortSignal;
  onProgress?(done: number, total: number): void;
}

/**
 * Judges a policy on tasks by the tests kept for evaluation. Samples depend on the evaluation's seed, the task and the
 * sample's number only, so that two policies are compared on the same draws.
 *
 * Returns null when the signal aborted. Throws `RLVR_VERIFIER` where every verdict is `error`.
 */
export async function evaluatePolicy(
  policy: Policy,
  verifier: Verifier,
  tasks: readonly Task[],
  settings: RlvrConfig["evaluation"],
  options: EvaluatePolicyOptions = {},
): Promise<Evaluation | null> {
  const started = performance.now();
  const { samplesPerTask, temperature, topP, topK, maxTokens, seed } = settings;
  const groups: Rollout[][] = [];
  const chunk = Math.max(1, Math.floor(CHUNK_SAMPLES / samplesPerTask));
  for (let from = 0; from < tasks.length; from += chunk) {
    options.onProgress?.(from, tasks.length);
    if (options.signal?.aborted) return null;
    const sampled = await sampleGroups(policy, verifier, tasks.slice(from, from + chunk), {
      groupSize: samplesPerTask,
      sampler: { temperature, topP, topK, maxTokens },
      key: [seed, "evaluation"],
      purpose: "evaluation",
    });
    groups.push(...sampled.groups);
  }
  options.onProgress?.(tasks.length, tasks.length);
  return summarise(groups, settings, (performance.now() - started) / 1000);
}

function summarise(groups: readonly Rollout[][], settings: RlvrConfig["evaluation"], seconds: number): Evaluation {
  const rollouts = groups.flat();
  const judged = groups
    .map((group) => group.filter(({ verdict }) => verdict.outcome !== "error"))
    .filter((group) => group.length > 0);
  if (judged.length === 0) {
    const reason = rollouts[0]?.verdict.evidence.reason;
    throw new RlvrError(
      "RLVR_VERIFIER",
      `evaluation: expected the verifier to judge at least one of ${rollouts.length} completions, got errors only${reason === undefined ? "" : `: ${reason}`}`,
      { next: "correct the verifier; a verdict `error` is a failure of its own, never of a completion" },
    );
  }
  const perTask = judged.map((group): TaskResult => {
    const { id, source, difficulty, tags } = group[0].task;
    const passed = group.filter(({ verdict }) => verdict.outcome === "pass").length;
    return { id, samples: group.length, passed, source, difficulty, tags };
  });
  const interval = (k: number): Interval =>
    bootstrapMean(
      perTask.map(({ samples, passed }) => passAtK(samples, passed, Math.min(k, samples))),
      { seed: settings.seed },
    );
  const ks = [1, 2, 4, 8, 16, 32, 64].filter((k) => k <= settings.samplesPerTask);
  const passAtKs = Object.fromEntries(ks.map((k) => [String(k), interval(k)]));
  const metrics = rolloutMetrics(rollouts);
  return {
    passAt1: passAtKs["1"],
    tasks: perTask.length,
    samplesPerTask: settings.samplesPerTask,
    split: settings.split,
    passAtK: passAtKs,
    perTask,
    errors: metrics["verdicts/error"],
    truncated: metrics["length/truncated"],
    length: { right: metrics["length/right"] ?? null, wrong: metrics["length/wrong"] ?? null },
    visiblePassHiddenFail: judged.flat().filter(isHardCodingSuspect).length / Math.max(1, judged.flat().length),
    seconds,
  };
}

/** Evaluates a model folder with a config's tasks, verifier and evaluation settings: the command `rlvr eval`. */
export async function evaluateModel(
  config: RlvrConfig,
  options: { model: string; signal: AbortSignal; onEvent(event: RunEvent): void },
): Promise<Evaluation> {
  const tasks = typeof config.tasks === "function" ? await config.tasks(config.seed) : config.tasks;
  validateTasks(tasks, [config.evaluation.split]);
  const policy = await LocalPolicy.load(resolve(options.model), engineOptions(config.engine));
  const verifier = await config.verifier();
  try {
    const chosen = evaluationTasks(tasks, config.evaluation);
    checkPrompts(policy, chosen);
    const evaluation = await evaluatePolicy(policy, verifier, chosen, config.evaluation, {
      signal: options.signal,
      onProgress: (done, total) => options.onEvent({ event: "progress", phase: "evaluate", done, total }),
    });
    // Aborted: the caller looks at its own signal and discards this.
    return (
      evaluation ?? {
        passAt1: { estimate: 0, low: 0, high: 0 },
        tasks: 0,
        samplesPerTask: config.evaluation.samplesPerTask,
      }
    );
  } finally {
    await verifier.close();
    await policy.close();
  }
}
