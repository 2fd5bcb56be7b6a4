/** Small charts as SVG text, readable without scripts: a title, a caption, a legend in words. */
import { escapeHtml } from "./page.ts";

export interface Series {
  name: string;
  values: (number | null | undefined)[];
  /** Index of a colour of the page. */
  color: number;
  /** Drawn thin and pale, behind the others. */
  faint?: boolean;
}

export interface Chart {
  title: string;
  caption: string;
  /** Step of each value. */
  steps: number[];
  series: Series[];
  kind?: "lines" | "stacked";
  /** Bounds that are kept even where the data do not reach them. */
  low?: number;
  high?: number;
  logarithmic?: boolean;
  /** Counts: ticks at whole numbers only. */
  whole?: boolean;
  /** Horizontal lines with a label. */
  limits?: { value: number; label: string }[];
  /** Steps with an alert, drawn as vertical lines. */
  marks?: number[];
}

const width = 360;
const height = 168;
const left = 44;
const right = 10;
const top = 8;
const bottom = 22;

const finite = (value: number | null | undefined): value is number =>
  typeof value === "number" && Number.isFinite(value);
const round = (value: number) => Math.round(value * 10) / 10;

/** Round numbers that cover a range, about `count` of them. */
export function ticks(low: number, high: number, count = 4): number[] {
  if (!(high > low)) return [low];
  const raw = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= raw) as number;
  const found: number[] = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) {
    found.push(Number((i * step).toPrecision(12)));
  }
  return found;
}

/** A tick's text: as short as tells it from its neighbours. */
export function tickText(value: number): string {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e4) return `${Number((value / 1000).toPrecision(3))}k`;
  return size < 1e-3 ? value.toExponential(0) : String(Number(value.toPrecision(3)));
}

interface Scale {
  x(step: number): number;
  y(value: number): number;
  xTicks: number[];
  yTicks: number[];
}

function scaleOf(chart: Chart, tops: number[]): Scale {
  const { steps, logarithmic } = chart;
  const limits = (chart.limits ?? []).map((limit) => limit.value);
  const firstStep = steps[0] ?? 0;
  const lastStep = Math.max(steps[steps.length - 1] ?? 1, firstStep + 1);
  const x = (step: number) => left + ((step - firstStep) / (lastStep - firstStep)) * (width - left - right);
  const xTicks = ticks(firstStep, lastStep, 5).filter(Number.isInteger);
  const bottomY = height - bottom;
  if (logarithmic) {
    const positive = [...tops, ...limits].filter((value) => value > 0);
    const low = Math.floor(Math.log10(Math.min(...positive, 1)));
    const high = Math.max(low + 1, Math.ceil(Math.log10(Math.max(...positive, 10 ** low))));
    const every = Math.max(1, Math.ceil((high - low) / 4));
    const yTicks = Array.from({ length: high - low + 1 }, (_, i) => low + i).filter(
      (power) => (power - low) % every === 0,
    );
    const y = (value: number) =>
      bottomY - ((Math.log10(Math.max(value, 10 ** low)) - low) / (high - low)) * (bottomY - top);
    return { x, y, xTicks, yTicks: yTicks.map((power) => 10 ** power) };
  }
  let low = Math.min(...tops, ...limits, chart.low ?? Number.POSITIVE_INFINITY);
  let high = Math.max(...tops, ...limits, chart.high ?? Number.NEGATIVE_INFINITY);
  if (!Number.isFinite(low)) [low, high] = [0, 1];
  const pad = high > low ? (high - low) * 0.06 : Math.abs(high) * 0.1 || 1;
  if (chart.low === undefined || low < chart.low) low -= pad;
  if (chart.high === undefined || high > chart.high) high += pad;
  const y = (value: number) => bottomY - ((value - low) / (high - low)) * (bottomY - top);
  return { x, y, xTicks, yTicks: ticks(low, high).filter((tick) => !chart.whole || Number.isInteger(tick)) };
}

function linePaths(series: Series, steps: number[], scale: Scale): string {
  let path = "";
  let isOpen = false;
  let points = 0;
  series.values.forEach((value, index) => {
    if (!finite(value)) {
      isOpen = false;
      return;
    }
    path += `${isOpen ? "L" : "M"}${round(scale.x(steps[index]))} ${round(scale.y(value))}`;
    isOpen = true;
    points++;
  });
  const look = series.faint ? 'stroke-width="1" stroke-opacity="0.45"' : 'stroke-width="1.8"';
  const line = `<path d="${path}" fill="none" stroke="var(--c${series.color})" ${look} stroke-linejoin="round" stroke-linecap="round"/>`;
  const index = series.values.findIndex(finite);
  if (points !== 1) return line;
  return `<circle cx="${round(scale.x(steps[index]))}" cy="${round(scale.y(series.values[index] as number))}" r="3" fill="var(--c${series.color})"/>`;
}

function stackedPaths(chart: Chart, totals: number[][], scale: Scale): string {
  return chart.series
    .map((series, level) => {
      const above = totals[level].map((value, i) => `${round(scale.x(chart.steps[i]))} ${round(scale.y(value))}`);
      const below = chart.steps.map(
        (step, i) => `${round(scale.x(step))} ${round(scale.y(level ? totals[level - 1][i] : 0))}`,
      );
      return `<path d="M${above.join("L")}L${below.reverse().join("L")}Z" fill="var(--c${series.color})" fill-opacity="0.82"/>`;
    })
    .join("");
}

/** Running sums over series: the upper edge of each layer. */
function runningTotals(chart: Chart): number[][] {
  const sums = chart.steps.map(() => 0);
  return chart.series.map((series) =>
    sums.map((_, i) => {
      sums[i] += finite(series.values[i]) ? (series.values[i] as number) : 0;
      return sums[i];
    }),
  );
}

/** What the chart says, for those who cannot see it. */
function spoken(chart: Chart): string {
  const parts = chart.series.map(({ name, values }) => {
    const known = values.filter(finite);
    if (known.length === 0) return `${name}: no values`;
    const [first, last] = [known[0], known[known.length - 1]].map((value) => Number(value.toPrecision(3)));
    return `${name}: from ${first} to ${last}`;
  });
  return `${parts.join("; ")}.`;
}

/** The chart as a figure. Empty where no series has a value. */
export function chartFigure(chart: Chart): string {
  const series = chart.series.filter(({ values }) => values.some(finite));
  if (series.length === 0 || chart.steps.length === 0) return "";
  const drawn = { ...chart, series };
  const totals = chart.kind === "stacked" ? runningTotals(drawn) : [];
  const tops = chart.kind === "stacked" ? totals.flat() : series.flatMap(({ values }) => values.filter(finite));
  const scale = scaleOf(chart.kind === "stacked" ? { ...drawn, low: 0 } : drawn, tops);
  const grid = scale.yTicks.map((value) => {
    const y = round(scale.y(value));
    return `<path d="M${left} ${y}H${width - right}" stroke="var(--grid)"/><text x="${left - 7}" y="${y + 3.5}" text-anchor="end">${tickText(value)}</text>`;
  });
  const axis = scale.xTicks.map(
    (step) => `<text x="${round(scale.x(step))}" y="${height - 6}" text-anchor="middle">${step}</text>`,
  );
  const marks = (chart.marks ?? []).map((step) => {
    const x = round(scale.x(step));
    return `<path d="M${x} ${top}V${height - bottom}" stroke="var(--warn)" stroke-dasharray="3 3"><title>alert at step ${step}</title></path>`;
  });
  const limits = (chart.limits ?? []).map(({ value, label }) => {
    const y = round(scale.y(value));
    return `<path d="M${left} ${y}H${width - right}" stroke="var(--soft)" stroke-dasharray="4 3"/><text x="${width - right}" y="${y - 4}" text-anchor="end">${escapeHtml(label)}</text>`;
  });
  const body =
    chart.kind === "stacked"
      ? stackedPaths(drawn, totals, scale)
      : series.map((one) => linePaths(one, chart.steps, scale)).join("");
  const legend = series.map(
    ({ name, color, faint }) =>
      `<span><span class="key" style="background:var(--c${color})${faint ? ";opacity:.45" : ""}"></span>${escapeHtml(name)}</span>`,
  );
  return `<figure class="card"><div class="figure-title">${escapeHtml(chart.title)}</div>
<div class="legend">${legend.join("")}</div>
<svg viewBox="0 0 ${width} ${height}" role="img" aria-label="${escapeHtml(`${chart.title}. ${spoken(drawn)}`)}">${grid.join("")}${body}${limits.join("")}${marks.join("")}${axis.join("")}</svg>
<figcaption>${escapeHtml(chart.caption)}</figcaption></figure>`;
}

export interface Estimate {
  name: string;
  estimate: number;
  low: number;
  high: number;
  color: number;
}

/** Estimates with their intervals on one axis from 0 to 1. */
export function intervalFigure(estimates: Estimate[], caption: string): string {
  const row = 46;
  const start = 64;
  const end = 424;
  const tall = estimates.length * row + 30;
  const x = (value: number) => round(start + value * (end - start));
  const grid = [0, 0.25, 0.5, 0.75, 1].map(
    (value) =>
      `<path d="M${x(value)} 4V${tall - 24}" stroke="var(--grid)"/><text x="${x(value)}" y="${tall - 8}" text-anchor="middle">${value}</text>`,
  );
  const rows = estimates.map(({ name, estimate, low, high, color }, index) => {
    const y = 26 + index * row;
    return `<text x="0" y="${y + 4}" style="font-size:13px">${escapeHtml(name)}</text>
<path d="M${x(low)} ${y}H${x(high)}" stroke="var(--c${color})" stroke-width="9" stroke-opacity="0.3" stroke-linecap="round"/>
<circle cx="${x(estimate)}" cy="${y}" r="5.5" fill="var(--c${color})"/>
<text x="${x(estimate)}" y="${y - 12}" text-anchor="middle" style="fill:var(--text)">${estimate.toFixed(3)}</text>`;
  });
  const spokenRows = estimates.map(
    ({ name, estimate, low, high }) =>
      `${name} ${estimate.toFixed(3)}, interval ${low.toFixed(3)} to ${high.toFixed(3)}`,
  );
  return `<figure><svg viewBox="0 0 440 ${tall}" role="img" aria-label="${escapeHtml(spokenRows.join("; "))}">${grid.join("")}${rows.join("")}</svg><figcaption>${escapeHtml(caption)}</figcaption></figure>`;
}
