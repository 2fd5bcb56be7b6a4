/** A run folder with invented numbers of the kind a real run leaves, for tests of what reads one. */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { RandomStream } from "../../src/base/random.ts";
import { bootstrapMean } from "../../src/evaluate/intervals.ts";
import type { Evaluation } from "../../src/runs/events.ts";
import { makeManifest, type RolloutRecord, RunFolder } from "../../src/runs/index.ts";

const contract = {
  observes: "the completion as text, run in an isolated interpreter on the task's hidden inputs",
  extracts: "the whole completion as one JavaScript expression or arrow function",
  limits: { wallMs: 200, memoryMiB: 16, outputBytes: 65536 },
  doesNotCheck: ["how long the program is", "whether it would be right on inputs outside the generator's range"],
};

function evaluation(random: RandomStream, center: number): Evaluation {
  const perTask = Array.from({ length: 128 }, (_, index) => {
    const chance = Math.min(1, Math.max(0, center + 0.3 * random.normal()));
    const passed = Array.from({ length: 8 }, () => random.uniform() < chance).filter(Boolean).length;
    return { id: `test-${index}`, samples: 8, passed, difficulty: 2 + (index % 3) };
  });
  const passAt1 = bootstrapMean(
    perTask.map((task) => task.passed / 8),
    { seed: 1 },
  );
  const atLeastOne = bootstrapMean(
    perTask.map((task) => (task.passed > 0 ? 1 : 0)),
    { seed: 1 },
  );
  return { passAt1, tasks: 128, samplesPerTask: 8, perTask, passAtK: { 1: passAt1, 8: atLeastOne } };
}

function rollouts(random: RandomStream, step: number): RolloutRecord[] {
  const kinds: [outcome: string, completion: string, visible: number, hidden: number][] = [
    ["pass", "xs => xs.map(x => x * 2).filter(x => x > 5).sort((a, b) => b - a)", 1, 1],
    ["fail", "xs => [12, 8, 6]", 1, 0],
    ["fail", "xs => xs.map(x => x + 2).filter(x => x > 5)", 0, 0.2],
    ["invalid", "xs => xs.map(x => x * ", 0, 0],
  ];
  return Array.from({ length: 16 }, (_, index) => {
    const [outcome, completion, visible, hidden] = random.pick(kinds);
    return {
      step,
      taskId: `train-${step}-${index >> 2}`,
      sample: index % 4,
      prompt: "double each, keep those over 5, sort down\n[3, 6, 1, 4] -> [12, 8, 6]\n",
      completion,
      outcome,
      score: outcome === "pass" ? 1 : 0,
      components: { visible, hidden },
      advantage: random.normal(),
      tokens: 10 + random.integer(20),
      difficulty: 2 + random.integer(3),
    };
  });
}

/** Makes the run `transforms-001` under a folder; gives its path. */
export async function fabricateRun(root: string, steps = 50): Promise<string> {
  const random = new RandomStream(7, "fabricated");
  const run = RunFolder.create({
    root,
    prefix: "transforms",
    configPath: join(root, "rlvr.config.ts"),
    config: {
      model: "/models/base",
      seed: 1,
      steps,
      rollouts: { promptsPerStep: 32, groupSize: 8, maxTokens: 64 },
      optimizer: { learningRate: 1e-4 },
      alerts: { logprobGapWarn: 1e-3, logprobGapStop: 1e-1, collapseWindow: 10 },
    },
    manifest: makeManifest({ kind: "train", verifier: { name: "javascript", version: "1", contract }, seed: 1 }),
  });
  run.writeEvaluation("before", evaluation(random, 0.42));
  for (let step = 1; step <= steps; step++) {
    const share = step / steps;
    const noise = (size: number) => size * random.normal();
    const allPass = Math.max(0, Math.round(3 + 9 * share + noise(1.5)));
    const allFail = Math.max(0, Math.round(8 - 5 * share + noise(1.5)));
    run.appendMetrics(step, {
      "reward/mean": 0.42 + 0.25 * share + noise(0.035),
      "reward/std": 0.45,
      "groups/mixed": 32 - allPass - allFail,
      "groups/all-pass": allPass,
      "groups/all-fail": allFail,
      "verdicts/visible-pass-hidden-fail": Math.max(0, Math.round(9 - 6 * share + noise(2))),
      entropy: 0.62 - 0.28 * share + noise(0.015),
      "length/mean": 21,
      "length/right": 19 + noise(0.5),
      "length/wrong": 24 - 2 * share + noise(0.8),
      loss: noise(1e-4),
      "kl/k1": 0.02 * share + noise(0.002),
      "kl/k3": 0.03 * share * share + 0.0005,
      "clip/low": 0,
      "clip/high": 0,
      "optimizer/grad-norm": 0.8 - 0.3 * share + Math.abs(noise(0.12)),
      "logprob/gap": 10 ** (-5.3 + noise(0.2)),
      "tokens/generated": 5400,
      "time/generate": 1.4 + Math.abs(noise(0.1)),
      "time/verify": 0.15,
      "time/update": 1.1 + Math.abs(noise(0.05)),
      "time/total": 2.85,
    });
    if (step > steps - 3) run.writeRollouts(step, rollouts(random, step));
  }
  run.appendEvent({
    event: "alert",
    level: "warn",
    code: "RLVR_ALERT_LOGPROB_GAP",
    message: "expected decoding and training to agree within 0.001 nats a token, got 0.00140",
    step: 31,
    values: {},
  });
  run.writeEvaluation("after", evaluation(random, 0.66));
  await run.writeCheckpoint(steps, (folder) => writeFileSync(join(folder, "config.json"), "{}"), { keep: 1 });
  run.close();
  return run.path;
}
