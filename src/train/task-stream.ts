import { RandomStream } from "../base/random.ts";
import type { RlvrConfig } from "../config/index.ts";
import { type Rollout, rewardOf } from "../rollouts/rollout.ts";
import { type CurriculumHistory, chooseTasks, poolOf, recordGroup } from "../tasks/curriculum.ts";
import type { Task } from "../tasks/task.ts";

/** What was changed because nothing was learned: each counts how often. */
export interface Adaptations {
  /** Times the run adapted. */
  times: number;
  /** Times the sampling temperature was raised. */
  warmer: number;
}

/** Where a stream of tasks stands: plain data, kept in checkpoints. */
export interface StreamState {
  /** Tasks (or demonstrations, in other loops) taken so far. */
  cursor: number;
  /** With a curriculum: what is known of each task that was tried. */
  history?: CurriculumHistory;
  /** Where the run has adapted to steps without a mixed group. */
  adaptations?: Adaptations;
}

/**
 * The tasks of the steps: a shuffled epoch at a time, or chosen by the curriculum. What comes next follows from seed and
 * state alone.
 */
export class TaskStream {
  readonly #tasks: readonly Task[];
  readonly #config: RlvrConfig;
  #epoch: { number: number; tasks: Task[] } | undefined;
  state: StreamState = { cursor: 0 };

  constructor(tasks: readonly Task[], config: RlvrConfig) {
    this.#tasks = tasks;
    this.#config = config;
  }

  next(count: number): Task[] {
    const { cursor, history = {} } = this.state;
    const { curriculum, seed } = this.#config;
    if (!this.#chooses) {
      this.state = { ...this.state, cursor: cursor + count };
      return Array.from({ length: count }, (_, i) => this.#at(cursor + i));
    }
    const chosen = chooseTasks(this.#tasks, history, count, curriculum, [seed, cursor]);
    this.state = { ...this.state, cursor: cursor + chosen.length };
    return chosen;
  }

  #at(position: number): Task {
    const number = Math.floor(position / this.#tasks.length);
    if (this.#epoch?.number !== number) {
      this.#epoch = { number, tasks: new RandomStream(this.#config.seed, "epoch", number).shuffle(this.#tasks) };
    }
    return this.#epoch.tasks[position % this.#tasks.length];
  }

  /** Takes note of how groups went. */
  record(groups: readonly (readonly Rollout[])[]): void {
    const { curriculum } = this.#config;
    // What has been tried is of use once the run adapts, so it is noted from the start.
    if (!this.#chooses && this.#config.alerts.deadAction !== "adapt") return;
    let history = this.state.history ?? {};
    for (const group of groups) {
      const judged = group.filter(({ verdict }) => rewardOf(verdict) !== null);
      if (judged.length === 0) continue;
      const passed = judged.filter(({ verdict }) => verdict.outcome === "pass").length;
      history = recordGroup(history, group[0].task.id, passed / judged.length, curriculum);
    }
    this.state = { ...this.state, history };
  }

  /** The temperature a task is sampled at: hard ones may have one of their own. */
  temperature(task: Task): number {
    const { curriculum, rollouts } = this.#config;
    const pool = this.#chooses ? poolOf(this.state.history?.[task.id], curriculum) : "learning";
    const base = pool === "hard" ? (curriculum.hardTemperature ?? rollouts.temperature) : rollouts.temperature;
    return base * this.#config.alerts.adaptFactor ** (this.state.adaptations?.warmer ?? 0);
  }

  /** Whether the curriculum chooses: because the config says so, or because the run had to adapt. */
  get #chooses(): boolean {
    return this.#config.curriculum.enabled || this.state.adaptations !== undefined;
  }

  /**
   * After steps without a mixed group: lets the curriculum choose tasks, and where all fail although it does, samples at
   * a higher temperature. What was done, in words; null where nothing is left: all pass under a curriculum, or `most`
   * times have passed.
   */
  adapt(cause: "all-pass" | "all-fail", most: number): string | null {
    const { times, warmer } = this.state.adaptations ?? { times: 0, warmer: 0 };
    if (times >= most) return null;
    if (!this.#chooses) {
      this.state = { ...this.state, adaptations: { times: times + 1, warmer } };
      return cause === "all-pass" ? "solved tasks are retired" : "untried tasks come before those that failed";
    }
    if (cause === "all-pass") return null;
    this.state = { ...this.state, adaptations: { times: times + 1, warmer: warmer + 1 } };
    return `sampling temperatures × ${(this.#config.alerts.adaptFactor ** (warmer + 1)).toFixed(2)}`;
  }

  /** Tasks by pool, for the log. */
  metrics(): Record<string, number> {
    const { curriculum } = this.#config;
    if (!this.#chooses) return {};
    const counts = { unseen: 0, hard: 0, learning: 0, solved: 0 };
    for (const task of this.#tasks) counts[poolOf(this.state.history?.[task.id], curriculum)]++;
    return Object.fromEntries(Object.entries(counts).map(([pool, count]) => [`curriculum/${pool}`, count]));
  }
}
