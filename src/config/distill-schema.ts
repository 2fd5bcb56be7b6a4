import { z } from "zod";

const count = (minimum: number) => z.int().min(minimum);

const server = z
  .strictObject({
    url: z
      .string()
      .min(1)
      .optional()
      .describe("base address of an OpenAI-compatible server, for example http://127.0.0.1:8000/v1"),
    model: z.string().min(1).optional().describe("name of the model on that server"),
    apiKeyVariable: z
      .string()
      .min(1)
      .optional()
      .describe("environment variable that holds the server's key; the key itself is never in a config"),
    chat: z
      .boolean()
      .default(false)
      .describe("send prompts of plain text as a user's message too; messages always go to chat/completions"),
    concurrency: count(1).default(8).describe("requests under way at once"),
    timeoutSeconds: z.number().gt(0).default(120).describe("deadline of one request"),
    retries: count(0).default(5).describe("attempts after the first, for a busy or unreachable server"),
    parameters: z
      .number()
      .gt(0)
      .optional()
      .describe("parameters of the model there, for the account of costs; unknown when absent"),
  })
  .prefault({});

/** The section `distill`. Steps and optimizer are its own; what else training on text needs comes from `sft`. */
export function distillSection<Optimizer extends z.ZodType>(optimizer: Optimizer) {
  return z.strictObject({
    method: z
      .enum(["responses", "on-policy", "continue"])
      .default("on-policy")
      .describe(
        "imitate a teacher's answers, learn from a teacher's probabilities of one's own, or go on training on a mix of data",
      ),
    teacher: z
      .string()
      .min(1)
      .optional()
      .describe("model folder of the teacher; a path in the config file is relative to that file"),
    server,
    steps: count(1).default(100).describe("optimizer updates; on-policy: batches of samples"),
    tasks: count(1)
      .optional()
      .describe("training tasks used, at most: the first ones after a shuffle by the seed; all when absent"),
    promptsPerStep: count(1).default(32).describe("on-policy: tasks sampled, a step"),
    samplesPerTask: count(1).default(4).describe("completions of each task: the teacher's, or on-policy the student's"),
    temperature: z
      .number()
      .gt(0)
      .default(1)
      .describe("sampling temperature; on-policy both models' distributions are taken at it"),
    maxTokens: count(1).optional().describe("longest completion, in tokens; as rollouts.maxTokens when absent"),
    filter: z
      .enum(["none", "verified"])
      .default("verified")
      .describe("responses: train on all complete answers, or on those that the verifier passes"),
    judge: z.boolean().default(true).describe("on-policy: have the samples judged, to log the reward"),
    divergence: z
      .enum(["reverse-kl", "forward-kl", "jsd"])
      .default("reverse-kl")
      .describe("on-policy: what is minimised; the last two are taken over the full distribution"),
    exact: z
      .boolean()
      .default(false)
      .describe("on-policy: reverse-kl over the full distribution too, instead of the sampled token alone"),
    beta: z
      .number()
      .min(0)
      .max(1)
      .default(0.5)
      .describe("jsd: weight of the teacher in the mixture; 0 = forward KL, 1 = reverse KL"),
    mix: z
      .record(z.string(), z.number().gt(0))
      .optional()
      .describe("continue: share of the tokens that each dataset of the demonstrations gets; any positive numbers"),
    optimizer,
    out: z
      .string()
      .min(1)
      .optional()
      .describe("folder the trained model is written to; a path in the config file is relative to that file"),
  });
}
