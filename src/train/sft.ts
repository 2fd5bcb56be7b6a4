/**
 * Supervised fine-tuning: imitate demonstrations.
 *
 *   loss = − mean over the batch's answer tokens (the ending one included) of log π(token | everything before it)
 *
 * The prompt's tokens are not trained on unless `sft.promptLoss` is set. A batch holds about `sft.batchTokens` tokens of
 * the shuffled epoch's next demonstrations. The same config and seed give the same weights, also across `--resume`.
 */
import { RlvrError } from "../base/errors.ts";
import { RandomStream } from "../base/random.ts";
import type { RlvrConfig } from "../config/index.ts";
import { scheduledRate, type TokenSequence } from "../engine/index.ts";
import { evaluatePolicy, evaluationTasks } from "../evaluate/evaluate.ts";
import { engineOptions, LocalPolicy } from "../policy/local.ts";
import type { Policy } from "../policy/policy.ts";
import type { RunFolder } from "../runs/index.ts";
import type { Demonstration } from "../tasks/demonstration.ts";
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

export interface SftResult {
  run: string;
  steps: number;
  seconds: number;
  /** Folder of the trained model. */
  model: string;
  interrupted: boolean;
}

/** Metrics and progress are said once in this many steps: supervised steps are short. */
const REPORT_EVERY = 10;

/**
 * Trains `config.model`, or random weights of the shape `sft.from`, on `config.demonstrations`. The model is written to
 * `sft.out`, or stays in the run's newest checkpoint.
 */
export async function trainSft(config: RlvrConfig, options: LoopOptions): Promise<SftResult> {
  const started = performance.now();
  if (!config.demonstrations) {
    throw new RlvrError("RLVR_CONFIG_MISSING", "sft: expected demonstrations in the config, got none", {
      next: "add demonstrations: (seed) => [{ prompt, completion }, …]",
    });
  }
  const demonstrations = await config.demonstrations(config.seed);
  const policy = await startPolicy(config, options);
  let run: RunFolder | undefined;
  try {
    const examples = encode(policy, demonstrations, config);
    run = openRun(config, options, {
      kind: "sft",
      modelHash: (await policy.version()).hash,
      demonstrationsHash: digest(demonstrations),
      seed: config.seed,
    });
    const state = await start(config, options, policy, run, examples);
    const finished = await loop(config, options, policy, run, examples, state);
    const model = config.sft.out === undefined ? undefined : fromConfig(options.configPath, config.sft.out);
    if (finished && model !== undefined) await policy.saveModel(model);
    return {
      run: run.path,
      steps: state.step,
      seconds: (performance.now() - started) / 1000,
      model: model ?? run.latestCheckpoint()?.path ?? run.path,
      interrupted: !finished,
    };
  } finally {
    run?.close();
    await policy.close();
  }
}

async function startPolicy(config: RlvrConfig, options: LoopOptions): Promise<Policy> {
  const folder = fromConfig(options.configPath, config.model);
  const { from } = config.sft;
  if (!from) return LocalPolicy.load(folder, engineOptions(config.engine));
  const architecture = {
    ...from,
    headDim: from.hiddenSize / from.heads,
    ropeTheta: 10000,
    ropeScaling: null,
    rmsNormEpsilon: 1e-6,
    tieEmbeddings: true,
    attentionBias: from.family === "qwen2",
    outputBias: false,
    mlpBias: false,
    queryKeyNorm: from.family === "qwen3",
    slidingWindow: null,
    initializerRange: 0.02,
  };
  return LocalPolicy.random(architecture, {
    ...engineOptions(config.engine),
    tokenizerFolder: folder,
    seed: config.seed,
  });
}

/** Token sequences of the demonstrations; one that does not fit is an error that names it. */
function encode(policy: Policy, demonstrations: readonly Demonstration[], config: RlvrConfig): TokenSequence[] {
  if (demonstrations.length === 0) {
    throw new RlvrError("RLVR_DEMONSTRATIONS_EMPTY", "sft: expected at least one demonstration, got none", {
      next: "check the function that makes them",
    });
  }
  const limit = Math.min(policy.model.maxPositions, config.sft.maxTokens ?? policy.model.maxPositions);
  const [eos] = policy.tokenizer.eosIds;
  return demonstrations.map(({ prompt, completion }, i) => {
    const before = policy.encode(prompt);
    const tokens = [...before, ...policy.tokenizer.encode(completion), eos];
    if (before.length === 0 || tokens.length > limit) {
      throw new RlvrError(
        "RLVR_DEMONSTRATION_LENGTH",
        `demonstration ${i}: expected a prompt, and at most ${limit} tokens with its answer, got ${before.length} and ${tokens.length}`,
        { next: "shorten or drop it, or raise sft.maxTokens or the model's context" },
      );
    }
    return { tokens, scoreFrom: config.sft.promptLoss ? 1 : before.length };
  });
}

async function start(
  config: RlvrConfig,
  options: LoopOptions,
  policy: Policy,
  run: RunFolder,
  examples: readonly TokenSequence[],
): Promise<LoopState> {
  const checkpoint = options.resume === undefined ? null : run.latestCheckpoint();
  if (checkpoint) run.rewind(checkpoint.step);
  const state = checkpoint ? await loadState(checkpoint, policy) : { step: 0, cursor: 0, returns: 0 };
  const { config: recorded } = JSON.parse(run.readFile("config.json")) as { config: Record<string, unknown> };
  options.onEvent({
    event: "start",
    run: run.path,
    config: recorded,
    ...(checkpoint ? { resumedFrom: checkpoint.step } : {}),
  });
  options.onEvent({
    event: "plan",
    steps: config.sft.steps,
    values: { parameters: policy.parameters, demonstrations: examples.length, "tokens a step": config.sft.batchTokens },
  });
  if (!checkpoint) await saveState(run, state, policy, { keep: config.checkpoints.keep });
  return state;
}

/** All remaining steps, in place on `state`; false when interrupted, with the state saved. */
async function loop(
  config: RlvrConfig,
  options: LoopOptions,
  policy: Policy,
  run: RunFolder,
  examples: readonly TokenSequence[],
  state: LoopState,
): Promise<boolean> {
  const { steps, optimizer, evaluateEverySteps } = config.sft;
  const loopStarted = performance.now();
  const first = state.step;
  const save = async () => {
    const { step, path } = await saveState(run, state, policy, { keep: config.checkpoints.keep });
    options.onEvent({ event: "checkpoint", step, path });
  };
  const batches = new Batches(examples, config);
  while (state.step < steps && !options.signal.aborted) {
    const started = performance.now();
    const batch = batches.next(state.cursor);
    const { logprobs, entropies } = await policy.logprobs(batch, { temperature: 1, keep: true });
    await policy.backward(new Float32Array(logprobs.length).fill(-1 / logprobs.length));
    const learningRate = scheduledRate(optimizer, state.step, steps);
    const { gradNorm, applied } = await policy.update({ ...optimizer, learningRate });
    if (!applied) {
      throw new RlvrError(
        "RLVR_NON_FINITE",
        `sft: expected a finite gradient, got ${gradNorm} at step ${state.step + 1}`,
        {
          next: "lower sft.optimizer.learningRate, or look for broken demonstrations; the last checkpoint is unharmed",
        },
      );
    }
    state.step++;
    policy.endStep(state.step);
    state.cursor += batch.length;
    const mean = (values: Float32Array) => values.reduce((sum, value) => sum + value, 0) / Math.max(1, values.length);
    if (state.step % REPORT_EVERY === 0 || state.step === steps) {
      const seconds = (performance.now() - started) / 1000;
      const tokens = batch.reduce((sum, sequence) => sum + sequence.tokens.length, 0);
      const metrics = {
        loss: -mean(logprobs),
        entropy: mean(entropies),
        "optimizer/grad-norm": gradNorm,
        "optimizer/learning-rate": learningRate,
        "tokens/trained": tokens,
        "time/update": seconds,
        "speed/update": tokens / seconds,
      };
      run.appendMetrics(state.step, metrics);
      const perStep = (performance.now() - loopStarted) / 1000 / (state.step - first);
      options.onEvent({ event: "step", step: state.step, steps, metrics, etaSeconds: (steps - state.step) * perStep });
    }
    if (evaluateEverySteps > 0 && state.step % evaluateEverySteps === 0) await evaluate(config, options, policy);
    // Ten times as rarely as in reinforcement learning: a step is that much shorter.
    if (state.step % (10 * config.checkpoints.everySteps) === 0) await save();
  }
  if (run.latestCheckpoint()?.step !== state.step) await save();
  return state.step >= steps;
}

async function evaluate(config: RlvrConfig, options: LoopOptions, policy: Policy): Promise<void> {
  const verifier = await config.verifier();
  try {
    const tasks = evaluationTasks(await loadTasks(config), config.evaluation);
    const evaluation = await evaluatePolicy(policy, verifier, tasks, config.evaluation, { signal: options.signal });
    if (evaluation) options.onEvent({ event: "evaluation", when: "after", evaluation });
  } finally {
    await verifier.close();
  }
}

/** The demonstrations of each epoch in an order of its own. */
class Batches {
  readonly #examples: readonly TokenSequence[];
  readonly #config: RlvrConfig;
  #epoch = -1;
  #order: TokenSequence[] = [];

  constructor(examples: readonly TokenSequence[], config: RlvrConfig) {
    this.#examples = examples;
    this.#config = config;
  }

  /** From the `cursor`-th demonstration on, counted over epochs: as many as fit the batch, at least one. */
  next(cursor: number): TokenSequence[] {
    const batch: TokenSequence[] = [];
    let tokens = 0;
    for (let position = cursor; ; position++) {
      const epoch = Math.floor(position / this.#examples.length);
      if (epoch !== this.#epoch) {
        this.#epoch = epoch;
        this.#order = new RandomStream(this.#config.seed, "demonstrations", epoch).shuffle(this.#examples);
      }
      const example = this.#order[position % this.#examples.length];
      tokens += example.tokens.length;
      if (batch.length > 0 && tokens > this.#config.sft.batchTokens) return batch;
      batch.push(example);
    }
  }
}
