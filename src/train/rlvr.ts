/**
 * The training loop: tasks → rollouts → verdicts → advantages → update, until the steps are done.
 *
 *   for each step
 *     take the next tasks            a shuffled epoch at a time; the order follows from the seed alone
 *     sample a group of completions  by the policy as it is now, each from its own random stream
 *     judge them                     by the verifier's hidden tests; `error` leaves its group
 *     compare within each group      A = (r − mean) / (std + ε)
 *     update                         minimise the objective; see learning/compose.ts for the formula
 *     look at it                     metrics, alerts, a checkpoint; back to the last good one where it went wrong
 *
 * How this GRPO differs from the paper's (arXiv 2402.03300): no KL term unless `objective.klCoefficient` is set; the
 * denominator of the ratio is what the sampler really computed, with its temperature; groups without a difference in
 * reward are scored but not back-propagated, because their gradient is 0; the deviation is the population's (ddof 0).
 *
 * Everything but `time/…` and `speed/…` follows from config and seed: a run that was killed and resumed ends bit for bit
 * as one that was not.
 */
import { RlvrError } from "../base/errors.ts";
import { RandomStream } from "../base/random.ts";
import type { RlvrConfig } from "../config/index.ts";
import { evaluatePolicy, evaluationTasks } from "../evaluate/evaluate.ts";
import { batchAdvantages } from "../learning/advantages.ts";
import { diagnoseGroups } from "../learning/diagnosis.ts";
import { createObjective } from "../learning/objectives.ts";
import { checkPrompts, engineOptions, LocalPolicy } from "../policy/local.ts";
import type { Policy } from "../policy/policy.ts";
import { rolloutMetrics } from "../rollouts/metrics.ts";
import { type Rollout, rewardOf, toRecord } from "../rollouts/rollout.ts";
import { sampleGroups } from "../rollouts/sample.ts";
import type { Alert, EvaluationPair } from "../runs/events.ts";
import { alertsAt, type RunFolder } from "../runs/index.ts";
import { validateTasks } from "../tasks/splits.ts";
import type { Task } from "../tasks/task.ts";
import type { Verifier } from "../verifiers/verifier.ts";
import { pickSamples } from "./samples.ts";
import {
  digest,
  fromConfig,
  type LoopOptions,
  type LoopState,
  loadState,
  loadTasks,
  openRun,
  saveState,
} from "./setup.ts";
import { type Scored, updatePolicy } from "./update.ts";

export type { LoopOptions } from "./setup.ts";

export interface TrainResult {
  /** The run folder. */
  run: string;
  steps: number;
  seconds: number;
  evaluation: EvaluationPair;
  interrupted: boolean;
}

/** Steps between the completions shown while training. */
const SAMPLES_EVERY = 10;
/** Rollouts scored under the reference policy to log the divergence from it, where the loss does not need it. */
const REFERENCE_ROLLOUTS = 32;

/**
 * Trains `config.model` against `config.verifier` and evaluates it before and after on the same untouched tasks.
 * Throws `RlvrError`s for bad input, and where alerts end the run (`RLVR_STOPPED`); the run folder keeps all that was
 * done until then.
 */
export async function trainRlvr(config: RlvrConfig, options: LoopOptions): Promise<TrainResult> {
  const started = performance.now();
  const tasks = await loadTasks(config);
  validateTasks(tasks, ["train", config.evaluation.split]);
  const modelFolder = fromConfig(options.configPath, config.model);
  const policy = await LocalPolicy.load(modelFolder, engineOptions(config.engine));
  let verifier: Verifier | undefined;
  let run: RunFolder | undefined;
  try {
    const evaluated = evaluationTasks(tasks, config.evaluation);
    checkPrompts(policy, [...tasks.train, ...evaluated]);
    verifier = await config.verifier();
    const { name, version, contract } = verifier;
    run = openRun(config, options, {
      kind: "train",
      verifier: { name, version, contract },
      verifierHash: digest({ name, version, contract }),
      modelHash: (await policy.version()).hash,
      tasksHash: digest(tasks),
      seed: config.seed,
    });
    await policy.setReference(modelFolder);
    const loop = new Loop(config, options, { policy, verifier, run, train: tasks.train, evaluated });
    await loop.start();
    const finished = (await loop.evaluate("before")) && (await loop.train()) && (await loop.evaluate("after"));
    return {
      run: run.path,
      steps: loop.state.step,
      seconds: (performance.now() - started) / 1000,
      evaluation: { before: run.evaluation("before"), after: run.evaluation("after") },
      interrupted: !finished,
    };
  } finally {
    run?.close();
    await verifier?.close();
    await policy.close();
  }
}

interface Parts {
  policy: Policy;
  verifier: Verifier;
  run: RunFolder;
  train: readonly Task[];
  evaluated: readonly Task[];
}

class Loop {
  readonly #config: RlvrConfig;
  readonly #options: LoopOptions;
  readonly #parts: Parts;
  readonly #stepSeconds: number[] = [];
  state: LoopState = { step: 0, cursor: 0, returns: 0 };

  constructor(config: RlvrConfig, options: LoopOptions, parts: Parts) {
    this.#config = config;
    this.#options = options;
    this.#parts = parts;
  }

  /** Continues from the newest checkpoint, or makes the first one, so that there always is one to go back to. */
  async start(): Promise<void> {
    const { run, verifier, policy, train, evaluated } = this.#parts;
    const resumed = this.#options.resume !== undefined;
    const checkpoint = resumed ? run.latestCheckpoint() : null;
    const undone = checkpoint ? run.undoneReturn() : null;
    if (resumed && !undone) run.rewind(checkpoint?.step ?? 0);
    if (checkpoint && !undone) this.state = { ...(await loadState(checkpoint, policy)), returns: run.returns() };
    const { config } = JSON.parse(run.readFile("config.json")) as { config: Record<string, unknown> };
    this.#options.onEvent({
      event: "start",
      run: run.path,
      config,
      contract: verifier.contract,
      verifier: `${verifier.name} ${verifier.version}`,
      ...(checkpoint ? { resumedFrom: checkpoint.step } : {}),
    });
    const { promptsPerStep, groupSize } = this.#config.rollouts;
    const { beforeAndAfter, samplesPerTask } = this.#config.evaluation;
    this.#options.onEvent({
      event: "plan",
      steps: this.#config.steps,
      values: {
        parameters: policy.parameters,
        "training tasks": train.length,
        "rollouts a step": promptsPerStep * groupSize,
        ...(beforeAndAfter ? { "evaluation rollouts": 2 * evaluated.length * samplesPerTask } : {}),
      },
    });
    if (undone) {
      // The run ended between this alert and what follows from it, which is made up for now.
      this.state = { ...this.state, returns: run.returns() - 1 };
      await this.#return(undone);
    } else if (!checkpoint) await this.#checkpoint(true);
  }

  /** Evaluates unless it was done before the run was interrupted; false when interrupted now. */
  async evaluate(when: "before" | "after"): Promise<boolean> {
    const { policy, verifier, run, evaluated } = this.#parts;
    const { signal, onEvent } = this.#options;
    if (!this.#config.evaluation.beforeAndAfter) return true;
    let evaluation = run.evaluation(when);
    if (!evaluation) {
      // "Before" is the model as it was given: a run that is resumed has the evaluation from its start.
      evaluation = await evaluatePolicy(policy, verifier, evaluated, this.#config.evaluation, {
        signal,
        onProgress: (done, total) => onEvent({ event: "progress", phase: `evaluate ${when}`, done, total }),
      });
      if (!evaluation) return false;
      run.writeEvaluation(when, evaluation);
    }
    onEvent({ event: "evaluation", when, evaluation });
    return true;
  }

  /** All remaining steps; false when interrupted. The state of the last finished step is saved in both cases. */
  async train(): Promise<boolean> {
    const { everySteps } = this.#config.checkpoints;
    while (this.state.step < this.#config.steps) {
      if (this.#options.signal.aborted) break;
      const alerts = await this.#step();
      const worst = alerts.find(({ level }) => level === "stop") ?? alerts.find(({ level }) => level === "return");
      if (worst?.level === "stop") throw stopped(worst);
      if (worst) await this.#return(worst);
      else if (this.state.step % everySteps === 0) await this.#checkpoint(alerts.length === 0);
    }
    const { run } = this.#parts;
    if (run.latestCheckpoint()?.step !== this.state.step) await this.#checkpoint(true);
    return this.state.step >= this.#config.steps;
  }

  async #step(): Promise<Alert[]> {
    const { policy, verifier, run } = this.#parts;
    const { rollouts: settings, objective: constants, seed } = this.#config;
    const { temperature, topP, topK, maxTokens, groupSize, promptsPerStep } = settings;
    const started = performance.now();
    const step = this.state.step + 1;

    const tasks = this.#nextTasks(promptsPerStep);
    const sampled = await sampleGroups(policy, verifier, tasks, {
      groupSize,
      sampler: { temperature, topP, topK, maxTokens },
      key: [seed, step, this.state.returns],
      purpose: "reward",
    });

    const judged = sampled.groups.map((group) => group.filter(({ verdict }) => rewardOf(verdict) !== null));
    const rewards = judged.map((group) => group.map(({ verdict }) => rewardOf(verdict) as number));
    const { advantageScale: scale, ddof, epsilon } = constants;
    const advantages = batchAdvantages(rewards, { scale, ddof, epsilon });
    const scored: Scored[] = judged.flatMap((group, g) =>
      group.map((rollout, i) => ({ rollout, advantage: advantages[g][i] })),
    );
    const diagnosis = diagnoseGroups(
      sampled.groups.map((group) => group.map(diagnosed)),
      constants,
    );

    const verified = performance.now();
    const rollouts = sampled.groups.flat();
    const divergence = constants.klCoefficient > 0 ? {} : await this.#divergence(rollouts.slice(0, REFERENCE_ROLLOUTS));
    const { name, ...rest } = constants;
    const objective = createObjective(name, { ...rest, constantLength: maxTokens });
    const update = await updatePolicy(policy, scored, {
      config: this.#config,
      step: step - 1,
      rateScale: 0.5 ** this.state.returns,
      objective,
    });
    const updateSeconds = (performance.now() - verified) / 1000;

    const advantageOf = new Map(scored.map(({ rollout, advantage }) => [rollout, advantage]));
    run.writeRollouts(
      step,
      rollouts.map((rollout) => toRecord(rollout, step, advantageOf.get(rollout) ?? null)),
    );
    const totalSeconds = (performance.now() - started) / 1000;
    const metrics: Record<string, number> = {
      ...rolloutMetrics(rollouts),
      "groups/mixed": diagnosis.mixed,
      "groups/all-pass": diagnosis.allPass,
      "groups/all-fail": diagnosis.allFail,
      "groups/format-only": diagnosis.formatOnly,
      "groups/zero-advantage": diagnosis.zeroAdvantageShare,
      "verdicts/retried": sampled.retries,
      ...divergence,
      ...update.metrics,
      "time/generate": sampled.generateSeconds,
      "time/verify": sampled.verifySeconds,
      "time/update": updateSeconds,
      "time/total": totalSeconds,
      "speed/verify": rollouts.length / sampled.verifySeconds,
    };
    metrics["speed/generate"] = metrics["tokens/generated"] / sampled.generateSeconds;
    metrics["speed/update"] = (metrics["tokens/trained"] ?? 0) / updateSeconds;
    run.appendMetrics(step, metrics);
    this.state = { ...this.state, step, cursor: this.state.cursor + tasks.length };
    this.#report(metrics, rollouts, totalSeconds);

    const alerts = alertsAt(run.metrics(), this.#config.alerts);
    if (!update.applied && !alerts.some(({ level }) => level !== "warn")) alerts.push(refused(step, update.culprit));
    for (const alert of alerts) {
      run.appendEvent({ event: "alert", ...alert });
      this.#options.onEvent({ event: "alert", ...alert, message: withSample(alert, update.widestGap, diagnosis.text) });
    }
    return alerts;
  }

  /** The next tasks of the epoch; a new epoch is shuffled anew. */
  #nextTasks(count: number): Task[] {
    const { train } = this.#parts;
    return Array.from({ length: count }, (_, i) => {
      const position = this.state.cursor + i;
      const epoch = Math.floor(position / train.length);
      this.#epoch = this.#epoch?.number === epoch ? this.#epoch : { number: epoch, tasks: this.#shuffled(epoch) };
      return this.#epoch.tasks[position % train.length];
    });
  }
  #epoch: { number: number; tasks: Task[] } | undefined;

  #shuffled(epoch: number): Task[] {
    return new RandomStream(this.#config.seed, "epoch", epoch).shuffle(this.#parts.train);
  }

  /** Divergence of the sampling policy from the reference, on some of the step's rollouts. */
  async #divergence(rollouts: readonly Rollout[]): Promise<Record<string, number>> {
    const { temperature } = this.#config.rollouts;
    const sequences = rollouts.map(({ prompt, tokens }) => ({
      tokens: [...prompt, ...tokens],
      scoreFrom: prompt.length,
    }));
    const { logprobs } = await this.#parts.policy.logprobs(sequences, { temperature, keep: false, reference: true });
    const differences = rollouts.flatMap((rollout) => rollout.logprobs).map((logprob, t) => logprob - logprobs[t]);
    const mean = (values: readonly number[]) =>
      values.reduce((sum, value) => sum + value, 0) / Math.max(1, values.length);
    return { "kl/k1": mean(differences), "kl/k3": mean(differences.map((d) => Math.expm1(-d) + d)) };
  }

  #report(metrics: Record<string, number>, rollouts: readonly Rollout[], seconds: number): void {
    const { step } = this.state;
    const { steps } = this.#config;
    this.#stepSeconds.push(seconds);
    const recent = this.#stepSeconds.slice(-10);
    const etaSeconds = ((steps - step) * recent.reduce((sum, value) => sum + value, 0)) / recent.length;
    this.#options.onEvent({ event: "step", step, steps, metrics, etaSeconds });
    if (step % SAMPLES_EVERY === 0 || step === steps) {
      this.#options.onEvent({ event: "samples", step, ...pickSamples(rollouts) });
    }
  }

  async #checkpoint(good: boolean): Promise<void> {
    const { run, policy } = this.#parts;
    const { step, path } = await saveState(run, this.state, policy, { keep: this.#config.checkpoints.keep, good });
    this.#options.onEvent({ event: "checkpoint", step, path });
  }

  /** Back to the newest good checkpoint from before things went wrong, with half the learning rate and other samples. */
  async #return(alert: Alert): Promise<void> {
    const { run, policy } = this.#parts;
    const returns = this.state.returns + 1;
    if (returns > this.#config.alerts.maxReturns) throw stopped(alert);
    const checkpoint = run.latestCheckpoint({ good: true, atMost: alert.values.healthyStep ?? alert.step - 1 });
    if (!checkpoint) throw stopped(alert);
    run.rewind(checkpoint.step);
    this.state = { ...(await loadState(checkpoint, policy)), returns };
    const message = `back to step ${checkpoint.step}, learning rate × ${0.5 ** returns}`;
    run.appendEvent({ event: "returned", step: checkpoint.step, returns, message });
    this.#options.onEvent({
      event: "alert",
      level: "warn",
      code: "RLVR_RETURNED",
      message,
      step: alert.step,
      values: { returns },
    });
  }
}

function diagnosed({ verdict }: Rollout) {
  return { reward: rewardOf(verdict), passed: verdict.outcome === "pass", invalid: verdict.outcome === "invalid" };
}

function refused(step: number, culprit: Rollout | undefined): Alert {
  const where = culprit ? `sample ${culprit.sample} of task ${culprit.task.id}` : "the gradient";
  return {
    level: "return",
    code: "RLVR_ALERT_NOT_FINITE",
    message: `expected finite numbers, got none for ${where}; the update was refused`,
    step,
    values: { healthyStep: step - 1 },
  };
}

function withSample(alert: Alert, widest: Rollout | undefined, diagnosis: string): string {
  if (alert.code === "RLVR_ALERT_LOGPROB_GAP" && widest) {
    return `${alert.message} (sample ${widest.sample} of task ${widest.task.id})`;
  }
  return alert.code === "RLVR_ALERT_DEAD_GROUPS" ? `${alert.message}; ${diagnosis}` : alert.message;
}

function stopped(alert: Alert): RlvrError {
  return new RlvrError("RLVR_STOPPED", `train: ${alert.message} (${alert.code}, step ${alert.step})`, {
    next: "look at the last rollouts and metrics in the run folder; a lower learning rate or a longer warm-up is the usual cure",
  });
}
