/** A config with tasks and a verifier of its own: small sums, answered by one number. */
import { defineConfig, RandomStream, type Split, type Task, type Verdict, type Verifier } from "rlvr";

function sums(seed: number, split: Split, count: number): Task<number>[] {
  const random = new RandomStream(seed, "sums", split);
  // A first number has one side only, so that no sum is in two splits.
  const side = { train: 0, validation: 1, test: 2 }[split];
  return Array.from({ length: count }, (_, i) => {
    const a = 3 * random.integer(30) + side;
    const b = random.integer(90);
    return { id: `${split}-${i}`, prompt: `${a}+${b}=`, reference: a + b, source: `${a}`, tags: [] };
  });
}

export function sumVerifier(): Verifier<number> {
  return {
    name: "sums",
    version: "1",
    contract: {
      observes: "the completion as one decimal integer, compared with the sum; rewards and evaluations alike",
      extracts: "the whole completion, trimmed: digits, with a minus sign in front where there is one",
      limits: { digits: 9 },
      doesNotCheck: ["how the number was found"],
    },
    async verify(items) {
      return items.map(({ task, completion }): Verdict => {
        // A broken task is the verifier's fault: `error` is never a reward and leaves the group.
        if (!Number.isSafeInteger(task.reference)) {
          return { outcome: "error", score: 0, components: {}, evidence: { reason: "the reference is no integer" } };
        }
        const text = completion.trim();
        if (!/^-?\d{1,9}$/.test(text)) {
          return { outcome: "invalid", score: 0, components: { format: 0 }, evidence: { reason: "not one integer" } };
        }
        const right = Number(text) === task.reference;
        return {
          outcome: right ? "pass" : "fail",
          score: right ? 1 : 0,
          components: { format: 1 },
          evidence: right ? {} : { expected: task.reference, got: Number(text) },
        };
      });
    },
    async close() {},
  };
}

export default defineConfig({
  model: "model",
  tasks: (seed) => ({
    train: sums(seed, "train", 500),
    validation: sums(seed, "validation", 50),
    test: sums(seed, "test", 100),
  }),
  verifier: sumVerifier,
  rollouts: { maxTokens: 8 },
});
