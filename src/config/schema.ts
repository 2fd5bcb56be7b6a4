/**
 * The one schema: types, defaults, command line flags, environment variables, help texts and the JSON Schema all come
 * from here. Every key has a description with its unit and a default, unless there is no sensible one.
 */
import { z } from "zod";
import type { Demonstration } from "../tasks/demonstration.ts";
import type { TaskSet } from "../tasks/task.ts";
import type { Verifier } from "../verifiers/verifier.ts";
import { distillSection } from "./distill-schema.ts";

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
  })
  .superRefine((value, context) => {
    const why = "log-probabilities must be under the distribution that was sampled";
    if (value.topP !== 1)
      context.addIssue({ code: "custom", path: ["topP"], message: `expected 1 in training (${why})` });
    if (value.topK !== 0)
      context.addIssue({ code: "custom", path: ["topK"], message: `expected 0 (off) in training (${why})` });
  })
  .prefault({});

const objective = z
  .strictObject({
    name: z.enum(["grpo"]).default("grpo").describe("objective; the other keys are its constants"),
    clipLow: share().default(0.2).describe("the ratio is clipped below at 1 - clipLow"),
    clipHigh: z.number().min(0).default(0.2).describe("the ratio is clipped above at 1 + clipHigh"),
    advantageScale: z
      .enum(["group", "batch", "none"])
      .default("group")
      .describe("standard deviation that centred rewards are divided by: of the group, of the batch, or not at all"),
    ddof: z
      .union([z.literal(0), z.literal(1)])
      .default(0)
      .describe("delta degrees of freedom of that standard deviation: 0 (population) or 1 (sample)"),
    epsilon: z.number().min(0).default(1e-6).describe("added to that standard deviation"),
    aggregation: z
      .enum(["sequence-mean", "token-mean", "constant-length"])
      .default("sequence-mean")
      .describe(
        "mean over sequences of token means, mean over all tokens, or token sum / (sequences x rollouts.maxTokens)",
      ),
    klCoefficient: z
      .number()
      .min(0)
      .default(0)
      .describe("weight of the divergence to the reference policy in the loss"),
    klEstimator: z.enum(["k1", "k2", "k3"]).default("k3").describe("estimator of that divergence"),
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

const newModel = z
  .strictObject({
    family: z.enum(["llama", "qwen2", "qwen3"]).default("llama").describe("architecture"),
    hiddenSize: count(1).describe("width of the residual stream"),
    layers: count(1).describe("decoder layers"),
    heads: count(1).describe("attention heads; divides hiddenSize"),
    keyValueHeads: count(1).describe("key and value heads; divides heads"),
    intermediateSize: count(1).describe("width inside the feed-forward layer"),
    maxPositions: count(2).describe("longest sequence, in tokens"),
  })
  .superRefine((value, context) => {
    if (value.hiddenSize % value.heads !== 0)
      context.addIssue({
        code: "custom",
        path: ["heads"],
        message: `expected a divisor of hiddenSize (${value.hiddenSize})`,
      });
    if (value.heads % value.keyValueHeads !== 0)
      context.addIssue({
        code: "custom",
        path: ["keyValueHeads"],
        message: `expected a divisor of heads (${value.heads})`,
      });
  });

const sft = z
  .strictObject({
    steps: count(1).default(1000).describe("optimizer updates"),
    batchTokens: count(1).default(8192).describe("tokens in one update, prompts included, padding not"),
    maxTokens: count(2)
      .optional()
      .describe("longest demonstration with its prompt, in tokens; the model's limit when absent"),
    promptLoss: z.boolean().default(false).describe("train on the prompt's tokens too"),
    heldOutShare: share()
      .lt(1)
      .default(0)
      .describe("share of the prompts whose demonstrations are not trained on, to measure the loss on them"),
    evaluateEverySteps: count(0)
      .default(0)
      .describe("steps between evaluations: of the held-out loss where there is a share, else of completions; 0 = none"),
    patience: count(0)
      .default(0)
      .describe("evaluations without a better held-out loss after which training stops, best weights kept; 0 = off"),
    optimizer: optimizer(1e-3, 20),
    from: newModel.optional().describe("start from random weights of this shape; the vocabulary is the tokenizer's"),
    out: z
      .string()
      .min(1)
      .optional()
      .describe("folder the trained model is written to; a path in the config file is relative to that file"),
  })
  .superRefine((value, context) => {
    if (value.patience > 0 && (value.heldOutShare === 0 || value.evaluateEverySteps === 0))
      context.addIssue({
        code: "custom",
        path: ["patience"],
        message: "expected 0 (off) without sft.heldOutShare and sft.evaluateEverySteps",
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
  updates,
  optimizer: optimizer(1e-4, 5),
  engine,
  checkpoints,
  evaluation,
  alerts,
  sft,
  distill: distillSection(optimizer(3e-4, 5)).prefault({}),
});

/** What a config file exports. */
export type RlvrUserConfig = z.input<typeof configSchema>;

type Parsed = z.output<typeof configSchema>;

/** A config with every default filled in. */
export interface RlvrConfig extends Parsed {
  evaluation: Parsed["evaluation"] & { maxTokens: number };
}

/** JSON Schema (draft 2020-12) of what a config file may contain; functions are any value. */
export function configJsonSchema(): Record<string, unknown> {
  return z.toJSONSchema(configSchema, { io: "input", unrepresentable: "any" }) as Record<string, unknown>;
}
