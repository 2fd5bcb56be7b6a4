import type { MetricName, MetricRecord } from "../runs/metrics.ts";
import { type Chart, chartFigure, type Series } from "./chart.ts";
import { dataTable } from "./page.ts";

/** Mean of each value with up to `size - 1` values before it. */
export function movingAverage(values: (number | null | undefined)[], size: number): (number | null)[] {
  return values.map((_, index) => {
    const window = values.slice(Math.max(0, index - size + 1), index + 1).filter((value) => typeof value === "number");
    return window.length > 0 ? window.reduce((sum, value) => sum + value, 0) / window.length : null;
  });
}

type Drawn = Omit<Chart, "steps" | "series" | "marks"> & {
  of: [name: MetricName, label: string, color: number][];
  /** Left out where nothing but 0 was measured. */
  unlessZero?: boolean;
  /** Drawn for this kind of run only. */
  only?: "sft" | "train";
};

function charts(limits: { warn?: number; stop?: number }): Drawn[] {
  return [
    {
      title: "Loss",
      caption: "Mean negative log-probability of the demonstrations' tokens, in nats.",
      low: 0,
      only: "sft",
      of: [["loss", "loss", 0]],
    },
    {
      title: "Groups",
      caption: "Only mixed groups teach: where all completions of a task get the same reward, the advantage is 0.",
      kind: "stacked",
      whole: true,
      of: [
        ["groups/all-fail", "all fail", 3],
        ["groups/mixed", "mixed", 0],
        ["groups/all-pass", "all pass", 2],
      ],
    },
    {
      title: "Entropy",
      caption: "Mean entropy where tokens were sampled, in nats. A fall towards 0 means that samples stop differing.",
      low: 0,
      of: [["entropy", "entropy", 0]],
    },
    {
      title: "Length",
      caption: "Mean length of completions, in tokens, by verdict.",
      low: 0,
      of: [
        ["length/right", "passing", 2],
        ["length/wrong", "others", 1],
      ],
    },
    {
      title: "Visible pass, hidden fail",
      caption:
        "Completions a step that pass the tests shown in the prompt and fail the hidden ones: hard-coded examples.",
      low: 0,
      whole: true,
      of: [["verdicts/visible-pass-hidden-fail", "completions", 1]],
    },
    {
      title: "Divergence to the reference",
      caption: "Estimates k1 and k3 of the divergence to the policy before training, a token, in nats.",
      of: [
        ["kl/k3", "k3", 0],
        ["kl/k1", "k1", 1],
      ],
    },
    {
      title: "Gradient norm",
      caption: "Global norm of the gradient before clipping.",
      low: 0,
      of: [["optimizer/grad-norm", "norm", 0]],
    },
    {
      title: "Gap between decoding and training",
      caption:
        "Largest difference of a token's log-probability between the two paths, in nats. Dashed: limits of the alerts.",
      logarithmic: true,
      limits: [
        { value: limits.warn ?? 0, label: "warn" },
        { value: limits.stop ?? 0, label: "stop" },
      ].filter((limit) => limit.value > 0),
      of: [["logprob/gap", "largest gap", 0]],
    },
    {
      title: "Clipped tokens",
      caption: "Share of tokens whose ratio was clipped.",
      unlessZero: true,
      low: 0,
      of: [
        ["clip/low", "below", 1],
        ["clip/high", "above", 0],
      ],
    },
    {
      title: "Time by phase",
      caption: "Seconds a step.",
      kind: "stacked",
      of: [
        ["time/generate", "generate", 0],
        ["time/verify", "verify", 1],
        ["time/update", "update", 2],
      ],
    },
  ];
}

/** Every curve of a run as figures. */
export function curves(
  metrics: MetricRecord[],
  options: { kind: "sft" | "train"; marks: number[]; averageOver: number; warn?: number; stop?: number },
): string {
  const steps = metrics.map((record) => record.step);
  const values = (name: string) => metrics.map((record) => record[name]);
  const marks = options.marks;
  const reward = chartFigure({
    title: "Reward",
    caption: `Mean reward of the step's rollouts, verdict error left out. Strong line: mean of the last ${options.averageOver} steps.`,
    steps,
    series: [
      { name: "each step", values: values("reward/mean"), color: 0, faint: true },
      { name: "moving average", values: movingAverage(values("reward/mean"), options.averageOver), color: 0 },
    ],
    low: 0,
    high: 1,
    marks,
  });
  const others = charts(options).map(({ of, unlessZero, only, ...chart }) => {
    if (only && only !== options.kind) return "";
    if (unlessZero && of.every(([name]) => values(name).every((value) => !value))) return "";
    const series: Series[] = of.map(([name, label, color]) => ({ name: label, values: values(name), color }));
    return chartFigure({ ...chart, steps, series, marks });
  });
  return `<div class="charts">${reward}${others.join("")}</div>`;
}

/** All numbers behind the curves, and those that have no curve. */
export function metricsTable(metrics: MetricRecord[]): string {
  const names = [...new Set(metrics.flatMap((record) => Object.keys(record)))].filter((name) => name !== "step");
  const number = (value: number | null | undefined) => (typeof value === "number" ? Number(value.toPrecision(5)) : "");
  const rows = metrics.map((record) => [record.step, ...names.map((name) => number(record[name]))]);
  return `<details><summary>All metrics of every step as a table</summary><div class="scroll small" tabindex="0">${dataTable(
    ["step", ...names],
    rows,
  )}</div></details>`;
}

/** Total seconds and share of each phase. */
export function timeTable(metrics: MetricRecord[]): string {
  const sum = (name: string) => metrics.reduce((total, record) => total + (record[name] ?? 0), 0);
  const phases = [...new Set(metrics.flatMap((record) => Object.keys(record)))]
    .filter((name) => name.startsWith("time/") && name !== "time/total")
    .map((name) => [name.slice("time/".length), sum(name)] as [string, number]);
  const total = sum("time/total") || phases.reduce((all, [, seconds]) => all + seconds, 0);
  if (total === 0) return "";
  const named = phases.reduce((all, [, seconds]) => all + seconds, 0);
  const rows: [string, number][] = [
    ...phases,
    ...(total > named * 1.001 ? [["other", total - named] as [string, number]] : []),
  ];
  return dataTable(
    ["phase", "seconds", "share"],
    [...rows, ["all steps", total] as [string, number]].map(([name, seconds]) => [
      name,
      Number(seconds.toFixed(1)),
      Number((seconds / total).toFixed(3)),
    ]),
  );
}
