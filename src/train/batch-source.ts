import type { RlvrConfig } from "../config/index.ts";
import { splitByStaleness } from "../learning/schedule.ts";
import type { Policy } from "../policy/policy.ts";
import { type Collected, collectGroups } from "../rollouts/collect.ts";
import type { Rollout } from "../rollouts/rollout.ts";
import type { Task } from "../tasks/task.ts";
import type { Verifier } from "../verifiers/verifier.ts";
import { packQueue, unpackQueue } from "./queue.ts";
import type { LoopState } from "./setup.ts";
import { type StreamState, TaskStream } from "./task-stream.ts";

/** A batch to train on, and what became of everything sampled for it. */
export interface Batch extends Collected {
  /** Rollouts that were too old to train on, and are not in `kept`. */
  stale: number;
  /** Seconds spent sampling and verifying in this step; with batches ahead, for a later batch. */
  generateSeconds: number;
  verifySeconds: number;
}

/**
 * Where batches come from: the task stream, the sampler, and a queue of batches that were sampled ahead of training
 * (`rollouts.batchesBehind`), as asynchronous trainers have it: each is older than the weights by that many steps.
 */
export class BatchSource {
  readonly #config: RlvrConfig;
  readonly #policy: Policy;
  readonly #verifier: Verifier;
  readonly #tasks: readonly Task[];
  readonly #stream: TaskStream;
  #queue: Collected[] = [];

  constructor(config: RlvrConfig, policy: Policy, verifier: Verifier, tasks: readonly Task[]) {
    this.#config = config;
    this.#policy = policy;
    this.#verifier = verifier;
    this.#tasks = tasks;
    this.#stream = new TaskStream(tasks, config);
  }

  /** Goes on from a checkpoint: its state, and its queue where there is one. */
  restore({ cursor, history, adaptations }: LoopState, queue: Uint8Array | undefined): void {
    this.#stream.state = { cursor, ...(history ? { history } : {}), ...(adaptations ? { adaptations } : {}) };
    this.#queue = queue ? unpackQueue(queue, this.#tasks) : [];
  }

  get state(): StreamState {
    return this.#stream.state;
  }

  /** Makes what is sampled from now on more likely to have a signal; says how, or null when nothing is left to try. */
  adapt(cause: "all-pass" | "all-fail", most: number): string | null {
    return this.#stream.adapt(cause, most);
  }

  /** The queue for a checkpoint; undefined where there is none. */
  queueBytes(): Uint8Array | undefined {
    return this.#queue.length > 0 ? packQueue(this.#queue) : undefined;
  }

  /** The batch of a step (from 1). */
  async next(step: number, returns: number): Promise<Batch> {
    const { batchesBehind, maxStaleness } = this.#config.rollouts;
    let generateSeconds = 0;
    let verifySeconds = 0;
    while (this.#queue.length <= batchesBehind) {
      const sampled = await this.#sample(step + this.#queue.length, returns);
      generateSeconds += sampled.generateSeconds;
      verifySeconds += sampled.verifySeconds;
      this.#queue.push(sampled);
    }
    const batch = this.#queue.shift() as Collected;
    const { fresh, stale } = splitByStaleness(batch.kept, ([{ policy }]) => policy.step, {
      step: step - 1,
      bound: maxStaleness,
    });
    return { ...batch, kept: fresh, stale: stale.flat().length, generateSeconds, verifySeconds };
  }

  async #sample(number: number, returns: number): Promise<Collected> {
    const { rollouts, seed } = this.#config;
    const { temperature, topP, topK, maxTokens, groupSize, promptsPerStep, dynamicSampling, maxRounds } = rollouts;
    const collected = await collectGroups(this.#policy, this.#verifier, (count) => this.#stream.next(count), {
      groups: promptsPerStep,
      groupSize,
      dynamic: dynamicSampling,
      maxRounds,
      sampler: { temperature, topP, topK, maxTokens },
      temperature: (task) => this.#stream.temperature(task),
      key: [seed, number, returns],
      purpose: "reward",
    });
    this.#stream.record(collected.sampled);
    return collected;
  }

  /** What was sampled and what of it is trained on, by reason; and the pools of the curriculum. */
  metrics(batch: Batch): Record<string, number> {
    const count = (groups: readonly (readonly Rollout[])[]) => groups.reduce((sum, group) => sum + group.length, 0);
    const dynamic: Record<string, number> = {};
    if (this.#config.rollouts.dynamicSampling) {
      const groups = batch.sampled.length;
      dynamic["groups/acceptance"] = batch.kept.length / groups;
      for (const [reason, dropped] of Object.entries(batch.dropped)) dynamic[`groups/dropped-${reason}`] = dropped;
      dynamic["rollouts/rounds"] = batch.rounds;
      dynamic["tokens/wasted"] = batch.wastedTokens;
    }
    return {
      "rollouts/sampled": count(batch.sampled),
      "rollouts/kept": count(batch.kept),
      // A prompt is run once for its group.
      "tokens/prompts": batch.sampled.reduce((sum, group) => sum + (group[0]?.prompt.length ?? 0), 0),
      ...dynamic,
      ...(this.#config.rollouts.batchesBehind > 0 ? { "rollouts/stale": batch.stale } : {}),
      ...this.#stream.metrics(),
    };
  }
}
