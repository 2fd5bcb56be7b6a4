import { z } from "zod";

const count = (minimum: number) => z.int().min(minimum);
const share = () => z.number().min(0).max(1);

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

/** Settings of `rlvr sft`, with the optimizer's section. */
export const sftSection = <Optimizer extends z.ZodType>(optimizer: Optimizer) =>
  z
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
        .describe(
          "steps between evaluations: of the held-out loss where there is a share, else of completions; 0 = none",
        ),
      patience: count(0)
        .default(0)
        .describe("evaluations without a better held-out loss after which training stops, best weights kept; 0 = off"),
      optimizer,
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
    });
