/**
 * The cheaper paths: learning from a teacher, or from more data, where reinforcement is not needed for all of the way.
 *
 *   responses   the teacher answers the training tasks; what passes the verifier is imitated       distill-text.ts
 *   on-policy   the student answers; the teacher's probabilities of its tokens are the signal      distill-on-policy.ts
 *   continue    next-token training on a mix of named datasets                                     distill-text.ts
 *
 * All three are evaluated before and after on the same untouched tasks as `rlvr train`, continue after a crash bit for
 * bit, and end with the same account of costs.
 */
import { RandomStream } from "../base/random.ts";
import type { RlvrConfig } from "../config/index.ts";
import { evaluatePolicy, evaluationTasks } from "../evaluate/evaluate.ts";
import { checkPrompts, engineOptions, LocalPolicy } from "../policy/local.ts";
import type { EvaluationPair } from "../runs/events.ts";
import type { RunFolder } from "../runs/index.ts";
import { validateTasks } from "../tasks/splits.ts";
import type { Task, TaskSet } from "../tasks/task.ts";
import type { Verifier } from "../verifiers/verifier.ts";
import { flopsOf, writeCosts } from "./costs.ts";
import type { DistillMethod, DistillSetup } from "./distill-method.ts";
import { onPolicyMethod } from "./distill-on-policy.ts";
import { continueMethod, responsesMethod } from "./distill-text.ts";
import { digest, fromConfig, type LoopOptions, loadTasks, openRun } from "./setup.ts";

export interface DistillResult {
  run: string;
  steps: number;
  seconds: number;
  evaluation: EvaluationPair;
  /** Folder of the trained model. */
  model: string;
  interrupted: boolean;
}

const METHODS: Record<RlvrConfig["distill"]["method"], (setup: DistillSetup) => Promise<DistillMethod>> = {
  responses: responsesMethod,
  "on-policy": onPolicyMethod,
  continue: continueMethod,
};

/** Trains `config.model`, the student, by `config.distill`, and evaluates it before and after. */
export async function trainDistill(config: RlvrConfig, options: LoopOptions): Promise<DistillResult> {
  const started = performance.now();
  const tasks = await loadTasks(config);
  const needed = config.distill.method === "continue" ? [] : (["train"] as const);
  validateTasks(tasks, [...needed, config.evaluation.split]);
  const student = await LocalPolicy.load(fromConfig(options.configPath, config.model), engineOptions(config.engine));
  let verifier: Verifier | undefined;
  let method: DistillMethod | undefined;
  let run: RunFolder | undefined;
  try {
    const evaluated = evaluationTasks(tasks, config.evaluation);
    const train = needed.length > 0 ? trainingTasks(tasks, config) : [];
    checkPrompts(student, [...train, ...evaluated]);
    verifier = await config.verifier();
    method = await METHODS[config.distill.method]({ config, options, student, verifier, tasks: train });
    run = openRun(config, options, await manifest(config, student, verifier, method, tasks));
    const resumedFrom = await method.start(run);
    announce(config, options, run, student, verifier, method, resumedFrom);
    const evaluate = (when: "before" | "after") =>
      evaluateOnce(config, options, run as RunFolder, student, verifier as Verifier, evaluated, when);
    const finished = (await evaluate("before")) && (await method.train(run)) && (await evaluate("after"));
    const out = config.distill.out === undefined ? undefined : fromConfig(options.configPath, config.distill.out);
    if (finished && out !== undefined) await student.saveModel(out);
    const { student: own, teacher, ...counted } = method.costs(run);
    writeCosts(run, {
      method: `distill ${config.distill.method}`,
      ...counted,
      flops: flopsOf({ student: own, teacher }),
    });
    return {
      run: run.path,
      steps: method.step(),
      seconds: (performance.now() - started) / 1000,
      evaluation: { before: run.evaluation("before"), after: run.evaluation("after") },
      model: out ?? run.latestCheckpoint()?.path ?? run.path,
      interrupted: !finished,
    };
  } finally {
    run?.close();
    await method?.close?.();
    await verifier?.close();
    await student.close();
  }
}

function trainingTasks(tasks: TaskSet, config: RlvrConfig): Task[] {
  const { tasks: most } = config.distill;
  if (most === undefined) return tasks.train;
  return new RandomStream(config.seed, "distill tasks").shuffle(tasks.train).slice(0, most);
}

async function manifest(
  config: RlvrConfig,
  student: LocalPolicy,
  { name, version, contract }: Verifier,
  method: DistillMethod,
  tasks: TaskSet,
): Promise<Record<string, unknown>> {
  return {
    kind: "distill",
    method: config.distill.method,
    verifier: { name, version, contract },
    verifierHash: digest({ name, version, contract }),
    modelHash: (await student.version()).hash,
    tasksHash: digest(tasks),
    ...method.details,
    seed: config.seed,
  };
}

function announce(
  config: RlvrConfig,
  options: LoopOptions,
  run: RunFolder,
  student: LocalPolicy,
  { name, version }: Verifier,
  { plan }: DistillMethod,
  resumedFrom: number | undefined,
): void {
  options.onEvent({
    event: "start",
    run: run.path,
    config: run.config(),
    verifier: `${name} ${version}`,
    ...(resumedFrom === undefined ? {} : { resumedFrom }),
  });
  const values = { method: config.distill.method, parameters: student.parameters, ...plan };
  options.onEvent({ event: "plan", steps: config.distill.steps, values });
}

/** Evaluates unless that was done before the run was interrupted; false when interrupted now. */
async function evaluateOnce(
  config: RlvrConfig,
  { signal, onEvent }: LoopOptions,
  run: RunFolder,
  student: LocalPolicy,
  verifier: Verifier,
  tasks: readonly Task[],
  when: "before" | "after",
): Promise<boolean> {
  if (!config.evaluation.beforeAndAfter) return true;
  let evaluation = run.evaluation(when);
  if (!evaluation) {
    evaluation = await evaluatePolicy(student, verifier, tasks, config.evaluation, {
      signal,
      onProgress: (done, total) => onEvent({ event: "progress", phase: `evaluate ${when}`, done, total }),
    });
    if (!evaluation) return false;
    run.writeEvaluation(when, evaluation);
  }
  onEvent({ event: "evaluation", when, evaluation });
  return true;
}
