/**
 * Sampling groups until enough of them can teach: dynamic sampling as DAPO states it (Yu et al., arXiv 2503.14476,
 * section 3.2). Groups whose completions all got the same reward have advantages 0; they are replaced by groups of
 * further tasks until the batch is full or the cap is reached. What that costs is counted.
 */
import type { Policy } from "../policy/policy.ts";
import type { Task } from "../tasks/task.ts";
import type { Verifier } from "../verifiers/verifier.ts";
import { type Rollout, rewardOf } from "./rollout.ts";
import { type SampledGroups, type SampleGroupsOptions, sampleGroups } from "./sample.ts";

export interface CollectOptions extends SampleGroupsOptions {
  /** Groups of a full batch. */
  groups: number;
  /** Replace groups without a difference in reward. */
  dynamic: boolean;
  /** Sampling rounds at most, the first included. */
  maxRounds: number;
}

/** Why a sampled group is not in the batch. */
export type DropReason = "all-pass" | "all-fail" | "unjudged" | "surplus";

export interface Collected {
  /** The batch. */
  kept: Rollout[][];
  /** All that was sampled, in order: what metrics of the policy are taken over, or they would flatter it. */
  sampled: Rollout[][];
  dropped: Record<DropReason, number>;
  /** Tokens sampled for groups that are not in the batch. */
  wastedTokens: number;
  rounds: number;
  /** Set when the cap was reached before the batch was full: why, in words. */
  exhausted?: string;
  generateSeconds: number;
  verifySeconds: number;
  retries: number;
}

/** The reason to drop a group, or undefined for one with different rewards. */
export function dropReason(group: readonly Rollout[]): DropReason | undefined {
  const rewards = group.map(({ verdict }) => rewardOf(verdict)).filter((reward) => reward !== null);
  if (rewards.length < 2) return "unjudged";
  if (rewards.some((reward) => reward !== rewards[0])) return undefined;
  const passed = group.some(({ verdict }) => verdict.outcome === "pass");
  return passed ? "all-pass" : "all-fail";
}

/**
 * Samples groups of the tasks that `next` gives, until `options.groups` are in the batch. Without `dynamic` that is one
 * round and every group is kept.
 */
export async function collectGroups(
  policy: Policy,
  verifier: Verifier,
  next: (count: number) => Task[],
  options: CollectOptions,
): Promise<Collected> {
  const { groups, dynamic, maxRounds } = options;
  const result: Collected = {
    kept: [],
    sampled: [],
    dropped: { "all-pass": 0, "all-fail": 0, unjudged: 0, surplus: 0 },
    wastedTokens: 0,
    rounds: 0,
    generateSeconds: 0,
    verifySeconds: 0,
    retries: 0,
  };
  const drop = (group: readonly Rollout[], reason: DropReason) => {
    result.dropped[reason]++;
    result.wastedTokens += group.reduce((sum, { tokens }) => sum + tokens.length, 0);
  };
  while (result.kept.length < groups && result.rounds < maxRounds) {
    const round = await sampleGroups(policy, verifier, next(roundSize(result, groups)), {
      ...options,
      key: result.rounds === 0 ? options.key : [...options.key, "round", result.rounds],
    });
    addUp(result, round);
    for (const group of round.groups) {
      const reason = dynamic ? dropReason(group) : undefined;
      if (reason !== undefined) drop(group, reason);
      else if (result.kept.length < groups) result.kept.push(group);
      else drop(group, "surplus");
    }
    if (!dynamic) break;
  }
  if (dynamic && result.kept.length < groups) result.exhausted = exhaustion(result, options);
  return result;
}

/** Tasks for the next round: what is missing over the share kept so far, a whole batch at most. */
function roundSize(result: Collected, groups: number): number {
  if (result.sampled.length === 0) return groups;
  const acceptance = Math.max(0.1, result.kept.length / result.sampled.length);
  return Math.min(groups, Math.ceil((groups - result.kept.length) / acceptance));
}

function addUp(result: Collected, round: SampledGroups): void {
  result.sampled.push(...round.groups);
  result.rounds++;
  result.generateSeconds += round.generateSeconds;
  result.verifySeconds += round.verifySeconds;
  result.retries += round.retries;
}

function exhaustion({ kept, sampled, dropped }: Collected, { groups, maxRounds }: CollectOptions): string {
  return (
    `${kept.length} of ${groups} groups with a difference in reward after ${maxRounds} rounds of sampling: of ` +
    `${sampled.length} groups, ${dropped["all-pass"]} all passed, ${dropped["all-fail"]} all failed, ` +
    `${dropped.unjudged} could not be judged`
  );
}
