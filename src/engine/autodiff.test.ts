import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { RandomStream } from "../base/random.ts";
import { DIFFERENTIABLE, vjp } from "./autodiff.ts";
import { compileGraph, constant, input, type Value } from "./graph.ts";
import * as ops from "./ops.ts";
import { type Feeds, floatTensor, intTensor, Session } from "./session.ts";

interface Case {
  shapes: Record<string, number[]>;
  build(x: Record<string, Value>): Value;
  /** Values are drawn from here; logarithms and divisions need positive ones. */
  positive?: boolean;
}

const positions = () => input("positions", [2, 3], "int64");
const tables = () => [constant(cosines(Math.cos), [4, 2]), constant(cosines(Math.sin), [4, 2])] as const;
function cosines(f: (x: number) => number): Float32Array {
  return Float32Array.from({ length: 8 }, (_, i) => f(Math.floor(i / 2) / 3 ** (i % 2)));
}

const CASES: Record<string, Case> = {
  add: { shapes: { a: [2, 3], b: [3] }, build: ({ a, b }) => ops.add(a, b) },
  sub: { shapes: { a: [2, 1, 3], b: [4, 1] }, build: ({ a, b }) => ops.sub(a, b) },
  mul: { shapes: { a: [2, 3], b: [2, 1] }, build: ({ a, b }) => ops.mul(ops.mul(a, b), a) },
  div: { shapes: { a: [2, 3], b: [1, 3] }, build: ({ a, b }) => ops.div(a, b), positive: true },
  neg: { shapes: { a: [3] }, build: ({ a }) => ops.neg(a) },
  exp: { shapes: { a: [5] }, build: ({ a }) => ops.exp(a) },
  log: { shapes: { a: [5] }, build: ({ a }) => ops.log(a), positive: true },
  sigmoid: { shapes: { a: [5] }, build: ({ a }) => ops.sigmoid(a) },
  silu: { shapes: { a: [2, 5] }, build: ({ a }) => ops.silu(a) },
  softmax: { shapes: { a: [2, 5] }, build: ({ a }) => ops.softmax(a) },
  logSoftmax: { shapes: { a: [2, 5] }, build: ({ a }) => ops.logSoftmax(a) },
  matmul: { shapes: { a: [2, 3, 4], b: [5, 4] }, build: ({ a, b }) => ops.matmul(a, b, { transB: true, alpha: 0.5 }) },
  transpose: { shapes: { a: [2, 3, 4] }, build: ({ a }) => ops.transpose(a, [1, 2, 0]) },
  reshape: { shapes: { a: [2, 6] }, build: ({ a }) => ops.reshape(a, [3, 4]) },
  reduceSum: { shapes: { a: [2, 3, 4] }, build: ({ a }) => ops.mul(a, ops.reduceSum(ops.mul(a, a), [1], true)) },
  reduceMean: { shapes: { a: [2, 3] }, build: ({ a }) => ops.reduceMean(ops.mul(a, a), [1]) },
  concat: { shapes: { a: [2, 3], b: [2, 2] }, build: ({ a, b }) => ops.concat([a, ops.mul(b, b)], 1) },
  slice: { shapes: { a: [2, 5] }, build: ({ a }) => ops.slice(ops.mul(a, a), 1, 1, -1) },
  rmsNorm: { shapes: { a: [2, 3, 8], w: [8] }, build: ({ a, w }) => ops.rmsNorm(a, w, 1e-3) },
  rope: { shapes: { a: [2, 2, 3, 4] }, build: ({ a }) => ops.rope(a, positions(), ...tables()) },
  gatherElement: {
    shapes: { a: [2, 5] },
    build: ({ a }) => ops.gatherElement(ops.mul(a, a), input("index", [2, 1], "int64")),
  },
};

/** Variants of one operator that take another branch of its rule. */
const VARIANTS: Record<string, Case> = {
  "a saved value": { shapes: { a: [2, 3] }, build: ({ a }) => ops.mul(ops.saved("kept", ops.mul(a, a)), a) },
  "matmul, batched": { shapes: { a: [2, 3, 4], b: [2, 4, 2] }, build: ({ a, b }) => ops.matmul(a, b) },
  "matmul, transposed both": {
    shapes: { a: [2, 4, 3], b: [2, 2, 4] },
    build: ({ a, b }) => ops.matmul(a, b, { transA: true, transB: true, alpha: 2 }),
  },
  "matmul, transposed A": { shapes: { a: [4, 3], b: [4, 2] }, build: ({ a, b }) => ops.matmul(a, b, { transA: true }) },
  "matmul, broadcast batch": {
    shapes: { a: [2, 3, 2, 4], b: [2, 1, 5, 4] },
    build: ({ a, b }) => ops.matmul(a, b, { transB: true }),
  },
  "matmul, rows times matrix": { shapes: { a: [2, 3, 4], b: [4, 5] }, build: ({ a, b }) => ops.matmul(a, b) },
  "reduceSum without kept axes": { shapes: { a: [2, 3] }, build: ({ a }) => ops.reduceSum(ops.mul(a, a), [0]) },
  "slice from the end": { shapes: { a: [2, 5] }, build: ({ a }) => ops.slice(a, 1, -2, null) },
};

const FIXED: Feeds = {
  positions: intTensor(BigInt64Array.from([0n, 1n, 2n, 1n, 2n, 3n]), [2, 3]),
  index: intTensor(BigInt64Array.from([3n, 1n]), [2, 1]),
};

const size = (shape: readonly (number | string)[]) => (shape as number[]).reduce((a, b) => a * b, 1);

async function check(testCase: Case): Promise<void> {
  const random = new RandomStream(7, "autodiff");
  const x = Object.fromEntries(Object.entries(testCase.shapes).map(([name, shape]) => [name, input(name, shape)]));
  const y = testCase.build(x);
  const cotangent = input("cotangent", y.shape);
  const names = Object.keys(x);
  const gradients = vjp(
    [{ value: y, cotangent }],
    names.map((name) => x[name]),
  );
  const forward = await Session.create(compileGraph({ y }, { recompute: true }), 1);
  const backward = await Session.create(
    compileGraph(Object.fromEntries(names.map((name, i) => [`d.${name}`, gradients[i]])), { recompute: true }),
    1,
  );
  const draw = () => (testCase.positive ? 0.5 + random.uniform() : random.normal());
  const values: Record<string, Float32Array> = {};
  for (const name of names) values[name] = Float32Array.from({ length: size(testCase.shapes[name]) }, draw);
  const feeds = (): Feeds => ({
    ...FIXED,
    ...Object.fromEntries(names.map((name) => [name, floatTensor(values[name], testCase.shapes[name])])),
  });
  const c = Float32Array.from({ length: size(y.shape) }, () => random.normal());
  const evaluate = async () => {
    const out = new Float32Array(c.length);
    await forward.run({ y: floatTensor(out, y.shape as number[]) }, feeds());
    return out.reduce((sum, value, i) => sum + value * c[i], 0);
  };
  const outputs: Feeds = {};
  for (const name of names)
    outputs[`d.${name}`] = floatTensor(new Float32Array(values[name].length), testCase.shapes[name]);
  await backward.run(outputs, feeds(), { cotangent: floatTensor(c, y.shape as number[]) });
  for (const name of names) {
    const analytic = outputs[`d.${name}`].data as Float32Array;
    for (let i = 0; i < analytic.length; i++) {
      const before = values[name][i];
      const step = 1e-2;
      values[name][i] = before + step;
      const above = await evaluate();
      values[name][i] = before - step;
      const below = await evaluate();
      values[name][i] = before;
      const numeric = (above - below) / (2 * step);
      // Central differences in float32: error about ε·|f| / step + step².
      expect(Math.abs(analytic[i] - numeric), `${name}[${i}]: ${analytic[i]} against ${numeric}`).toBeLessThan(
        5e-3 * (1 + Math.abs(numeric)),
      );
    }
  }
  await forward.close();
  await backward.close();
}

describe("vector-Jacobian products against finite differences", () => {
  it("has a case for every operator", () => {
    expect(Object.keys(CASES).sort()).toEqual([...DIFFERENTIABLE].sort());
  });
  it.each(Object.entries({ ...CASES, ...VARIANTS }))("%s", (_, testCase) => check(testCase));
});

describe("shapes", () => {
  const a = input("a", ["B", "L", 8]);

  it.each([
    [
      "matmul: expected inner dimensions that agree, got [B, L, 8] and [4, 7]",
      () => ops.matmul(a, input("b", [4, 7]), { transB: true }),
    ],
    ["add: expected shapes that are equal or broadcast, got [B, L, 8] and [5]", () => ops.add(a, input("b", [5]))],
    [
      "reshape: expected the same number of elements, got [B, L, 8] to [B, L, 3, 2]",
      () => ops.reshape(a, ["B", "L", 3, 2]),
    ],
    ["transpose: expected a permutation of 3 axes, got [0,1,1]", () => ops.transpose(a, [0, 1, 1])],
    ["rmsNorm: expected a weight for [B, L, 8], got [4]", () => ops.rmsNorm(a, input("w", [4]), 1e-5)],
  ])("%s", (message, build) => {
    expect(build).toThrow(message);
  });

  it("a value that does not depend on what is asked for is an error", () => {
    const other = input("other", [2]);
    expect(() => vjp([{ value: ops.exp(other), cotangent: other }], [a])).toThrow("depend on every value");
  });

  it("broadcasting follows NumPy for any pair of shapes made to broadcast", () => {
    const dims = fc.array(fc.integer({ min: 1, max: 4 }), { maxLength: 4 });
    fc.assert(
      fc.property(dims, fc.array(fc.boolean(), { minLength: 4, maxLength: 4 }), (shape, ones) => {
        const other = shape.map((dim, i) => (ones[i] ? 1 : dim));
        expect(ops.broadcastShape("test", shape, other)).toEqual(shape);
      }),
    );
  });
});
