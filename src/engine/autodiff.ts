/**
 * Reverse-mode differentiation of the expression graph: one vector-Jacobian product rule an operator.
 * Every rule is tested against central finite differences (`autodiff.test.ts`).
 */
import { type Dim, graphError, scalar, type Value } from "./graph.ts";
import * as ops from "./ops.ts";

/** Cotangent of the result to cotangents of the operands; `null` where an operand has no derivative. */
type VjpRule = (value: Value, cotangent: Value) => (Value | null)[];

function numberOf(value: Value, name: string): number {
  const attribute = value.attributes[name];
  return typeof attribute === "object" && "float" in attribute ? attribute.float : (attribute as number);
}

/** Sums a cotangent over the axes along which an operand was broadcast. */
function unbroadcast(cotangent: Value, shape: readonly Dim[]): Value {
  const extra = cotangent.shape.length - shape.length;
  let result = cotangent;
  if (extra > 0) {
    result = ops.reduceSum(
      result,
      Array.from({ length: extra }, (_, axis) => axis),
    );
  }
  const stretched = shape.flatMap((dim, axis) => (dim === 1 && result.shape[axis] !== 1 ? [axis] : []));
  return stretched.length > 0 ? ops.reduceSum(result, stretched, true) : result;
}

function matmulRule(value: Value, g: Value): (Value | null)[] {
  const [a, b] = value.inputs;
  const transA = numberOf(value, "transA") === 1;
  const transB = numberOf(value, "transB") === 1;
  const alpha = numberOf(value, "alpha");
  if (b.shape.length === 2 && a.shape.length > 2) {
    const rowsA = ops.flattenRows(a);
    const rowsG = ops.flattenRows(g);
    return [
      ops.matmul(g, b, { transB: !transB, alpha }),
      transB ? ops.matmul(rowsG, rowsA, { transA: true, alpha }) : ops.matmul(rowsA, rowsG, { transA: true, alpha }),
    ];
  }
  // Y = A·B: dA = G·Bᵀ, dB = Aᵀ·G; a transposed operand takes the transpose of that.
  const gradientA = transA
    ? ops.matmul(b, g, { transA: transB, transB: true, alpha })
    : ops.matmul(g, b, { transB: !transB, alpha });
  const gradientB = transB
    ? ops.matmul(g, a, { transA: true, transB: transA, alpha })
    : ops.matmul(a, g, { transA: !transA, alpha });
  return [unbroadcast(gradientA, a.shape), unbroadcast(gradientB, b.shape)];
}

/** Puts reduced axes back as 1, so that a cotangent broadcasts over what was reduced. */
function restoreAxes(value: Value, g: Value): Value {
  if (numberOf(value, "keep") === 1) return g;
  const axes = value.attributes.axes as number[];
  return ops.reshape(
    g,
    value.inputs[0].shape.map((dim, axis) => (axes.includes(axis) ? 1 : dim)),
  );
}

const RULES: Record<string, VjpRule> = {
  add: (y, g) => y.inputs.map((x) => unbroadcast(g, x.shape)),
  sub: (y, g) => [unbroadcast(g, y.inputs[0].shape), unbroadcast(ops.neg(g), y.inputs[1].shape)],
  mul: (y, g) => {
    const [a, b] = y.inputs;
    return [unbroadcast(ops.mul(g, b), a.shape), unbroadcast(ops.mul(g, a), b.shape)];
  },
  div: (y, g) => {
    const [a, b] = y.inputs;
    const ga = ops.div(g, b);
    return [unbroadcast(ga, a.shape), unbroadcast(ops.neg(ops.mul(ga, y)), b.shape)];
  },
  neg: (_, g) => [ops.neg(g)],
  exp: (y, g) => [ops.mul(g, y)],
  log: (y, g) => [ops.div(g, y.inputs[0])],
  sigmoid: (y, g) => [ops.mul(g, ops.sub(y, ops.mul(y, y)))],
  // silu'(x) = σ + x·σ·(1 − σ) = y + σ·(1 − y)
  silu: (y, g) => {
    const s = ops.sigmoid(y.inputs[0]);
    return [ops.mul(g, ops.add(y, ops.sub(s, ops.mul(s, y))))];
  },
  softmax: (y, g) => {
    const inner = ops.reduceSum(ops.mul(g, y), [-1], true);
    return [ops.mul(y, ops.sub(g, inner))];
  },
  logSoftmax: (y, g) => {
    const sum = ops.reduceSum(g, [-1], true);
    return [ops.sub(g, ops.mul(ops.softmax(y.inputs[0]), sum))];
  },
  matmul: matmulRule,
  transpose: (y, g) => {
    const permutation = y.attributes.permutation as number[];
    return [
      ops.transpose(
        g,
        permutation.map((_, axis) => permutation.indexOf(axis)),
      ),
    ];
  },
  reshape: (y, g) => [ops.reshape(g, y.inputs[0].shape)],
  reduceSum: (y, g) => {
    // Broadcasting by an addition to zeros of the operand's shape: x − x would spread NaN.
    const x = y.inputs[0];
    return [ops.add(ops.mul(x, scalar(0)), restoreAxes(y, g))];
  },
  reduceMean: (y, g) => {
    const axes = y.attributes.axes as number[];
    const count = axes.reduce((product, axis) => {
      const dim = y.inputs[0].shape[axis];
      if (typeof dim !== "number") throw graphError("reduceMean", "a fixed dimension to differentiate", String(dim));
      return product * dim;
    }, 1);
    const g1 = ops.mul(restoreAxes(y, g), scalar(1 / count));
    return [ops.add(ops.mul(y.inputs[0], scalar(0)), g1)];
  },
  concat: (y, g) => {
    const axis = numberOf(y, "axis");
    let from = 0;
    return y.inputs.map((x) => {
      const size = x.shape[axis];
      if (typeof size !== "number") throw graphError("concat", "fixed dimensions to differentiate", String(size));
      from += size;
      return ops.slice(g, axis, from - size, from);
    });
  },
  slice: (y, g) => {
    const [x] = y.inputs;
    const axis = numberOf(y, "axis");
    const size = x.shape[axis];
    if (typeof size !== "number") throw graphError("slice", "a fixed dimension to differentiate", String(size));
    const from = numberOf(y, "from") < 0 ? size + numberOf(y, "from") : numberOf(y, "from");
    const to = Math.min(size, numberOf(y, "to") < 0 ? size + numberOf(y, "to") : numberOf(y, "to"));
    const zeros = (a: number, b: number) => (b > a ? [ops.mul(ops.slice(x, axis, a, b), scalar(0))] : []);
    const parts = [...zeros(0, from), g, ...zeros(to, size)];
    return [parts.length === 1 ? g : ops.concat(parts, axis)];
  },
  // y = x̂·w with x̂ = r·x and r = 1/sqrt(mean(x²) + ε):  dx = r·(g·w − x̂·mean(g·w·x̂)),  dw = Σ g·x̂
  rmsNorm: (y, g) => {
    const [x, w] = y.inputs;
    const width = x.shape[x.shape.length - 1] as number;
    const scale = ops.rmsNormScale(x, w, numberOf(y, "epsilon"));
    const normed = ops.mul(x, scale);
    const gx = ops.mul(g, normed);
    // mean(g·w·x̂) is a product with the vector w / width, and Σ over rows one with a vector of ones.
    const inner = ops.matmul(gx, ops.reshape(ops.mul(w, scalar(1 / width)), [width, 1]));
    const dx = ops.mul(scale, ops.sub(ops.mul(g, w), ops.mul(normed, inner)));
    return [dx, ops.reduceSum(ops.flattenRows(gx), [0])];
  },
  // The rotation is orthogonal: its transpose turns the other way.
  rope: (y, g) => {
    const [, positions, cos, sin] = y.inputs;
    return [ops.rope(g, positions, cos, ops.neg(sin)), null, null, null];
  },
  gatherElement: (y, g) => {
    const [x, index] = y.inputs;
    return [ops.mul(ops.oneHot(index, x.shape[1] as number), g), null];
  },
};

/** Operators that have a derivative rule; the tests go through all of them. */
export const DIFFERENTIABLE: readonly string[] = Object.keys(RULES);

/**
 * Vector-Jacobian product: for results yᵢ with cotangents ȳᵢ, the cotangents Σᵢ ȳᵢ·∂yᵢ/∂x of the values `wrt`.
 * Throws `RLVR_GRAPH` where an operator on the way has no rule or nothing in `wrt` is reached.
 */
export function vjp(results: readonly { value: Value; cotangent: Value }[], wrt: readonly Value[]): Value[] {
  const wanted = new Set(wrt);
  const depends = new Map<Value, boolean>();
  const order: Value[] = [];
  const visit = (value: Value): boolean => {
    const known = depends.get(value);
    if (known !== undefined) return known;
    depends.set(value, false);
    let reached = wanted.has(value);
    for (const operand of value.inputs) reached = visit(operand) || reached;
    depends.set(value, reached);
    order.push(value);
    return reached;
  };
  const cotangents = new Map<Value, Value>();
  const accumulate = (value: Value, cotangent: Value) => {
    const before = cotangents.get(value);
    cotangents.set(value, before === undefined ? cotangent : ops.add(before, cotangent));
  };
  for (const { value, cotangent } of results) {
    visit(value);
    accumulate(value, cotangent);
  }
  for (let i = order.length - 1; i >= 0; i--) {
    const value = order[i];
    const cotangent = cotangents.get(value);
    if (cotangent === undefined || !depends.get(value) || value.inputs.length === 0) continue;
    const rule = RULES[value.op];
    if (rule === undefined) throw graphError("vjp", "an operator with a derivative", value.op);
    rule(value, cotangent).forEach((gradient, operand) => {
      if (gradient !== null && depends.get(value.inputs[operand])) accumulate(value.inputs[operand], gradient);
    });
  }
  return wrt.map((value) => {
    const cotangent = cotangents.get(value);
    if (cotangent === undefined)
      throw graphError("vjp", "results that depend on every value asked for", value.name ?? value.op);
    return cotangent;
  });
}
