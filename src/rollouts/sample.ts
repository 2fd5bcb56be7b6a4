import { errorMessage } from "../base/errors.ts";
import { show } from "../config/parse.ts";
import type { SampleKey } from "../engine/index.ts";
import type { Policy } from "../policy/policy.ts";
import type { Task } from "../tasks/task.ts";
import type { Verdict, Verifier, VerifyItem, VerifyPurpose } from "../verifiers/verifier.ts";
import type { Rollout, SamplerRecord } from "./rollout.ts";
import { tokenSpans } from "./step-spans.ts";

export interface SampleGroupsOptions {
  groupSize: number;
  sampler: SamplerRecord;
  /** Temperature of a task's samples; the sampler's where absent. */
  temperature?(task: Task): number;
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
  const temperatures = tasks.map((task) => options.temperature?.(task) ?? sampler.temperature);
  const samples = tasks.flatMap((task, prompt) =>
    Array.from({ length: groupSize }, (_, sample) => ({
      prompt,
      key: [...key, task.id, sample] as const,
      temperature: temperatures[prompt],
    })),
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
      ...(verdicts[i].steps
        ? { steps: tokenSpans(result.tokens, verdicts[i].steps, (tokens) => policy.decode(tokens)) }
        : {}),
      policy: version,
      sampler: { ...sampler, temperature: temperatures[samples[i].prompt] },
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
  const errors = verdicts.flatMap((verdict, i) => (verdict.outcome === "error" ? [i] : []));
  if (errors.length > 0) {
    const retried = errors.map((i) => items[i]);
    for (const [n, verdict] of (await verifyAll(verifier, retried, purpose)).entries()) verdicts[errors[n]] = verdict;
  }
  return { verdicts, retries: errors.length };
}

async function verifyAll(verifier: Verifier, items: VerifyItem[], purpose: VerifyPurpose): Promise<Verdict[]> {
  try {
    const verdicts: unknown = await verifier.verify(items, purpose);
    // Verdicts go to completions by their place in the list: one too few and all of them may be somebody else's.
    if (!Array.isArray(verdicts) || verdicts.length !== items.length) {
      const got = Array.isArray(verdicts) ? `${verdicts.length}` : show(verdicts);
      return items.map(() => failed(`expected a list of ${items.length} verdicts from the verifier, got ${got}`));
    }
    return Array.from(verdicts, checked);
  } catch (error) {
    // A user's verifier may throw for the whole batch; none of it is anybody's fault but the verifier's.
    return items.map(() => failed(errorMessage(error)));
  }
}

function failed(reason: string): Verdict {
  return { outcome: "error", score: 0, components: {}, evidence: { reason } };
}

const OUTCOMES: readonly unknown[] = ["pass", "fail", "invalid", "error"];

const isObject = (value: unknown): value is Record<string, unknown> => typeof value === "object" && value !== null;

/** The verdict where it is one, with empty parts filled in; an `error` that says what came instead where it is not. */
function checked(given: unknown): Verdict {
  if (!isObject(given)) return failed(`expected a verdict from the verifier, got ${show(given)}`);
  const { outcome, score, components = {}, evidence = {}, steps } = given;
  const wrong = (what: string, value: unknown) =>
    failed(`expected ${what} in the verifier's verdict, got ${show(value)}`);
  if (!OUTCOMES.includes(outcome)) return wrong("the outcome pass, fail, invalid or error", outcome);
  if (!(typeof score === "number" && score >= 0 && score <= 1)) return wrong("a score in [0, 1]", score);
  if (!isObject(components) || !Object.values(components).every(Number.isFinite)) {
    return wrong("components that are numbers", components);
  }
  if (!isObject(evidence) || !isJson(evidence)) return wrong("evidence in plain data", evidence);
  if (steps !== undefined && !areSteps(steps)) return wrong("steps in order with scores in [0, 1]", steps);
  return { ...(given as unknown as Verdict), components: components as Record<string, number>, evidence };
}

function areSteps(steps: unknown): boolean {
  if (!Array.isArray(steps)) return false;
  let last = 0;
  return steps.every((step) => {
    if (!isObject(step)) return false;
    const { start, end, score } = step as Record<string, number>;
    const inOrder = Number.isInteger(start) && Number.isInteger(end) && start >= last && end >= start;
    last = end;
    return inOrder && score >= 0 && score <= 1;
  });
}

function isJson(value: unknown): boolean {
  try {
    return JSON.stringify(value) !== undefined;
  } catch {
    return false;
  }
}
