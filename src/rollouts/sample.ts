import { errorMessage } from "../base/errors.ts";
import type { SampleKey } from "../engine/index.ts";
import type { Policy } from "../policy/policy.ts";
import type { Task } from "../tasks/task.ts";
import type { Verdict, Verifier, VerifyItem, VerifyPurpose } from "../verifiers/verifier.ts";
import type { Rollout, SamplerRecord } from "./rollout.ts";

export interface SampleGroupsOptions {
  groupSize: number;
  sampler: SamplerRecord;
  /** First names of each sample's random stream; task and index in the group follow. */
  key: SampleKey;
  /** Which test set decides. */
  purpose: VerifyPurpose;
}

export interface SampledGroups {
  /** One group a task, in the order of the tasks. */
  groups: Rollout[][];
  generateSeconds: number;
  verifySeconds: number;
  /** Verdicts `error` that were judged again. */
  retries: number;
}

/** Samples a group of completions of each task from the policy as it is now, and has them judged. */
export async function sampleGroups(
  policy: Policy,
  verifier: Verifier,
  tasks: readonly Task[],
  options: SampleGroupsOptions,
): Promise<SampledGroups> {
  const { groupSize, sampler, key } = options;
  const started = performance.now();
  const prompts = tasks.map((task) => policy.encode(task.prompt));
  const samples = tasks.flatMap((task, prompt) =>
    Array.from({ length: groupSize }, (_, sample) => ({ prompt, key: [...key, task.id, sample] as const })),
  );
  const version = await policy.version();
  const generated = await policy.sample({ prompts, samples, maxTokens: sampler.maxTokens, sampler });
  const texts = generated.map(({ tokens }) => policy.decode(tokens));
  const sampled = performance.now();
  const items = texts.map((completion, i) => ({ task: tasks[Math.floor(i / groupSize)], completion }));
  const { verdicts, retries } = await judge(verifier, items, options.purpose);
  const rollouts = generated.map(
    (result, i): Rollout => ({
      task: items[i].task,
      sample: i % groupSize,
      prompt: prompts[samples[i].prompt],
      tokens: result.tokens,
      logprobs: result.logprobs,
      text: texts[i],
      finish: result.finish,
      verdict: verdicts[i],
      policy: version,
      sampler,
    }),
  );
  return {
    groups: tasks.map((_, i) => rollouts.slice(i * groupSize, (i + 1) * groupSize)),
    generateSeconds: (sampled - started) / 1000,
    verifySeconds: (performance.now() - sampled) / 1000,
    retries,
  };
}

/** Judges all items; a verifier that fails is asked once more for what it did not judge. */
async function judge(
  verifier: Verifier,
  items: VerifyItem[],
  purpose: VerifyPurpose,
): Promise<{ verdicts: Verdict[]; retries: number }> {
  const verdicts = await verifyAll(verifier, items, purpose);
  const failed = verdicts.flatMap((verdict, i) => (verdict.outcome === "error" ? [i] : []));
  if (failed.length > 0) {
    const again = await verifyAll(
      verifier,
      failed.map((i) => items[i]),
      purpose,
    );
    failed.forEach((i, n) => {
      verdicts[i] = again[n];
    });
  }
  return { verdicts, retries: failed.length };
}

async function verifyAll(verifier: Verifier, items: VerifyItem[], purpose: VerifyPurpose): Promise<Verdict[]> {
  const fault = (reason: string): Verdict => ({ outcome: "error", score: 0, components: {}, evidence: { reason } });
  try {
    const verdicts = await verifier.verify(items, purpose);
    return items.map((_, i) => checked(verdicts[i]) ?? fault(`the verifier gave ${JSON.stringify(verdicts[i])}`));
  } catch (error) {
    // A user's verifier may throw for the whole batch; none of it is anybody's fault but the verifier's.
    return items.map(() => fault(errorMessage(error)));
  }
}

/** A verdict that can be used: a known outcome and a score in [0, 1]. */
function checked(verdict: Verdict | undefined): Verdict | undefined {
  const known = verdict !== undefined && ["pass", "fail", "invalid", "error"].includes(verdict.outcome);
  return known && verdict.score >= 0 && verdict.score <= 1 ? verdict : undefined;
}
