/**
 * On-policy distillation: the student answers, the teacher says how likely it finds each token of the answers.
 *
 *   reverse-kl           minimise mean_t of log π(y_t) − log T(y_t) over the student's own tokens y, by the policy
 *                        gradient: A_t = −(log μ(y_t) − log T(y_t)) as a constant, loss = − mean_t ρ_t·A_t, ρ_t = π/μ
 *   reverse-kl, exact    mean_t KL(π‖T), over the whole vocabulary at each place
 *   forward-kl, jsd      mean_t of that divergence, the same way; see engine/divergence.ts
 *
 * μ is the student as it sampled. A token answers for its own divergence alone, not for that of the tokens after it: the
 * expected gradient of the first form is that of the second (the test in engine/divergence.test.ts).
 */
import { RlvrError } from "../base/errors.ts";
import { type Divergence, scheduledRate } from "../engine/index.ts";
import { rolloutMetrics } from "../rollouts/metrics.ts";
import { type Rollout, toRecord } from "../rollouts/rollout.ts";
import { sampleGroups } from "../rollouts/sample.ts";
import type { RunFolder } from "../runs/index.ts";
import type { Verdict, Verifier } from "../verifiers/verifier.ts";
import { EpochOrder } from "./batches.ts";
import { stepSeconds } from "./costs.ts";
import type { DistillMethod, DistillSetup } from "./distill-method.ts";
import { updateStudent } from "./distill-update.ts";
import { pickSamples } from "./samples.ts";
import { fromConfig, type LoopState, loadState, saveState } from "./setup.ts";
import { checkSameTokenizer } from "./tokenizers.ts";

interface OnPolicyState extends LoopState {
  updates: number;
  teacherTokens: number;
  studentTokens: number;
  /** Prompts that were run through the student before sampling. */
  promptTokens: number;
  trainedTokens: number;
}

/** Steps between the completions shown while training. */
const SAMPLES_EVERY = 10;

export async function onPolicyMethod(setup: DistillSetup): Promise<DistillMethod> {
  const { config, options, student, tasks } = setup;
  const { teacher: folder, divergence, exact, beta, promptsPerStep, samplesPerTask } = config.distill;
  if (folder === undefined) {
    throw new RlvrError("RLVR_CONFIG_MISSING", "distill: expected a model folder in distill.teacher, got none", {
      next: "name the teacher's folder; a server gives no probabilities of the student's tokens",
    });
  }
  const teacherFolder = fromConfig(options.configPath, folder);
  const prompt = tasks[0].prompt;
  const text = typeof prompt === "string" ? prompt : prompt.map(({ content }) => content).join("\n");
  checkSameTokenizer(fromConfig(options.configPath, config.model), teacherFolder, text);
  const teacher = await student.setTeacher(teacherFolder);
  const full: Divergence | undefined =
    divergence === "reverse-kl" && !exact ? undefined : { kind: divergence, ...(divergence === "jsd" ? { beta } : {}) };
  let state: OnPolicyState = {
    step: 0,
    cursor: 0,
    returns: 0,
    updates: 0,
    teacherTokens: 0,
    studentTokens: 0,
    promptTokens: 0,
    trainedTokens: 0,
  };
  const order = new EpochOrder(tasks, config.seed, "epoch");
  const save = async (run: RunFolder) => {
    const { step, path } = await saveState(run, state, student, { keep: config.checkpoints.keep });
    options.onEvent({ event: "checkpoint", step, path });
  };
  return {
    details: {
      objective: { divergence, exact: full !== undefined, ...(divergence === "jsd" ? { beta } : {}) },
      teacherHash: teacher.hash,
      teacherParameters: teacher.parameters,
    },
    plan: {
      "teacher parameters": teacher.parameters,
      "training tasks": tasks.length,
      "samples a step": promptsPerStep * samplesPerTask,
    },
    async start(run) {
      const checkpoint = options.resume === undefined ? null : run.latestCheckpoint();
      if (options.resume !== undefined) run.rewind(checkpoint?.step ?? 0);
      if (checkpoint) state = { ...state, ...(await loadState(checkpoint, student)) };
      else await save(run);
      return checkpoint?.step;
    },
    async train(run) {
      const recent: number[] = [];
      while (state.step < config.distill.steps && !options.signal.aborted) {
        const seconds = await oneStep(setup, run, state, order, full);
        recent.push(seconds.total);
        report(setup, run, state, seconds, recent);
        if (state.step % config.checkpoints.everySteps === 0) await save(run);
      }
      if (run.latestCheckpoint()?.step !== state.step) await save(run);
      return state.step >= config.distill.steps;
    },
    step: () => state.step,
    costs: (run) => ({
      teacherTokens: state.teacherTokens,
      studentTokens: state.studentTokens,
      trainedTokens: state.trainedTokens,
      updates: state.updates,
      seconds: stepSeconds(run),
      student: {
        parameters: student.parameters,
        forwardTokens: state.studentTokens + state.promptTokens,
        trainedTokens: state.trainedTokens,
      },
      teacher: { parameters: teacher.parameters, forwardTokens: state.teacherTokens },
    }),
  };
}

interface StepReport {
  total: number;
  metrics: Record<string, number>;
  rollouts: Rollout[];
}

/** Samples, scores, updates; in place on `state`. */
async function oneStep(
  { config, student, verifier }: DistillSetup,
  run: RunFolder,
  state: OnPolicyState,
  order: EpochOrder<DistillSetup["tasks"][number]>,
  full: Divergence | undefined,
): Promise<StepReport> {
  const { promptsPerStep, samplesPerTask, temperature, judge, optimizer, steps } = config.distill;
  const maxTokens = config.distill.maxTokens ?? config.rollouts.maxTokens;
  const started = performance.now();
  const step = state.step + 1;
  const tasks = Array.from({ length: promptsPerStep }, (_, i) => order.at(state.cursor + i));
  const sampled = await sampleGroups(student, judge ? verifier : notJudged, tasks, {
    groupSize: samplesPerTask,
    sampler: { temperature, topP: 1, topK: 0, maxTokens },
    key: [config.seed, step, "distill"],
    purpose: "reward",
  });
  const rollouts = sampled.groups.flat();
  const before = performance.now();
  const learningRate = scheduledRate(optimizer, state.step, steps);
  const done = await updateStudent(student, rollouts, { config, step, learningRate, full });
  student.endStep(step);
  const after = performance.now();
  const generated = rollouts.reduce((sum, { tokens }) => sum + tokens.length, 0);
  state.step = step;
  state.cursor += tasks.length;
  state.updates += done.updates;
  state.teacherTokens += done.tokens;
  state.studentTokens += generated;
  state.promptTokens += sampled.groups.reduce((sum, [first]) => sum + first.prompt.length, 0);
  state.trainedTokens += done.tokens;
  run.writeRollouts(
    step,
    rollouts.map((rollout) => ({ ...toRecord(rollout, step, null), ...(judge ? {} : { outcome: "unjudged" }) })),
  );
  const seconds = (from: number, to: number) => (to - from) / 1000;
  const total = seconds(started, performance.now());
  const metrics: Record<string, number> = {
    ...(judge ? rolloutMetrics(rollouts) : lengths(rollouts)),
    ...done.metrics,
    "optimizer/learning-rate": learningRate,
    "logprob/gap": done.gap,
    "tokens/trained": done.tokens,
    "tokens/teacher": done.tokens,
    "tokens/padding": 1 - done.tokens / done.positions,
    "time/generate": sampled.generateSeconds,
    ...(judge ? { "time/verify": sampled.verifySeconds } : {}),
    "time/update": seconds(before, after),
    "time/total": total,
    "speed/generate": generated / sampled.generateSeconds,
    "speed/update": done.tokens / seconds(before, after),
  };
  return { total, metrics, rollouts };
}

function lengths(rollouts: readonly Rollout[]): Record<string, number> {
  const {
    "length/mean": length,
    "length/truncated": truncated,
    "tokens/generated": generated,
  } = rolloutMetrics(rollouts);
  return { "length/mean": length, "length/truncated": truncated, "tokens/generated": generated };
}

function report(
  { config, options }: DistillSetup,
  run: RunFolder,
  state: OnPolicyState,
  said: StepReport,
  recent: number[],
): void {
  const { step } = state;
  const { steps, judge } = config.distill;
  run.appendMetrics(step, said.metrics);
  const last = recent.slice(-10);
  const etaSeconds = ((steps - step) * last.reduce((sum, value) => sum + value, 0)) / last.length;
  options.onEvent({ event: "step", step, steps, metrics: said.metrics, etaSeconds });
  if (judge && (step % SAMPLES_EVERY === 0 || step === steps)) {
    options.onEvent({ event: "samples", step, ...pickSamples(said.rollouts) });
  }
}

/** Stands in for the verifier where nothing is judged; what it says is not recorded. */
const notJudged: Verifier = {
  name: "none",
  version: "0",
  contract: { observes: "nothing", extracts: "nothing", limits: {}, doesNotCheck: ["anything"] },
  verify: async (items) => items.map((): Verdict => ({ outcome: "invalid", score: 0, components: {}, evidence: {} })),
  close: async () => {},
};
