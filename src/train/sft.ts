/**
 * Supervised fine-tuning: imitate demonstrations.
 *
 *   loss = − mean over the batch's answer tokens (the ending one included) of log π(token | everything before it)
 *
 * The prompt's tokens are not trained on unless `sft.promptLoss` is set. A batch holds about `sft.batchTokens` tokens of
 * the shuffled epoch's next demonstrations. The loop itself: `supervised.ts`.
 */
import { RlvrError } from "../base/errors.ts";
import type { RlvrConfig } from "../config/index.ts";
import type { TokenSequence } from "../engine/index.ts";
import { evaluatePolicy, evaluationTasks } from "../evaluate/evaluate.ts";
import { engineOptions, LocalPolicy } from "../policy/local.ts";
import type { Policy } from "../policy/policy.ts";
import type { RunFolder } from "../runs/index.ts";
import { EpochOrder, encodeDemonstrations, holdOut } from "./batches.ts";
import { flopsOf, stepSeconds, writeCosts } from "./costs.ts";
import { digest, fromConfig, type LoopOptions, loadTasks, openRun } from "./setup.ts";
import { runSupervised, startSupervised } from "./supervised.ts";

export interface SftResult {
  run: string;
  steps: number;
  seconds: number;
  /** Folder of the trained model. */
  model: string;
  interrupted: boolean;
}

/**
 * Trains `config.model`, or random weights of the shape `sft.from`, on `config.demonstrations`. The model is written to
 * `sft.out`, or stays in the run's newest checkpoint. Held-out loss and early stopping: `sft.heldOutShare`,
 * `sft.patience`.
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
    const examples = encodeDemonstrations(policy, demonstrations, config.sft);
    const { train, heldOut } = holdOut(demonstrations, config.sft.heldOutShare, config.seed);
    run = openRun(config, options, {
      kind: "sft",
      modelHash: (await policy.version()).hash,
      demonstrationsHash: digest(demonstrations),
      seed: config.seed,
    });
    const { state, resumedFrom } = await startSupervised(config, options, policy, run);
    options.onEvent({
      event: "start",
      run: run.path,
      config: run.config(),
      ...(resumedFrom === undefined ? {} : { resumedFrom }),
    });
    options.onEvent({
      event: "plan",
      steps: config.sft.steps,
      values: {
        parameters: policy.parameters,
        demonstrations: train.length,
        ...(heldOut.length > 0 ? { "held out": heldOut.length } : {}),
        "tokens a step": config.sft.batchTokens,
      },
    });
    const pick = (numbers: readonly number[]): TokenSequence[] => numbers.map((i) => examples[i]);
    const plan = {
      name: "sft",
      steps: config.sft.steps,
      optimizer: config.sft.optimizer,
      order: new EpochOrder(pick(train), config.seed, "demonstrations"),
      heldOut: new Map(heldOut.length > 0 ? [["", pick(heldOut)]] : []),
      evaluate: () => evaluate(config, options, policy),
    };
    const finished = await runSupervised(config, options, policy, run, plan, state);
    const model = config.sft.out === undefined ? undefined : fromConfig(options.configPath, config.sft.out);
    if (finished && model !== undefined) await policy.saveModel(model);
    const { parameters } = policy;
    writeCosts(run, {
      method: "sft",
      teacherTokens: 0,
      studentTokens: 0,
      trainedTokens: state.trainedTokens,
      updates: state.step,
      seconds: stepSeconds(run),
      flops: flopsOf({ student: { parameters, forwardTokens: 0, trainedTokens: state.trainedTokens } }),
    });
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
