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
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { RlvrConfig } from "../config/index.ts";
import { evaluatePolicy, evaluationTasks } from "../evaluate/evaluate.ts";
import { diagnoseGroups } from "../learning/diagnosis.ts";
import { createObjective } from "../learning/objectives.ts";
import { checkPrompts, engineOptions, LocalPolicy } from "../policy/local.ts";
import type { Policy } from "../policy/policy.ts";
import { rolloutMetrics } from "../rollouts/metrics.ts";
import { type Rollout, rewardOf, toRecord } from "../rollouts/rollout.ts";
import type { Alert, EvaluationPair } from "../runs/events.ts";
import { alertsAt, type Checkpoint, type RunFolder, trendAlertsAt } from "../runs/index.ts";
import { validateTasks } from "../tasks/splits.ts";
import type { Task } from "../tasks/task.ts";
import type { Verifier } from "../verifiers/verifier.ts";
import { adaptations, exhausted, refused, stopped, withContext } from "./alerts.ts";
import { BatchSource } from "./batch-source.ts";
import { rlvrCosts, writeCosts } from "./costs.ts";
import { moveReference, referenceDivergence } from "./reference.ts";
import { pickSamples } from "./samples.ts";
import { scoreGroups } from "./scoring.ts";
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
import { updatePolicy } from "./update.ts";

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
/** In a checkpoint: the reference policy, where it moves, and the batches that wait to be trained on. */
const REFERENCE_FOLDER = "reference";
const QUEUE_FILE = "queue.json.gz";

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
    writeCosts(run, rlvrCosts(run, policy.parameters));
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
  readonly #source: BatchSource;
  readonly #stepSeconds: number[] = [];
  state: LoopState = { step: 0, cursor: 0, returns: 0 };

  constructor(config: RlvrConfig, options: LoopOptions, parts: Parts) {
    this.#config = config;
    this.#options = options;
    this.#parts = parts;
    this.#source = new BatchSource(config, parts.policy, parts.verifier, parts.train);
  }

  /** Continues from the newest checkpoint, or makes the first one, so that there always is one to go back to. */
  async start(): Promise<void> {
    const { run, verifier, policy, train, evaluated } = this.#parts;
    const resumed = this.#options.resume !== undefined;
    const checkpoint = resumed ? run.latestCheckpoint() : null;
    const undone = checkpoint ? run.undoneReturn() : null;
    if (resumed && !undone) run.rewind(checkpoint?.step ?? 0);
    if (checkpoint && !undone) await this.#load(checkpoint, run.returns());
    this.#options.onEvent({
      event: "start",
      run: run.path,
      config: run.config(),
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
      else if (this.state.step % everySteps === 0) await this.#checkpoint(true);
    }
    const { run } = this.#parts;
    if (run.latestCheckpoint()?.step !== this.state.step) await this.#checkpoint(true);
    return this.state.step >= this.#config.steps;
  }

  async #step(): Promise<Alert[]> {
    const { policy, run } = this.#parts;
    const { objective: constants, alerts: limits } = this.#config;
    const started = performance.now();
    const step = this.state.step + 1;

    const batch = await this.#source.next(step, this.state.returns);
    const { scored, metrics: rewardMetrics } = scoreGroups(batch.kept, this.#config);
    const diagnosis = diagnoseGroups(
      batch.sampled.map((group) => group.map(diagnosed)),
      { ...constants, stepScores: scored.some(({ process }) => process?.some((value) => value !== 0)) },
    );

    const verified = performance.now();
    const klCoefficient = this.state.klCoefficient ?? constants.klCoefficient;
    // What the sampled policy's metrics are taken over is all that was sampled, not only what can teach.
    const rollouts = batch.sampled.flat();
    const divergence = await referenceDivergence(policy, rollouts);
    const update = await updatePolicy(policy, scored, {
      config: this.#config,
      step: step - 1,
      rateScale: 0.5 ** this.state.returns,
      klCoefficient,
      objective: createObjective(constants.name, {
        ...constants,
        klCoefficient: constants.klPlace === "loss" ? klCoefficient : 0,
      }),
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
      ...rewardMetrics,
      "groups/mixed": diagnosis.mixed,
      "groups/all-pass": diagnosis.allPass,
      "groups/all-fail": diagnosis.allFail,
      "groups/format-only": diagnosis.formatOnly,
      "groups/zero-advantage": diagnosis.zeroAdvantageShare,
      "verdicts/retried": batch.retries,
      ...this.#source.metrics(batch),
      ...divergence,
      ...(constants.klTarget > 0 ? { "kl/coefficient": klCoefficient } : {}),
      ...update.metrics,
      "time/generate": batch.generateSeconds,
      "time/verify": batch.verifySeconds,
      "time/update": updateSeconds,
      "time/total": totalSeconds,
      "speed/generate": rollouts.reduce((sum, { tokens }) => sum + tokens.length, 0) / batch.generateSeconds,
      "speed/verify": rollouts.length / batch.verifySeconds,
      "speed/update":
        ((update.metrics["tokens/trained"] ?? 0) + (update.metrics["tokens/forward"] ?? 0)) / updateSeconds,
    };
    run.appendMetrics(step, metrics);
    this.state = { ...this.state, ...this.#source.state, step };
    if (update.applied) {
      const next = await moveReference(policy, this.#config, step, { klCoefficient, divergence: metrics["kl/k3"] });
      if (next !== constants.klCoefficient) this.state = { ...this.state, klCoefficient: next };
    }
    this.#report(metrics, rollouts, totalSeconds);

    const history = run.metrics();
    const alerts = [...alertsAt(history, limits), ...trendAlertsAt(history, limits)];
    if (batch.exhausted) alerts.push(exhausted(step, batch.exhausted, batch.kept.length));
    if (!update.applied && !alerts.some(({ level }) => level !== "warn")) alerts.push(refused(step, update.culprit));
    if (limits.deadAction === "adapt") alerts.push(...adaptations(alerts, this.#source, limits.maxAdaptations));
    this.state = { ...this.state, ...this.#source.state };
    for (const alert of alerts) {
      if (alert.code === "RLVR_ALERT_NOT_FINITE") run.keepRollouts(step);
      run.appendEvent({ event: "alert", ...alert });
      const message = withContext(alert, update.widestGap, diagnosis.text);
      this.#options.onEvent({ event: "alert", ...alert, message });
    }
    return alerts;
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
    const { syncEvery, resetEvery } = this.#config.reference;
    const { step, path } = await saveState(run, this.state, policy, {
      keep: this.#config.checkpoints.keep,
      good,
      extra: async (folder) => {
        if (syncEvery > 0 || resetEvery > 0) await policy.saveReference(join(folder, REFERENCE_FOLDER));
        const queue = this.#source.queueBytes();
        if (queue) writeFileSync(join(folder, QUEUE_FILE), queue);
      },
    });
    this.#options.onEvent({ event: "checkpoint", step, path });
  }

  async #load(checkpoint: Checkpoint, returns: number): Promise<void> {
    const { policy } = this.#parts;
    this.state = { ...(await loadState(checkpoint, policy)), returns };
    const reference = join(checkpoint.path, REFERENCE_FOLDER);
    if (existsSync(reference)) await policy.setReference(reference);
    const queue = join(checkpoint.path, QUEUE_FILE);
    this.#source.restore(this.state, existsSync(queue) ? readFileSync(queue) : undefined);
  }

  /** Back to the newest good checkpoint from before things went wrong, with half the learning rate and other samples. */
  async #return(alert: Alert): Promise<void> {
    const { run } = this.#parts;
    const returns = this.state.returns + 1;
    if (returns > this.#config.alerts.maxReturns) throw stopped(alert);
    const checkpoint = run.latestCheckpoint({ good: true, atMost: alert.values.healthyStep ?? alert.step - 1 });
    if (!checkpoint) throw stopped(alert);
    run.rewind(checkpoint.step);
    await this.#load(checkpoint, returns);
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
