import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { RandomStream } from "../base/random.ts";
import type { ModelConfig } from "../model/config.ts";
import { initialParameters } from "../model/parameters.ts";
import type { TokenSequence } from "./batch.ts";
import type { Divergence } from "./divergence.ts";
import { Training } from "./training.ts";
import { WeightStore } from "./weights.ts";

const VOCABULARY = 7;
const OPTIONS = { threads: 1, microBatchTokens: 16, activationBytes: 1e7 };

function config(changes: Partial<ModelConfig> = {}): ModelConfig {
  return {
    family: "llama",
    vocabularySize: VOCABULARY,
    hiddenSize: 8,
    intermediateSize: 12,
    layers: 2,
    heads: 2,
    keyValueHeads: 1,
    headDim: 4,
    maxPositions: 16,
    ropeTheta: 10000,
    ropeScaling: null,
    rmsNormEpsilon: 1e-6,
    tieEmbeddings: true,
    attentionBias: false,
    outputBias: false,
    mlpBias: false,
    queryKeyNorm: false,
    slidingWindow: null,
    // Far from uniform, so that the divergences are far from 0.
    initializerRange: 0.8,
    bosId: null,
    eosIds: [0],
    padId: 0,
    ...changes,
  };
}

const store = (of: ModelConfig, seed: number) => WeightStore.fromParameters(of, initialParameters(of, seed));
const teacherConfig = config({ hiddenSize: 12, layers: 1, tieEmbeddings: false, headDim: 6 });

const random = new RandomStream(5, "divergence");
const sequences: TokenSequence[] = [5, 3, 6].map((length, i) => ({
  tokens: Array.from({ length }, () => random.integer(VOCABULARY)),
  scoreFrom: 1 + (i % 2),
}));
const TEMPERATURE = 0.7;

let student: Training;
let teacher: Training;
const weights = store(config(), 1);
const theirs = store(teacherConfig, 2);
beforeAll(async () => {
  student = await Training.create(config(), OPTIONS);
  teacher = await Training.create(teacherConfig, OPTIONS);
  await student.setTeacher({ training: teacher, weights: theirs });
});
afterAll(async () => {
  await student.close();
  await teacher.close();
});

const scored = (divergence: Divergence, keep = false) =>
  student.logprobs(weights, sequences, { temperature: TEMPERATURE, keep, divergence });

/** log p(v | prefix) for every v and every scored place, by scoring each token of the vocabulary in its place. */
async function distributions(training: Training, of: WeightStore, size = VOCABULARY): Promise<number[][]> {
  const places = sequences.flatMap(({ tokens, scoreFrom }) =>
    Array.from(tokens)
      .slice(scoreFrom)
      .map((_, t) => Array.from(tokens).slice(0, scoreFrom + t)),
  );
  const all = places.flatMap((prefix) =>
    Array.from({ length: size }, (_, v) => ({ tokens: [...prefix, v], scoreFrom: prefix.length })),
  );
  const { logprobs } = await training.logprobs(of, all, { temperature: TEMPERATURE, keep: false });
  return places.map((_, i) => Array.from(logprobs.subarray(i * size, (i + 1) * size)));
}

const kl = (p: number[], q: number[]) => p.reduce((sum, logP, v) => sum + Math.exp(logP) * (logP - q[v]), 0);

/** The definition, in plain arithmetic. */
function expected(s: number[], t: number[], { kind, beta = 0.5 }: Divergence): number {
  if (kind === "forward-kl") return kl(t, s);
  if (kind === "reverse-kl") return kl(s, t);
  const mixture = s.map((logS, v) => Math.log((1 - beta) * Math.exp(logS) + beta * Math.exp(t[v])));
  return beta * kl(t, mixture) + (1 - beta) * kl(s, mixture);
}

const KINDS: Divergence[] = [
  { kind: "forward-kl" },
  { kind: "reverse-kl" },
  { kind: "jsd", beta: 0.5 },
  { kind: "jsd", beta: 0.1 },
];

describe("divergence from a teacher", () => {
  it.each(KINDS)("$kind $beta: the value is the sum over the vocabulary", async (divergence) => {
    const [s, t] = [await distributions(student, weights), await distributions(teacher, theirs)];
    const { divergences, logprobs, entropies, teacherLogprobs } = await scored(divergence);
    const targets = sequences.flatMap(({ tokens, scoreFrom }) => Array.from(tokens).slice(scoreFrom));
    expect(divergences).toHaveLength(targets.length);
    targets.forEach((token, i) => {
      expect(divergences?.[i]).toBeCloseTo(expected(s[i], t[i], divergence), 5);
      expect(logprobs[i]).toBeCloseTo(s[i][token], 5);
      expect(teacherLogprobs?.[i]).toBeCloseTo(t[i][token], 5);
      expect(entropies[i]).toBeCloseTo(-s[i].reduce((sum, x) => sum + Math.exp(x) * x, 0), 5);
    });
    expect(Math.min(...(divergences as Float32Array))).toBeGreaterThan(1e-3);
  });

  it.each(KINDS)("$kind $beta: the gradient agrees with finite differences", async (divergence) => {
    const { logprobs } = await scored(divergence, true);
    const c = Float32Array.from(logprobs, () => random.normal());
    const e = Float32Array.from(logprobs, () => random.normal());
    const gradients = new WeightStore(config());
    await student.backward(weights, gradients, { dLogprobs: c, dDivergences: e });
    const start = weights.flat.slice();
    const direction = start.map(() => random.normal());
    const value = async (step: number) => {
      for (let i = 0; i < start.length; i++) weights.flat[i] = start[i] + step * direction[i];
      const result = await scored(divergence);
      weights.flat.set(start);
      return result.logprobs.reduce((sum, x, i) => sum + x * c[i] + (result.divergences as Float32Array)[i] * e[i], 0);
    };
    const step = 1e-3;
    const numeric = ((await value(step)) - (await value(-step))) / (2 * step);
    const analytic = direction.reduce((sum, x, i) => sum + x * gradients.flat[i], 0);
    expect(Math.abs(analytic)).toBeGreaterThan(0.1);
    expect(Math.abs(numeric - analytic)).toBeLessThan(0.01 * (1 + Math.abs(analytic)));
  });

  it("the generalised divergence has forward and reverse KL as the limits of its ends, and there is equal to them", async () => {
    const [forward, reverse] = [await scored({ kind: "forward-kl" }), await scored({ kind: "reverse-kl" })];
    const mean = ({ divergences }: { divergences?: Float32Array }) =>
      (divergences as Float32Array).reduce((sum, value) => sum + value, 0) / (divergences as Float32Array).length;
    const off = async (near: number) => {
      const low = await scored({ kind: "jsd", beta: near });
      const high = await scored({ kind: "jsd", beta: 1 - near });
      return [Math.abs(mean(low) / near / mean(forward) - 1), Math.abs(mean(high) / near / mean(reverse) - 1)];
    };
    const [far, near] = [await off(1e-1), await off(1e-3)];
    for (const side of [0, 1]) {
      expect(near[side]).toBeLessThan(0.25);
      expect(near[side]).toBeLessThan(far[side] / 3);
    }
    expect((await scored({ kind: "jsd", beta: 0 })).divergences).toEqual(forward.divergences);
    expect((await scored({ kind: "jsd", beta: 1 })).divergences).toEqual(reverse.divergences);
  });

  it("is 0 for two equal models, and so is its gradient", async () => {
    await student.setTeacher({ training: student, weights });
    const { divergences } = await scored({ kind: "jsd", beta: 0.3 }, true);
    const zero = new Float32Array(divergences?.length ?? 0);
    const gradients = new WeightStore(config());
    await student.backward(weights, gradients, { dLogprobs: zero, dDivergences: zero.map(() => 1) });
    await student.setTeacher({ training: teacher, weights: theirs });
    for (const value of divergences as Float32Array) expect(Math.abs(value)).toBeLessThan(1e-6);
    for (const value of gradients.flat) expect(Math.abs(value)).toBeLessThan(1e-5);
  });

  it("stays finite where a model leaves a token no probability", async () => {
    const sharp = store(teacherConfig, 2);
    for (let i = 0; i < sharp.flat.length; i++) sharp.flat[i] *= 60;
    await student.setTeacher({ training: teacher, weights: sharp });
    for (const divergence of KINDS) {
      const { divergences } = await scored(divergence, true);
      const one = Float32Array.from(divergences as Float32Array, () => 1);
      const gradients = new WeightStore(config());
      await student.backward(weights, gradients, { dLogprobs: one, dDivergences: one });
      expect([...(divergences as Float32Array)].every(Number.isFinite)).toBe(true);
      expect([...gradients.flat].every(Number.isFinite)).toBe(true);
    }
    await student.setTeacher({ training: teacher, weights: theirs });
  });

  it("takes both over the smaller vocabulary where one model pads its own", async () => {
    const padded = config({ vocabularySize: VOCABULARY + 3, tieEmbeddings: false });
    const wide = store(padded, 4);
    const training = await Training.create(padded, OPTIONS);
    await student.setTeacher({ training, weights: wide });
    const s = await distributions(student, weights);
    const t = (await distributions(training, wide)).map((row) => {
      const total = Math.log(row.reduce((sum, x) => sum + Math.exp(x), 0));
      return row.map((x) => x - total);
    });
    const { divergences } = await scored({ kind: "reverse-kl" });
    divergences?.forEach((value, i) => {
      expect(value).toBeCloseTo(kl(s[i], t[i]), 5);
    });

    // The other way round: the student has ids that the teacher does not know.
    await training.setTeacher({ training: student, weights });
    const options = { temperature: TEMPERATURE, keep: true, divergence: { kind: "forward-kl" } as const };
    const result = await training.logprobs(wide, sequences, options);
    result.divergences?.forEach((value, i) => {
      expect(value).toBeCloseTo(kl(s[i], t[i]), 5);
    });
    const zero = new Float32Array(result.logprobs.length);
    const gradients = new WeightStore(padded);
    await training.backward(wide, gradients, { dLogprobs: zero, dDivergences: zero.map(() => 1) });
    const head = gradients.array(gradients.view("head"));
    expect(head.subarray(0, VOCABULARY * 8).some((x) => x !== 0)).toBe(true);
    expect(head.subarray(VOCABULARY * 8).every((x) => x === 0)).toBe(true);
    await training.close();
    await student.setTeacher({ training: teacher, weights: theirs });
  });

  it("the exact reverse KL's gradient is the mean of the sampled estimator's over the student's own tokens", async () => {
    // One place: Σ_v π(v)·(log π(v) − log T(v))·∇log π(v) is the gradient of KL(π‖T).
    const prefix = [3, 1, 4];
    const all = Array.from({ length: VOCABULARY }, (_, v) => ({ tokens: [...prefix, v], scoreFrom: prefix.length }));
    const options = { temperature: TEMPERATURE, keep: true };
    const { logprobs: s } = await student.logprobs(weights, all, options);
    const { logprobs: t } = await teacher.logprobs(theirs, all, { ...options, keep: false });
    const sampled = new WeightStore(config());
    await student.logprobs(weights, all, options);
    await student.backward(weights, sampled, { dLogprobs: s.map((x, v) => Math.exp(x) * (x - t[v])) });
    const exact = new WeightStore(config());
    await student.logprobs(weights, all.slice(0, 1), { ...options, divergence: { kind: "reverse-kl" } });
    await student.backward(weights, exact, { dLogprobs: Float32Array.of(0), dDivergences: Float32Array.of(1) });
    exact.flat.forEach((value, i) => {
      expect(sampled.flat[i]).toBeCloseTo(value, 4);
    });
  });

  it("refuses cotangents that do not belong to what was asked for", async () => {
    const one = (n: number) => new Float32Array(n).fill(1);
    const { logprobs } = await scored({ kind: "forward-kl" }, true);
    const gradients = new WeightStore(config());
    const n = logprobs.length;
    await expect(student.backward(weights, gradients, { dLogprobs: one(n) })).rejects.toThrow("cotangents of div");
    await student.logprobs(weights, sequences, { temperature: 1, keep: true });
    const both = { dLogprobs: one(n), dDivergences: one(n) };
    await expect(student.backward(weights, gradients, both)).rejects.toThrow("no cotangents of div");
    const alone = await Training.create(config(), OPTIONS);
    const options = { temperature: 1, keep: false, divergence: { kind: "forward-kl" } as const };
    await expect(alone.logprobs(weights, sequences, options)).rejects.toThrow("expected a teacher");
    await alone.close();
  });
});
