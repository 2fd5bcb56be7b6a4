import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { fabricateRun } from "../../test/e2e/cli-fabricated-run.ts";
import { RunFolder, readRun } from "../runs/index.ts";
import { chartFigure, ticks, tickText } from "./chart.ts";
import { movingAverage } from "./curves.ts";
import { chooseExamples } from "./examples.ts";
import { renderReport } from "./html.ts";

let root: string;
let run: string;
beforeAll(async () => {
  root = mkdtempSync(join(tmpdir(), "rlvr-report-"));
  run = await fabricateRun(root, 20);
});
afterAll(() => rmSync(root, { recursive: true, force: true }));

describe("the report", () => {
  test("shows gain, curves, alerts, examples, contract and settings", () => {
    const html = renderReport(run);
    const { passAt1 } = readRun(run).evaluation("after") ?? { passAt1: { estimate: 0 } };
    expect(html).toContain(passAt1.estimate.toFixed(3));
    expect(html).toContain("Paired difference over the same tasks");
    for (const title of ["Reward", "Groups", "Entropy", "Length", "Visible pass, hidden fail", "Gradient norm"]) {
      expect(html).toContain(`<div class="figure-title">${title}</div>`);
    }
    expect(html).toContain("RLVR_ALERT_LOGPROB_GAP");
    expect(html).toContain("visible tests only");
    expect(html).toContain("how long the program is");
    expect(html).toContain("rollouts.promptsPerStep");
    expect(html).not.toContain("Clipped tokens"); // nothing was clipped
    expect(html).not.toMatch(/NaN|undefined|Infinity/);
  });

  test("loads nothing, and every picture has words and every opened element its end", () => {
    const html = renderReport(run);
    expect(html).not.toMatch(/<script|<link|<img|src=|url\(|@import|https?:/);
    expect(html.match(/<svg[^>]*role="img" aria-label="[^"]+"/g)).toHaveLength(html.match(/<svg/g)?.length ?? 0);
    for (const name of ["div", "figure", "svg", "table", "article", "details", "main", "section", "p"]) {
      const opened = html.match(new RegExp(`<${name}[ >]`, "g"))?.length ?? 0;
      expect([name, html.match(new RegExp(`</${name}>`, "g"))?.length ?? 0]).toEqual([name, opened]);
    }
  });

  test("keeps model text from becoming part of the page", () => {
    const folder = RunFolder.create({ root, name: "hostile", configPath: "", config: { steps: 1 }, manifest: {} });
    const completion = "</pre><script>alert(1)</script>";
    folder.appendMetrics(1, { "reward/mean": 0.5 });
    folder.writeRollouts(1, [
      { step: 1, taskId: "<b>", sample: 0, prompt: '"><i>', completion, outcome: "pass", score: 1 },
    ]);
    folder.close();
    const html = renderReport(folder.path);
    expect(html).not.toContain("<script>");
    expect(html).not.toContain("<i>");
    expect(html).toContain("&lt;script&gt;alert(1)");
  });

  test("works on a run that has only begun", () => {
    const folder = RunFolder.create({ root, name: "new", configPath: "", config: {}, manifest: {} });
    folder.close();
    expect(renderReport(folder.path)).toContain("No step is recorded yet.");
  });

  test("chooses the same examples each time, one of a task, hard-coded ones apart", () => {
    const examples = chooseExamples(readRun(run));
    expect(chooseExamples(readRun(run))).toEqual(examples);
    expect(examples.filter((example) => example.title === "visible tests only").length).toBeGreaterThan(0);
    const hardCoded = examples.filter((example) => example.title === "visible tests only");
    expect(hardCoded.every(({ record }) => record.components?.hidden === 0)).toBe(true);
    const tasks = hardCoded.map(({ record }) => record.taskId);
    expect(new Set(tasks).size).toBe(tasks.length);
  });
});

describe("charts", () => {
  test("have round ticks", () => {
    expect(ticks(0, 1)).toEqual([0, 0.25, 0.5, 0.75, 1]);
    expect(ticks(0.42, 0.68)).toEqual([0.5, 0.6]);
    expect(ticks(-3, 50, 5)).toEqual([0, 20, 40]);
    expect(ticks(2, 2)).toEqual([2]);
    expect([0, 0.25, 1e-6, 12000, 1234567].map(tickText)).toEqual(["0", "0.25", "1e-6", "12k", "1230k"]);
  });

  test("break a line where a value is missing, and draw a lone value as a point", () => {
    const chart = { title: "t", caption: "c", steps: [1, 2, 3, 4] };
    const broken = chartFigure({ ...chart, series: [{ name: "a", values: [1, null, 2, 3], color: 0 }] });
    expect(/<path d="(M[^"]*)" fill="none"/.exec(broken)?.[1].match(/M/g)).toHaveLength(2);
    const lone = chartFigure({ ...chart, series: [{ name: "a", values: [null, 5, null, null], color: 0 }] });
    expect(lone).toContain("<circle");
    expect(chartFigure({ ...chart, series: [{ name: "a", values: [null, null, null, null], color: 0 }] })).toBe("");
    for (const values of [
      [0, 0, 0, 0],
      [1e-9, 1, 2, 3],
      [-1, -1, -1, -1],
    ]) {
      const flat = chartFigure({
        ...chart,
        series: [{ name: "a", values, color: 0 }],
        logarithmic: values[0] === 1e-9,
      });
      expect(flat).not.toMatch(/NaN|Infinity/);
    }
  });

  test("average over what there is", () => {
    expect(movingAverage([1, 3, null, 5], 2)).toEqual([1, 2, 3, 5]);
    expect(movingAverage([null], 2)).toEqual([null]);
  });
});
