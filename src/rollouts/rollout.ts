import type { ScoredSpan } from "../learning/process.ts";
import type { PolicyVersion } from "../policy/policy.ts";
import type { RolloutRecord } from "../runs/records.ts";
import type { Task } from "../tasks/task.ts";
import type { Verdict } from "../verifiers/verifier.ts";

/** Settings a completion was sampled with. */
export interface SamplerRecord {
  temperature: number;
  topP: number;
  topK: number;
  /** Longest completion, in tokens. */
  maxTokens: number;
}

/** A completion with its verdict, the policy version and the sampler settings that made it. */
export interface Rollout {
  task: Task;
  /** Index in its group, from 0. */
  sample: number;
  /** Token ids of the prompt. */
  prompt: readonly number[];
  /** Sampled token ids, the ending one included. */
  tokens: number[];
  /** Log-probability of each sampled token under the distribution it was sampled from. */
  logprobs: number[];
  text: string;
  finish: "stop" | "length";
  verdict: Verdict;
  /** The verdict's scored steps, as spans of `tokens`. */
  steps?: ScoredSpan[];
  policy: PolicyVersion;
  sampler: SamplerRecord;
}

/** The reward of a verdict: its score; null for `error`, which never is a reward. */
export function rewardOf(verdict: Verdict): number | null {
  return verdict.outcome === "error" ? null : verdict.score;
}

/** Text of a prompt, for people to read. */
export function promptText(prompt: Task["prompt"]): string {
  return typeof prompt === "string" ? prompt : prompt.map(({ role, content }) => `${role}: ${content}`).join("\n");
}

/** A rollout as it is kept in the run folder. */
export function toRecord(rollout: Rollout, step: number, advantage: number | null): RolloutRecord {
  const { task, verdict } = rollout;
  return {
    step,
    taskId: task.id,
    sample: rollout.sample,
    prompt: promptText(task.prompt),
    completion: rollout.text,
    outcome: verdict.outcome,
    score: verdict.score,
    components: verdict.components,
    evidence: verdict.evidence,
    limit: verdict.limit,
    steps: rollout.steps,
    advantage,
    tokens: rollout.tokens.length,
    truncated: rollout.finish === "length",
    source: task.source,
    difficulty: task.difficulty,
    tokenIds: rollout.tokens,
    logprobs: rollout.logprobs,
    policy: rollout.policy,
    sampler: rollout.sampler,
  };
}
