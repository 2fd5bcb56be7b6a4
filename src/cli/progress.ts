/** Shows the events of a run: a live line on a terminal, one plain line a step elsewhere. */
import pc from "picocolors";
import { pairedGain } from "../evaluate/intervals.ts";
import type { Evaluation, PlanEvent, RunEvent, Sample, StartEvent, StepEvent } from "../runs/events.ts";
import { bar, duration, interval, oneLine, short, sparkline, useColor } from "./format.ts";

export interface Screen {
  write(text: string): void;
  /** Characters a line. */
  columns: number;
  /** True on a terminal that can redraw a line. */
  live: boolean;
  color: boolean;
}

/** The screen of this process: live on a terminal unless `CI` is set. */
export function processScreen(): Screen {
  const { stdout, env } = process;
  const live = stdout.isTTY === true && (env.CI ?? "") === "" && env.TERM !== "dumb";
  return {
    write: (text) => stdout.write(text),
    get columns() {
      return stdout.columns ?? 100;
    },
    live,
    color: useColor(stdout),
  };
}

/** Metrics of a step line: name, label, and the metric whose value is the total, if any. */
const shown: [name: string, label: string][] = [
  ["reward/mean", "reward"],
  ["loss", "loss"],
  ["groups/mixed", "mixed"],
  ["entropy", "entropy"],
  ["kl/k3", "kl"],
  ["length/mean", "length"],
  ["optimizer/grad-norm", "grad"],
  ["time/total", "time"],
];

export class Progress {
  readonly #screen: Screen;
  readonly #colors: ReturnType<typeof pc.createColors>;
  readonly #rewards: number[] = [];
  #liveLine = "";
  #tenth = 0;

  constructor(screen: Screen) {
    this.#screen = screen;
    this.#colors = pc.createColors(screen.color);
  }

  handle(event: RunEvent): void {
    const { yellow, red } = this.#colors;
    switch (event.event) {
      case "start":
        this.#start(event);
        break;
      case "plan":
        this.#plan(event);
        break;
      case "step":
        this.#step(event);
        break;
      case "progress":
        if (!this.#screen.live && event.done === 0) this.#print(`${event.phase}: ${event.total}`);
        this.#live(`${event.phase}  ${bar(event.done, event.total, 24)} ${event.done}/${event.total}`);
        break;
      case "evaluation":
        this.#print(`pass@1 ${event.when}  ${this.#evaluation(event.evaluation)}`);
        break;
      case "alert": {
        const color = event.level === "stop" ? red : yellow;
        this.#print(color(`${event.level}  step ${event.step}  ${event.code}: ${event.message}`));
        break;
      }
      case "samples":
        if (event.best) this.#sample("best", event.best);
        if (event.worst) this.#sample("worst", event.worst);
        if (!event.best && !event.worst && event.latest) this.#sample("latest", event.latest);
        break;
    }
  }

  /** Clears the live line; what is printed next starts on a clean one. */
  clear(): void {
    if (this.#liveLine) this.#screen.write("\r\x1b[2K");
    this.#liveLine = "";
  }

  /** Prints a line that stays. */
  print(line: string): void {
    this.#print(line);
  }

  #print(line: string): void {
    const live = this.#liveLine;
    this.clear();
    this.#screen.write(`${line}\n`);
    if (live) this.#live(live);
  }

  #live(line: string): void {
    if (!this.#screen.live) return;
    this.#screen.write(`\r\x1b[2K${line.slice(0, this.#screen.columns - 1)}`);
    this.#liveLine = line;
  }

  #start(event: StartEvent): void {
    const { bold, dim } = this.#colors;
    const resumed = event.resumedFrom === undefined ? "" : `, continued from step ${event.resumedFrom}`;
    this.#print(`${bold("rlvr")} ${event.run}${resumed}`);
    if (event.verifier) this.#print(`${dim("verifier ")} ${event.verifier}`);
    if (!event.contract) return;
    const { observes, extracts, limits, doesNotCheck } = event.contract;
    const limitText = Object.entries(limits).map(([name, value]) => `${name} ${value}`);
    this.#print(`${dim("observes ")} ${observes}`);
    this.#print(`${dim("extracts ")} ${extracts}`);
    this.#print(`${dim("limits   ")} ${limitText.join(", ") || "none"}`);
    this.#print(`${dim("unchecked")} ${doesNotCheck.join("; ") || "nothing named"}`);
    const { name, ...constants } = (event.config.objective ?? {}) as Record<string, unknown>;
    if (name === undefined) return;
    const rule = Object.entries(constants).map(([key, value]) => `${key} ${value}`);
    this.#print(`${dim("objective")} ${name}: ${rule.join(", ")}`);
    if (constants.aggregation !== "sequence-mean" || constants.surrogate !== "clipped") return;
    const note = "the loss is 0 on a step's first update, where every ratio is 1; reward, kl and grad tell more";
    this.#print(`${dim("note     ")} ${note}`);
  }

  #plan(event: PlanEvent): void {
    const values = Object.entries(event.values).map(
      ([name, value]) => `${name} ${typeof value === "number" ? short(value) : value}`,
    );
    this.#print(`${this.#colors.dim("plan     ")} ${[`${event.steps} steps`, ...values].join(", ")}`);
  }

  #step(event: StepEvent): void {
    const { metrics, step, steps } = event;
    const reward = metrics["reward/mean"];
    if (Number.isFinite(reward)) this.#rewards.push(reward);
    const parts = shown.flatMap(([name, label]) => {
      const value = metrics[name];
      if (value === undefined) return [];
      if (name === "time/total") return [duration(value)];
      if (name === "groups/mixed") return [`${label} ${groups(metrics)}`];
      return [`${label} ${name === "loss" && Math.abs(value) < 1e-6 ? "0" : short(value)}`];
    });
    const eta = step < steps ? `eta ${duration(event.etaSeconds)}` : "";
    const plain = [`step ${step}/${steps}`, ...parts, eta].filter(Boolean).join("  ");
    if (!this.#screen.live) {
      this.#screen.write(`${plain}\n`);
      return;
    }
    const trend = this.#rewards.length > 1 ? ` ${sparkline(this.#rewards, 12)}` : "";
    this.clear();
    // Ten lines of a run stay on the screen, whatever its length.
    const tenth = Math.floor((10 * step) / steps);
    if (tenth > this.#tenth) this.#screen.write(`${plain}\n`);
    this.#tenth = tenth;
    if (step === steps) return;
    const cells = this.#screen.columns >= 100 ? 20 : 10;
    this.#live(
      [`${bar(step, steps, cells)} ${step}/${steps}`, eta, `${parts[0] ?? ""}${trend}`, ...parts.slice(1)].join("  "),
    );
  }

  #sample(label: string, sample: Sample): void {
    const { dim, green, red } = this.#colors;
    const verdict = sample.outcome === "pass" ? green(sample.outcome) : red(sample.outcome);
    const width = Math.max(20, this.#screen.columns - 24);
    this.#print(`${dim(label.padEnd(9))} ${verdict}  ${oneLine(sample.completion, width)}`);
  }

  #evaluation(evaluation: Evaluation): string {
    const { tasks, samplesPerTask, passAt1 } = evaluation;
    return `${interval(passAt1)}  ${this.#colors.dim(`${tasks} tasks x ${samplesPerTask} samples, 95 % interval`)}`;
  }

  /** The last lines of a training run, ending with the next command. */
  summary(pair: { before: Evaluation | null; after: Evaluation | null }, next: string[]): void {
    const { bold, dim } = this.#colors;
    const { before, after } = pair;
    this.clear();
    if (before && after) {
      this.#print("");
      this.#print(`${bold("pass@1")}  before  ${interval(before.passAt1)}`);
      this.#print(`${bold("pass@1")}  after   ${interval(after.passAt1)}`);
      this.#print(`${bold("gain")}            ${gain(before, after)}`);
      this.#print(dim(`        ${after.tasks} untouched tasks x ${after.samplesPerTask} samples, 95 % intervals`));
    } else if (after) {
      this.#print(`${bold("pass@1")}  ${this.#evaluation(after)}`);
    }
    for (const line of next) this.#print(line);
  }
}

function groups(metrics: Record<string, number>): string {
  const mixed = metrics["groups/mixed"];
  const total = mixed + (metrics["groups/all-pass"] ?? 0) + (metrics["groups/all-fail"] ?? 0);
  return `${mixed}/${total}`;
}

/** The gain, with the interval of the paired difference where both evaluations tell their tasks. */
function gain(before: Evaluation, after: Evaluation): string {
  const signed = (value: number) => `${value >= 0 ? "+" : "-"}${Math.abs(value).toFixed(3)}`;
  const paired = pairedGain(before, after);
  if (!paired) return signed(after.passAt1.estimate - before.passAt1.estimate);
  return `${signed(paired.estimate)} [${signed(paired.low)}, ${signed(paired.high)}]`;
}
