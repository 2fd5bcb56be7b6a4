import { describe, expect, test } from "vitest";
import type { Evaluation } from "../runs/events.ts";
import { bar, duration, interval, oneLine, short, sparkline } from "./format.ts";
import { Progress, type Screen } from "./progress.ts";
import { brief } from "./train.ts";

function screen(live: boolean): Screen & { text: string } {
  const made = {
    text: "",
    columns: 100,
    live,
    color: false,
    write: (text: string) => {
      made.text += text;
    },
  };
  return made;
}

const metrics = {
  "reward/mean": 0.6204,
  "groups/mixed": 20,
  "groups/all-pass": 7,
  "groups/all-fail": 5,
  entropy: 0.4213,
  "time/total": 2.84,
};
const evaluation = (estimate: number): Evaluation => ({
  passAt1: { estimate, low: estimate - 0.05, high: estimate + 0.05 },
  tasks: 2,
  samplesPerTask: 8,
  perTask: [
    { id: "a", samples: 8, passed: Math.round(8 * estimate) },
    { id: "b", samples: 8, passed: Math.round(8 * estimate) },
  ],
});

describe("progress", () => {
  test("without a terminal is one plain line a step", () => {
    const plain = screen(false);
    const progress = new Progress(plain);
    progress.handle({ event: "step", step: 1, steps: 50, metrics, etaSeconds: 139 });
    progress.handle({ event: "progress", phase: "evaluate before", done: 1, total: 2 });
    progress.handle({ event: "step", step: 50, steps: 50, metrics: { loss: 1.25 }, etaSeconds: 0 });
    expect(plain.text).toBe(
      "step 1/50  reward 0.620  mixed 20/32  entropy 0.421  2.8 s  eta 2m 19s\nstep 50/50  loss 1.250\n",
    );
  });

  test("on a terminal redraws one line, which what stays is printed above", () => {
    const live = screen(true);
    const progress = new Progress(live);
    progress.handle({ event: "step", step: 1, steps: 50, metrics, etaSeconds: 139 });
    progress.handle({
      event: "step",
      step: 2,
      steps: 50,
      metrics: { ...metrics, "reward/mean": 0.7 },
      etaSeconds: 100,
    });
    expect(live.text).not.toContain("\n");
    expect(live.text).toContain("2/50  eta 1m 40s  reward 0.700 ▁█");
    const alert = { level: "return", code: "RLVR_ALERT_COLLAPSE", message: "m", step: 2, values: {} } as const;
    progress.handle({ event: "alert", ...alert });
    const alertAt = live.text.indexOf("\x1b[2Kreturn  step 2  RLVR_ALERT_COLLAPSE: m\n");
    expect(alertAt).toBeGreaterThan(0);
    expect(live.text.indexOf("2/50", alertAt)).toBeGreaterThan(alertAt);
    progress.handle({ event: "step", step: 10, steps: 50, metrics, etaSeconds: 90 });
    expect(live.text).toContain("\x1b[2Kstep 10/50  reward 0.620");
    progress.clear();
    expect(live.text.endsWith("\r\x1b[2K")).toBe(true);
    for (const line of live.text.split(/[\r\n]/)) expect(line.length).toBeLessThan(105);
  });

  test("tells run, contract and plan first, and the gain and the next command last", () => {
    const plain = screen(false);
    const progress = new Progress(plain);
    const contract = { observes: "o", extracts: "e", limits: { wallMs: 200 }, doesNotCheck: ["style"] };
    progress.handle({ event: "start", run: "runs/a-001", config: {}, contract, verifier: "v 1", resumedFrom: 20 });
    progress.handle({ event: "plan", steps: 50, values: { parameters: 1_012_736, threads: 2, model: "llama" } });
    progress.summary({ before: evaluation(0.25), after: evaluation(0.75) }, ["next: rlvr eval runs/a-001"]);
    const lines = plain.text.trimEnd().split("\n");
    expect(lines[0]).toBe("rlvr runs/a-001, continued from step 20");
    expect(plain.text).toContain("limits    wallMs 200\nunchecked style\n");
    expect(plain.text).toContain("50 steps, parameters 1,012,736, threads 2, model llama");
    expect(plain.text).toContain("gain            +0.500 [+0.500, +0.500]");
    expect(lines.at(-1)).toBe("next: rlvr eval runs/a-001");
  });
});

test("the evaluation of a done line has its three keys and no others", () => {
  expect(Object.keys(brief(evaluation(0.5)))).toEqual(["passAt1", "tasks", "samplesPerTask"]);
  expect(brief(null)).toBeNull();
});

test("small texts", () => {
  expect([0.52, 8.04, 59.4, 125, 3720, Number.POSITIVE_INFINITY].map(duration)).toEqual([
    "0.5 s",
    "8.0 s",
    "59 s",
    "2m 05s",
    "1h 02m",
    "?",
  ]);
  expect([0, 5, 0.12345, 12.345, 123.4, 1.5e-5, 2.5e7 + 0.5].map(short)).toEqual([
    "0",
    "5",
    "0.123",
    "12.3",
    "123",
    "1.5e-5",
    "2.5e+7",
  ]);
  expect(sparkline([0, 1, 2, 3], 3)).toBe("▁▅█");
  expect(sparkline([2, 2], 5)).toBe("▁▁");
  expect(bar(1, 2, 4)).toBe("██░░");
  expect(bar(0, 0, 2)).toBe("░░");
  expect(oneLine("a\n  b c", 4)).toBe("a b…");
  expect(interval({ estimate: 0.5, low: 0.25, high: 0.75 })).toBe("0.500 [0.250, 0.750]");
});
