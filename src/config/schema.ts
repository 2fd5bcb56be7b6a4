/**
 * The one schema: types, defaults, command line flags, environment variables, help texts and the JSON Schema all come
 * from here. Every key has a description with its unit and a default, unless there is no sensible one.
 */
import { z } from "zod";
import type { AdvantageOptions } from "../learning/advantages.ts";
import { objectiveOptions } from "../learning/objectives.ts";
import { ADVANTAGE_PRESETS, type ObjectiveName, type ObjectiveOptions, PRESETS } from "../learning/presets.ts";
import type { Demonstration } from "../tasks/demonstration.ts";
import type { TaskSet } from "../tasks/task.ts";
import type { Verifier } from "../verifiers/verifier.ts";
import { distillSection } from "./distill-schema.ts";
import { sftSection } from "./sft-schema.ts";

/** The tasks, or a function that makes them from the run's seed. */
export type TaskSource = TaskSet | ((seed: number) => TaskSet | Promise<TaskSet>);
export type VerifierSource = () => Verifier | Promise<Verifier>;
export type DemonstrationSource = (seed: number) => Demonstration[] | Promise<Demonstration[]>;

const count = (minimum: number) => z.int().min(minimum);
const positive = () => z.number().gt(0);
const share = () => z.number().min(0).max(1);

function isTaskSource(value: unknown): boolean {
  if (typeof value === "function") return true;
  if (typeof value !== "object" || value === null) return false;
  return ["train", "validation", "test"].every((split) => Array.isArray((value as Record<string, unknown>)[split]));
}

/** Names in the order people read them; the learning rate is the one default that differs between uses. */
const optimizer = (learningRate: number, warmupSteps: number) =>
  z
    .strictObject({
      learningRate: positive().default(learningRate).describe("AdamW step size at the top of the schedule"),
      beta1: share().lt(1).default(0.9).describe("decay of AdamW's first moment, an update"),
      beta2: share().lt(1).default(0.95).describe("decay of AdamW's second moment, an update"),
      epsilon: positive().default(1e-8).describe("added to AdamW's denominator"),
      weightDecay: z.number().min(0).default(0).describe("decoupled weight decay; times the learning rate, an update"),
      maxGradNorm: positive().default(1).describe("global norm that gradients are clipped to"),
      warmupSteps: count(0).default(warmupSteps).describe("steps of linear warm-up from 0"),
      schedule: z
        .enum(["constant", "linear", "cosine"])
        .default("constant")
        .describe("shape of the learning rate after the warm-up"),
      finalLearningRateShare: share()
        .default(0)
        .describe("learning rate at the last step, as a share of learningRate; not used by constant"),
    })
    .prefault({});

const rollouts = z
  .strictObject({
    promptsPerStep: count(1).default(32).describe("tasks sampled from the training split, a step"),
    groupSize: count(2).default(8).describe("completions of each task, a step"),
    maxTokens: count(1).default(64).describe("longest completion, in tokens"),
    temperature: positive().default(1).describe("sampling temperature"),
    topP: share()
      .default(1)
      .describe("must be 1 in training: log-probabilities are taken under the sampled distribution"),
    topK: count(0).default(0).describe("must be 0 (off) in training, for the same reason as topP"),
    dynamicSampling: z
      .boolean()
      .default(false)
      .describe("replace groups without a difference in reward, until promptsPerStep groups have one"),
    maxRounds: count(1).default(8).describe("rounds of sampling in a step at most, with dynamicSampling"),
    overlongBuffer: count(0)
      .default(0)
      .describe("tokens before maxTokens over which the reward falls by up to 1 (soft overlong penalty); 0 = off"),
    maskTruncated: z.boolean().default(false).describe("leave completions that were cut off out of the loss"),
    batchesBehind: count(0).default(0).describe("batches that sampling runs ahead of training; 0 = on-policy"),
    maxStaleness: count(0).default(8).describe("steps after which a rollout is too old to train on, and dropped"),
  })
  .superRefine((value, context) => {
    const why = "log-probabilities must be under the distribution that was sampled";
    if (value.topP !== 1)
      context.addIssue({ code: "custom", path: ["topP"], message: `expected 1 in training (${why})` });
    if (value.topK !== 0)
      context.addIssue({ code: "custom", path: ["topK"], message: `expected 0 (off) in training (${why})` });
  })
  .prefault({});

const OBJECTIVES = Object.keys(PRESETS) as [ObjectiveName, ...ObjectiveName[]];

/** Constants of the objective. Absent ones are the preset's; `resolveObjective` fills them in. */
const objective = z
  .strictObject({
    name: z.enum(OBJECTIVES).default("grpo").describe("learning rule: a preset of all the constants below"),
    ratio: z
      .enum(["token", "sequence", "sequence-token"])
      .optional()
      .describe("what the ratio of probabilities is taken over; the preset's when absent, as for all that follow"),
    surrogate: z
      .enum(["clipped", "capped", "weighted", "plain"])
      .optional()
      .describe("what is maximised: clipped as in PPO, capped as in CISPO, ratio times advantage, or no ratio"),
    clipLow: share().optional().describe("clipped: the ratio is clipped below at 1 - clipLow"),
    clipHigh: z.number().min(0).optional().describe("clipped: the ratio is clipped above at 1 + clipHigh"),
    dualClip: z
      .number()
      .gt(1)
      .optional()
      .describe("clipped: bound of the ratio for negative advantages; off when absent"),
    ratioCap: positive().optional().describe("capped: largest ratio, the ratio itself"),
    ratioFloor: z.number().min(0).optional().describe("capped: smallest ratio"),
    correction: z
      .enum(["none", "truncate", "mask"])
      .optional()
      .describe("importance correction between the sampler and the trainer before the step's first update"),
    correctionLevel: z.enum(["token", "sequence"]).optional().describe("what that correction is taken over"),
    correctionCap: positive().optional().describe("largest correction"),
    correctionFloor: z
      .number()
      .min(0)
      .optional()
      .describe("mask: smallest correction kept; 1 / correctionCap when absent"),
    aggregation: z
      .enum(["sequence-mean", "token-mean", "prompt-mean", "constant-length"])
      .optional()
      .describe(
        "mean over sequences of token means, mean over all tokens, mean over prompts of token means of their group, or token sum / (sequences x rollouts.maxTokens)",
      ),
    advantageScale: z
      .enum(["group", "batch", "none"])
      .optional()
      .describe("standard deviation that centred rewards are divided by: of the group, of the batch, or not at all"),
    baseline: z
      .enum(["mean", "leave-one-out"])
      .optional()
      .describe("what is subtracted from a reward: its group's mean, or the mean of the others"),
    ddof: z
      .union([z.literal(0), z.literal(1)])
      .optional()
      .describe("delta degrees of freedom of the standard deviation: 0 (population) or 1 (sample)"),
    epsilon: z.number().min(0).optional().describe("added to that standard deviation"),
    klCoefficient: z.number().min(0).optional().describe("weight of the divergence from the reference policy"),
    klEstimator: z.enum(["k1", "k2", "k3", "k1+", "k3+"]).optional().describe("estimator of that divergence"),
    klRatio: z.boolean().optional().describe("weight each token's divergence by its ratio"),
    klPlace: z
      .enum(["loss", "advantage"])
      .default("loss")
      .describe("where that divergence goes: a term of the loss, or a penalty on each token's advantage"),
    klTarget: z
      .number()
      .min(0)
      .default(0)
      .describe("divergence in nats a token that klCoefficient is adapted to; 0 = it stays"),
    klHorizon: count(1).default(20).describe("steps over which klCoefficient is adapted"),
    entropyCoefficient: z.number().min(0).optional().describe("weight of the entropy bonus"),
  })
  .prefault({});

const curriculum = z
  .strictObject({
    enabled: z.boolean().default(false).describe("choose tasks by how often the policy has solved them"),
    hardAtMost: share().default(0).describe("success rate at or below which a task is hard"),
    solvedAtLeast: share().default(0.9).describe("success rate at or above which a task is retired"),
    retryShare: share().default(0.15).describe("share of a step's tasks taken from hard ones"),
    recheckShare: share().default(0.05).describe("share of a step's tasks taken from retired ones"),
    smoothing: share().gt(0).default(0.5).describe("weight of the newest group in a task's success rate"),
    hardTemperature: positive()
      .optional()
      .describe("sampling temperature of hard tasks; rollouts.temperature when absent"),
  })
  .prefault({});

const reference = z
  .strictObject({
    syncEvery: count(0)
      .default(0)
      .describe("steps between moves of the reference policy towards the policy; 0 = never"),
    syncRate: share().gt(0).default(0.6).describe("share of the policy in the reference after such a move"),
    resetEvery: count(0).default(0).describe("steps between hard resets: the policy becomes the reference; 0 = never"),
    resetOptimizer: z.boolean().default(true).describe("forget the optimizer's moments at a hard reset"),
  })
  .prefault({});

const rewards = z
  .strictObject({
    combine: z
      .enum(["score", "sum", "normalize"])
      .default("score")
      .describe(
        "reward of a verdict: its score; the weighted sum of its components; or that sum after each is normalized in its group",
      ),
    weights: z.record(z.string(), z.number()).default({}).describe("weight of each component, for sum and normalize"),
    process: z
      .enum(["none", "step", "return"])
      .default("none")
      .describe(
        "advantages from scores of steps, added to the outcome's: none; a token's own step; or the sum from its step on",
      ),
    processWeight: positive().default(1).describe("weight of those advantages"),
    processDiscount: share().default(1).describe("return: factor from one step to the next"),
  })
  .prefault({});

const updates = z
  .strictObject({
    epochsPerStep: count(1).default(1).describe("passes over the rollouts of a step"),
    miniBatches: count(1).default(1).describe("optimizer updates in each pass"),
  })
  .prefault({});

const engine = z
  .strictObject({
    threads: count(0).default(0).describe("threads of the engine; 0 = one for each core"),
    microBatchTokens: count(1).default(4096).describe("tokens in one forward and backward pass, padding included"),
    activationMegabytes: positive().default(512).describe("memory budget for kept activations, in MiB"),
    decodeSlots: count(1).default(256).describe("completions decoded side by side"),
  })
  .prefault({});

const checkpoints = z
  .strictObject({
    everySteps: count(1).default(10).describe("steps between checkpoints"),
    keep: count(1).default(3).describe("newest checkpoints that are kept"),
  })
  .prefault({});

const evaluation = z
  .strictObject({
    split: z.enum(["train", "validation", "test"]).default("test").describe("split that is evaluated"),
    tasks: count(1).default(128).describe("tasks, at most; the split's first ones after a shuffle by evaluation.seed"),
    samplesPerTask: count(1).default(8).describe("completions of each task"),
    temperature: z.number().min(0).default(1).describe("sampling temperature; 0 = most likely token"),
    topP: share().gt(0).default(1).describe("nucleus sampling: total probability of the tokens kept"),
    topK: count(0).default(0).describe("most likely tokens kept; 0 = all"),
    maxTokens: count(1).optional().describe("longest completion, in tokens; as rollouts.maxTokens when absent"),
    seed: count(0).default(1000).describe("seed of the evaluation's samples, the same before and after"),
    beforeAndAfter: z.boolean().default(true).describe("evaluate before the first and after the last step"),
  })
  .prefault({});

const alerts = z
  .strictObject({
    logprobGapWarn: positive()
      .default(1e-3)
      .describe("largest difference of a token's log-probability between decoding and training that passes in silence"),
    logprobGapStop: positive().default(1e-1).describe("difference that stops the run"),
    collapseShare: share().default(0.5).describe("alert when the reward is below this share of its own moving average"),
    collapseWindow: count(2).default(10).describe("steps in that moving average"),
    deadSteps: count(1).default(5).describe("alert after this many steps in a row without a mixed group"),
    deadAction: z
      .enum(["warn", "stop", "adapt"])
      .default("warn")
      .describe(
        "what deadSteps steps without a mixed group lead to, where there never was one; adapt: other tasks by curriculum, then a higher temperature",
      ),
    adaptFactor: z.number().gt(1).default(1.2).describe("adapt: factor on sampling temperatures, each time all fail"),
    maxAdaptations: count(1).default(4).describe("adapt: times, before the run stops"),
    flatSteps: count(4).default(25).describe("warn after this many steps without a rise in reward"),
    formatShare: share().default(0.5).describe("warn when format alone explains this share of the reward's variance"),
    lengthFactor: z.number().gt(1).default(2).describe("warn when lengths change by this factor"),
    truncatedShare: share().default(0.5).describe("warn when this share of completions is cut off"),
    spikeFactor: z
      .number()
      .gt(1)
      .default(10)
      .describe("warn when divergence or gradient reach this many times their median"),
    entropyShare: share().default(0.1).describe("warn when entropy falls below this share of the first steps'"),
    maxReturns: count(0).default(2).describe("automatic returns to the last good checkpoint before the run stops"),
  })
  .superRefine((value, context) => {
    if (value.logprobGapStop < value.logprobGapWarn)
      context.addIssue({
        code: "custom",
        path: ["logprobGapStop"],
        message: `expected at least alerts.logprobGapWarn (${value.logprobGapWarn})`,
      });
  })
  .prefault({});

/** The whole config as an object schema. Use `parseConfig` to check one: it also names the nearest key. */
export const configSchema = z.strictObject({
  model: z.string().min(1).describe("Hugging Face model folder; a path in the config file is relative to that file"),
  tasks: z.custom<TaskSource>(isTaskSource).describe("task set, or a function of the seed that makes it"),
  verifier: z
    .custom<VerifierSource>((value) => typeof value === "function")
    .describe("function that makes the verifier"),
  demonstrations: z
    .custom<DemonstrationSource>((value) => typeof value === "function")
    .optional()
    .describe("function of the seed that makes the demonstrations of rlvr sft"),
  seed: count(0).default(1).describe("seed of everything random"),
  steps: count(1).default(50).describe("training steps: one batch of rollouts with its updates each"),
  run: z
    .string()
    .regex(/^[A-Za-z0-9][A-Za-z0-9._-]*$/)
    .optional()
    .describe("name of the run's folder; numbered when absent"),
  runsFolder: z.string().min(1).default("runs").describe("folder of all runs, relative to the current directory"),
  rollouts,
  objective,
  rewards,
  curriculum,
  reference,
  updates,
  optimizer: optimizer(1e-4, 5),
  engine,
  checkpoints,
  evaluation,
  alerts,
  sft: sftSection(optimizer(1e-3, 20)).prefault({}),
  distill: distillSection(optimizer(3e-4, 5)).prefault({}),
});

/** What a config file exports. */
export type RlvrUserConfig = z.input<typeof configSchema>;

type Parsed = z.output<typeof configSchema>;

/** A config with every default filled in. */
export interface RlvrConfig extends Omit<Parsed, "evaluation" | "objective"> {
  evaluation: Parsed["evaluation"] & { maxTokens: number };
  objective: ResolvedObjective;
}

/** The objective with every constant, the preset's where none was given. */
export type ResolvedObjective = ObjectiveOptions &
  Pick<Parsed["objective"], "name" | "klPlace" | "klTarget" | "klHorizon"> & {
    advantageScale: AdvantageOptions["scale"];
    baseline: "mean" | "leave-one-out";
    ddof: 0 | 1;
    epsilon: number;
  };

/** Fills in the constants of `objective.name`; `constant-length` divides by the completion limit. */
export function resolveObjective(given: Parsed["objective"], maxTokens: number): ResolvedObjective {
  const { name, klPlace, klTarget, klHorizon, ...constants } = given;
  const set = Object.fromEntries(Object.entries(constants).filter(([, value]) => value !== undefined));
  const { scale: advantageScale, ...advantage } = ADVANTAGE_PRESETS[name];
  return {
    name,
    ...objectiveOptions(name, { constantLength: maxTokens, ...set }),
    advantageScale,
    ...advantage,
    klPlace,
    klTarget,
    klHorizon,
    ...set,
  };
}

/** JSON Schema (draft 2020-12) of what a config file may contain; functions are any value. */
export function configJsonSchema(): Record<string, unknown> {
  return z.toJSONSchema(configSchema, { io: "input", unrepresentable: "any" }) as Record<string, unknown>;
}
