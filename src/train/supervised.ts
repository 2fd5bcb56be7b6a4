/**
 * The loop behind everything that imitates given text: `rlvr sft`, teacher responses, continued training.
 *
 *   loss = − mean over the batch's scored tokens of log π(token | everything before it)
 *
 * The same config, data and seed give the same weights, also across `--resume`.
 */
import { existsSync, mkdirSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { RlvrError } from "../base/errors.ts";
import type { RlvrConfig } from "../config/index.ts";
import { paddingShare, scheduledRate, type TokenSequence } from "../engine/index.ts";
import type { Policy } from "../policy/policy.ts";
import type { RunFolder } from "../runs/index.ts";
import { syncTree } from "../runs/write.ts";
import { nextBatch, type Order } from "./batches.ts";
import { type LoopOptions, type LoopState, loadState, saveState } from "./setup.ts";

/** Metrics and progress are said once in this many steps: supervised steps are short. */
const REPORT_EVERY = 10;

export interface SupervisedState extends LoopState {
  /** Tokens trained on so far, prompts included. */
  trainedTokens: number;
  /** Tokens, and positions with padding, since metrics were last said. */
  since: { tokens: number; positions: number };
  /** Lowest held-out loss so far, in nats a token, its step, and how many evaluations were worse since. */
  best?: { step: number; loss: number; worse: number };
  /** The weights are those of the best step: training ended early or at its last step. */
  restored?: boolean;
}

export interface SupervisedPlan {
  /** Name in messages: `sft`, `distill`. */
  name: string;
  steps: number;
  optimizer: RlvrConfig["sft"]["optimizer"];
  order: Order;
  /** Sequences that are not trained on, by dataset (`""` where there is one only). */
  heldOut: ReadonlyMap<string, readonly TokenSequence[]>;
  /** Judges the policy now and then, where nothing is held out. */
  evaluate?(): Promise<void>;
}

/** The state to start from: that of the newest checkpoint of a resumed run, or a new one with its first checkpoint. */
export async function startSupervised(
  config: RlvrConfig,
  options: LoopOptions,
  policy: Policy,
  run: RunFolder,
): Promise<{ state: SupervisedState; resumedFrom?: number }> {
  const checkpoint = options.resume === undefined ? null : run.latestCheckpoint();
  if (checkpoint) run.rewind(checkpoint.step);
  const start = { step: 0, cursor: 0, returns: 0, trainedTokens: 0, since: { tokens: 0, positions: 0 } };
  if (!checkpoint) {
    await saveState(run, start, policy, { keep: config.checkpoints.keep });
    return { state: start };
  }
  return { state: { ...start, ...(await loadState(checkpoint, policy)) }, resumedFrom: checkpoint.step };
}

/** All remaining steps, in place on `state`; false when interrupted. The state is saved in both cases. */
export async function runSupervised(
  config: RlvrConfig,
  options: LoopOptions,
  policy: Policy,
  run: RunFolder,
  plan: SupervisedPlan,
  state: SupervisedState,
): Promise<boolean> {
  const { steps, optimizer, heldOut } = plan;
  const { batchTokens, evaluateEverySteps, patience } = config.sft;
  const loopStarted = performance.now();
  const first = state.step;
  let lineStarted = loopStarted;
  let updateSeconds = 0;
  const save = async () => {
    const { step, path } = await saveState(run, state, policy, { keep: config.checkpoints.keep });
    forgetBest(run, state.restored ? undefined : state.best?.step);
    options.onEvent({ event: "checkpoint", step, path });
  };
  while (state.step < steps && !state.restored && !options.signal.aborted) {
    const started = performance.now();
    const batch = nextBatch(plan.order, state.cursor, batchTokens);
    const { logprobs, entropies } = await policy.logprobs(batch, { temperature: 1, keep: true });
    await policy.backward(new Float32Array(logprobs.length).fill(-1 / logprobs.length));
    const learningRate = scheduledRate(optimizer, state.step, steps);
    const { gradNorm, applied } = await policy.update({ ...optimizer, learningRate });
    if (!applied) throw notFinite(plan.name, gradNorm, state.step + 1);
    state.step++;
    policy.endStep(state.step);
    state.cursor += batch.length;
    const tokens = batch.reduce((sum, sequence) => sum + sequence.tokens.length, 0);
    state.trainedTokens += tokens;
    state.since.tokens += tokens;
    state.since.positions += tokens / (1 - paddingShare(batch, config.engine.microBatchTokens));
    updateSeconds += (performance.now() - started) / 1000;

    const due = evaluateEverySteps > 0 && state.step % evaluateEverySteps === 0;
    const losses = due && heldOut.size > 0 ? await heldOutLosses(policy, heldOut) : undefined;
    if (losses || state.step % REPORT_EVERY === 0 || state.step === steps) {
      const now = performance.now();
      const metrics = {
        loss: -mean(logprobs),
        entropy: mean(entropies),
        ...losses,
        "optimizer/grad-norm": gradNorm,
        "optimizer/learning-rate": learningRate,
        "tokens/trained": state.since.tokens,
        "tokens/padding": 1 - state.since.tokens / state.since.positions,
        "time/update": updateSeconds,
        "time/total": (now - lineStarted) / 1000,
        "speed/update": state.since.tokens / updateSeconds,
      };
      run.appendMetrics(state.step, metrics);
      const perStep = (now - loopStarted) / 1000 / (state.step - first);
      options.onEvent({ event: "step", step: state.step, steps, metrics, etaSeconds: (steps - state.step) * perStep });
      state.since = { tokens: 0, positions: 0 };
      lineStarted = now;
      updateSeconds = 0;
    }
    if (losses && patience > 0) {
      const loss = losses["heldout/loss"];
      if (loss < (state.best?.loss ?? Number.POSITIVE_INFINITY)) {
        state.best = { step: state.step, loss, worse: 0 };
        await keepBest(run, policy, state.step);
      } else if (state.best && ++state.best.worse >= patience) {
        stoppedEarly(run, options, state, patience);
        await restoreBest(run, policy, state);
      }
    }
    if (due && heldOut.size === 0) await plan.evaluate?.();
    // Ten times as rarely as in reinforcement learning: a step is that much shorter.
    if (state.step % (10 * config.checkpoints.everySteps) === 0) await save();
  }
  const finished = state.restored === true || state.step >= steps;
  if (finished && state.best && !state.restored) await restoreBest(run, policy, state);
  if (run.latestCheckpoint()?.step !== state.step || existsSync(bestFolder(run))) await save();
  return finished;
}

function mean(values: Float32Array): number {
  return values.reduce((sum, value) => sum + value, 0) / Math.max(1, values.length);
}

function notFinite(name: string, gradNorm: number, step: number): RlvrError {
  return new RlvrError("RLVR_NON_FINITE", `${name}: expected a finite gradient, got ${gradNorm} at step ${step}`, {
    next: `lower ${name}.optimizer.learningRate, or look for broken demonstrations; the last checkpoint is unharmed`,
  });
}

/** Mean loss over the tokens of each dataset, in nats, and over all of them. */
async function heldOutLosses(
  policy: Policy,
  heldOut: ReadonlyMap<string, readonly TokenSequence[]>,
): Promise<{ "heldout/loss": number } & Record<string, number>> {
  const losses: Record<string, number> = {};
  let sum = 0;
  let count = 0;
  for (const [name, sequences] of heldOut) {
    const { logprobs } = await policy.logprobs(sequences, { temperature: 1, keep: false });
    losses[`heldout/loss/${name}`] = -mean(logprobs);
    sum -= logprobs.reduce((total, value) => total + value, 0);
    count += logprobs.length;
  }
  return { "heldout/loss": sum / Math.max(1, count), ...(heldOut.size > 1 ? losses : {}) };
}

/*
 * The best weights so far lie in `best/` until the run ends, each under its step: a run that was killed and goes on from
 * an earlier checkpoint finds those that this checkpoint speaks of, and writes later ones again.
 */
const bestFolder = (run: RunFolder, step?: number) =>
  step === undefined ? join(run.path, "best") : join(run.path, "best", `step-${String(step).padStart(6, "0")}`);

async function keepBest(run: RunFolder, policy: Policy, step: number): Promise<void> {
  mkdirSync(bestFolder(run, step), { recursive: true });
  await policy.saveCheckpoint(bestFolder(run, step));
  syncTree(bestFolder(run, step));
}

async function restoreBest(run: RunFolder, policy: Policy, state: SupervisedState): Promise<void> {
  const { step } = state.best as { step: number };
  await policy.loadCheckpoint(bestFolder(run, step), step);
  policy.endStep(state.step);
  state.restored = true;
}

/** Removes all but the weights of one step; all without one. */
function forgetBest(run: RunFolder, except: number | undefined): void {
  const all = bestFolder(run);
  if (except === undefined) rmSync(all, { recursive: true, force: true });
  for (const name of existsSync(all) ? readdirSync(all) : []) {
    const path = join(all, name);
    if (path !== bestFolder(run, except)) rmSync(path, { recursive: true, force: true });
  }
}

function stoppedEarly(run: RunFolder, options: LoopOptions, state: SupervisedState, patience: number): void {
  const { step, loss } = state.best as { step: number; loss: number };
  const alert = {
    event: "alert" as const,
    level: "warn" as const,
    code: "RLVR_EARLY_STOP",
    message: `the held-out loss did not fall in ${patience} evaluations; back to the weights of step ${step}, with ${loss.toFixed(4)} nats a token`,
    step: state.step,
    values: { bestStep: step, loss },
  };
  run.appendEvent(alert);
  options.onEvent(alert);
}
