/** `report.html` of a run: what was gained and what it is worth, in one file that opens anywhere. */
import { basename } from "node:path";
import { pairedGain } from "../evaluate/intervals.ts";
import type { Alert, Evaluation, RecordedContract } from "../runs/events.ts";
import { type RunView, readRun } from "../runs/read.ts";
import { type Estimate, intervalFigure } from "./chart.ts";
import { curves, metricsTable, timeTable } from "./curves.ts";
import { exampleCards } from "./examples.ts";
import { dataTable, definitionTable, escapeHtml, page } from "./page.ts";

const signed = (value: number) => `${value >= 0 ? "+" : "−"}${Math.abs(value).toFixed(3)}`;

/** What the two evaluations show, in words that go no further than the numbers. */
function verdictOn(before: Evaluation, after: Evaluation): string {
  const [first, second] = [before.passAt1, after.passAt1];
  if (first.low === first.high || second.low === second.high) {
    return "Every task gave the same share: an interval without width says nothing about the spread.";
  }
  const apart = second.low > first.high || second.high < first.low;
  return apart
    ? "The intervals do not overlap."
    : "The intervals overlap: this evaluation alone does not show a change.";
}

function gainText(before: Evaluation, after: Evaluation): string {
  const paired = pairedGain(before, after);
  const gain = after.passAt1.estimate - before.passAt1.estimate;
  const range = paired ? ` [${signed(paired.low)}, ${signed(paired.high)}]` : "";
  const how = paired ? "Paired difference over the same tasks, 95 % interval. " : "";
  // Coloured only where the interval leaves 0 out.
  const look = paired && paired.low > 0 ? "up" : paired && paired.high < 0 ? "down" : "";
  return `<p class="gain"><b class="${look}">${signed(gain)}</b>${range}</p><p class="soft small">${how}${verdictOn(before, after)}</p>`;
}

function headline(before: Evaluation | null, after: Evaluation | null): string {
  const known = after ?? before;
  if (!known) return "";
  const both = before && after;
  const big = both
    ? `${before.passAt1.estimate.toFixed(3)}<span class="arrow">→</span>${after.passAt1.estimate.toFixed(3)}`
    : known.passAt1.estimate.toFixed(3);
  const estimates: Estimate[] = [];
  if (before) estimates.push({ name: "before", ...before.passAt1, color: 3 });
  if (after) estimates.push({ name: "after", ...after.passAt1, color: 0 });
  const said = `pass@1 on ${known.tasks} untouched tasks, ${known.samplesPerTask} samples each; 95 % intervals by bootstrap over tasks.`;
  return `<div class="card headline"><div><div class="big">${big}</div>${both ? gainText(before, after) : `<p class="soft">pass@1 ${after ? "after" : "before"} training</p>`}</div>${intervalFigure(estimates, said)}</div>`;
}

function passAtKSection(before: Evaluation | null, after: Evaluation | null): string {
  const ks = Object.keys(after?.passAtK ?? before?.passAtK ?? {});
  if (ks.length < 2) return "";
  const cell = (evaluation: Evaluation | null, k: string) => {
    const found = evaluation?.passAtK?.[k];
    return found ? `${found.estimate.toFixed(3)} [${found.low.toFixed(3)}, ${found.high.toFixed(3)}]` : "–";
  };
  const largest = ks[ks.length - 1];
  const grown = (after?.passAtK?.[largest]?.low ?? 0) > (before?.passAtK?.[largest]?.high ?? 1);
  const wording =
    before && after && !grown && after.passAt1.low > before.passAt1.high
      ? `<p class="soft small">pass@${escapeHtml(largest)} did not clearly rise: read a better pass@1 as sharper sampling of what the model could already do, not as a new capability.</p>`
      : "";
  const rows = ks.map((k) => [`pass@${k}`, cell(before, k), cell(after, k)]);
  return `<h2>At least one of k samples passes</h2><div class="card">${dataTable(["", "before", "after"], rows)}${wording}</div>`;
}

function alertSection(alerts: Alert[]): string {
  if (alerts.length === 0) return "";
  const rows = alerts.map(({ step, level, code, message }) => [step, level, code, message]);
  return `<h2>Alerts</h2><div class="card scroll" tabindex="0">${dataTable(["step", "level", "code", "what"], rows)}</div>`;
}

function contractSection(run: RunView): string {
  const start = run.events().find((event) => event.event === "start");
  const verifier = (run.manifest.verifier ?? {}) as { name?: string; version?: string; contract?: RecordedContract };
  const contract = verifier.contract ?? (start?.contract as RecordedContract | undefined);
  if (!contract) return "";
  const name = verifier.name ? `${verifier.name} ${verifier.version ?? ""}` : String(start?.verifier ?? "");
  const rows: [string, string][] = [
    ["observes", contract.observes],
    ["extracts", contract.extracts],
    [
      "limits",
      Object.entries(contract.limits ?? {})
        .map(([key, value]) => `${key} ${value}`)
        .join(", ") || "none",
    ],
    ["does not check", contract.doesNotCheck?.join("; ") || "nothing named"],
  ];
  return `<h2>What the verifier promises</h2><div class="card">${definitionTable(name ? [["verifier", name], ...rows] : rows)}</div>`;
}

function flatten(value: unknown, path = ""): [string, string][] {
  if (typeof value !== "object" || value === null) return [[path, String(value)]];
  return Object.entries(value).flatMap(([key, inner]) => flatten(inner, path ? `${path}.${key}` : key));
}

function settingsSection(run: RunView): string {
  const { verifier: _said, ...manifest } = run.manifest;
  return `<h2>Settings and origin</h2><div class="pair"><div class="card"><details open><summary>Settings</summary><div class="scroll small" tabindex="0">${definitionTable(
    flatten(run.config),
  )}</div></details></div><div class="card"><details open><summary>Made with</summary><div class="scroll small" tabindex="0">${definitionTable(
    flatten(manifest),
  )}</div></details></div></div>`;
}

/**
 * The report of a run folder as one HTML text: no script, nothing loaded from elsewhere.
 * Works on a run that is under way or was interrupted. Throws `RLVR_RUN_MISSING`, `RLVR_RUN_DAMAGED`.
 */
export function renderReport(runFolder: string): string {
  const run = readRun(runFolder);
  const metrics = run.metrics();
  const events = run.events();
  const recorded = (when: string) =>
    (events.findLast((event) => event.event === "evaluation" && event.when === when)?.evaluation ??
      null) as Evaluation | null;
  const before = run.evaluation("before") ?? recorded("before");
  const after = run.evaluation("after") ?? recorded("after");
  const alerts = events.filter((event) => event.event === "alert") as unknown as Alert[];
  const settings = (run.config.alerts ?? {}) as {
    logprobGapWarn?: number;
    logprobGapStop?: number;
    collapseWindow?: number;
  };
  const name = basename(run.path);
  const isSft = run.manifest.kind === "sft";
  const { steps } = (isSft ? (run.config.sft ?? {}) : run.config) as { steps?: number };
  const examples = exampleCards(run);
  const seconds = metrics.reduce((sum, record) => sum + (record["time/total"] ?? 0), 0);
  const notes = [
    isSft || metrics.length === 0
      ? ""
      : "The loss is not drawn: it is about 0 on the first update of a step, where every ratio is 1.",
    alerts.length > 0 && metrics.length > 0 ? "Dashed vertical lines mark alerts." : "",
  ].filter(Boolean);
  const facts = [
    `${metrics.at(-1)?.step ?? 0} of ${steps ?? "?"} steps`,
    seconds > 0 ? `${(seconds / 60).toFixed(1)} minutes of training` : "",
    `seed ${run.config.seed ?? "?"}`,
    typeof run.config.model === "string" ? `model ${basename(run.config.model)}` : "",
  ].filter(Boolean);
  const body = [
    `<header><h1>${escapeHtml(name)}</h1><p class="soft">${escapeHtml(facts.join(" · "))}</p></header>`,
    headline(before, after),
    alertSection(alerts),
    `<h2>Training</h2>${notes.length > 0 ? `<p class="soft small">${notes.join(" ")}</p>` : ""}`,
    metrics.length > 0
      ? curves(metrics, {
          kind: isSft ? "sft" : "train",
          marks: alerts.map((alert) => alert.step),
          averageOver: Math.min(settings.collapseWindow ?? 10, 10),
          warn: settings.logprobGapWarn,
          stop: settings.logprobGapStop,
        })
      : `<p class="soft">No step is recorded yet.</p>`,
    metrics.length > 0 ? `<div style="margin-top:12px">${metricsTable(metrics)}</div>` : "",
    passAtKSection(before, after),
    examples ? `<h2>Completions of the last steps</h2>${examples}` : "",
    contractSection(run),
    isSft || !timeTable(metrics) ? "" : `<h2>Time</h2><div class="card">${timeTable(metrics)}</div>`,
    settingsSection(run),
  ];
  return page(`rlvr: ${name}`, body.filter(Boolean).join("\n"));
}
