import type { RunView } from "../runs/read.ts";
import type { RolloutRecord } from "../runs/records.ts";
import { escapeHtml } from "./page.ts";

interface Example {
  title: string;
  record: RolloutRecord;
}

/** True for an attempt that only knows the visible tests. */
export function isHardCoded(record: RolloutRecord): boolean {
  const { visible, hidden } = record.components ?? {};
  return visible === 1 && hidden !== undefined && hidden < 1;
}

/** One record of each task at most, the first by `order`, as many as asked for. */
function pick(
  records: RolloutRecord[],
  count: number,
  order: (a: RolloutRecord, b: RolloutRecord) => number,
): RolloutRecord[] {
  const seen = new Set<string>();
  const sorted = records
    .slice()
    .sort((a, b) => order(a, b) || b.step - a.step || a.taskId.localeCompare(b.taskId) || a.sample - b.sample);
  return sorted.filter((record) => !seen.has(record.taskId) && seen.add(record.taskId)).slice(0, count);
}

/** Rollouts worth reading: right answers to hard tasks, wrong ones, hard-coded ones. The same run gives the same ones. */
export function chooseExamples(run: RunView): Example[] {
  // The last steps show the policy as it became; a long run is not read whole.
  const records = run
    .rolloutSteps()
    .slice(-8)
    .flatMap((step) => run.rollouts(step));
  const hardest = (a: RolloutRecord, b: RolloutRecord) =>
    (b.difficulty ?? 0) - (a.difficulty ?? 0) || b.prompt.length - a.prompt.length;
  const worst = (a: RolloutRecord, b: RolloutRecord) => a.score - b.score || hardest(b, a);
  const right = records.filter((record) => record.outcome === "pass");
  const hardCoded = records.filter(isHardCoded);
  const wrong = records.filter((record) => record.outcome === "fail" && !isHardCoded(record));
  const invalid = records.filter((record) => record.outcome === "invalid");
  const titled = (title: string, found: RolloutRecord[]) => found.map((record) => ({ title, record }));
  return [
    ...titled("right, hardest task", pick(right, 2, hardest)),
    ...titled("visible tests only", pick(hardCoded, 2, hardest)),
    ...titled("wrong, easiest task", pick(wrong, 2, worst)),
    ...titled("no answer", pick(invalid, 1, hardest)),
  ];
}

function exampleCard({ title, record }: Example): string {
  const look = record.outcome === "pass" ? "good" : isHardCoded(record) ? "warn" : "bad";
  const facts = [
    `step ${record.step}`,
    `task ${record.taskId}`,
    record.difficulty === undefined ? "" : `difficulty ${record.difficulty}`,
    record.tokens === undefined ? "" : `${record.tokens} tokens`,
    record.limit ? `limit ${record.limit}` : "",
    typeof record.advantage === "number" ? `advantage ${record.advantage.toFixed(2)}` : "",
  ].filter(Boolean);
  const components = Object.entries(record.components ?? {}).map(
    ([name, value]) => `${name} ${Number(value.toFixed(3))}`,
  );
  return `<article class="card"><div class="example-head"><span class="tag ${look}">${escapeHtml(record.outcome)}</span><b>${escapeHtml(
    title,
  )}</b></div><div class="soft small">${escapeHtml(facts.join(" · "))}</div>
<div class="label">prompt</div><pre>${escapeHtml(record.prompt)}</pre>
<div class="label">completion</div><pre>${escapeHtml(record.completion)}</pre>
<div class="label">score ${Number(record.score.toFixed(3))}${components.length ? ` · ${escapeHtml(components.join(" · "))}` : ""}</div></article>`;
}

/** The examples of a run as cards; empty where no rollouts were kept. */
export function exampleCards(run: RunView): string {
  const examples = chooseExamples(run);
  return examples.length > 0 ? `<div class="examples">${examples.map(exampleCard).join("")}</div>` : "";
}
