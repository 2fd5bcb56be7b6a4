/**
 * The operators of the engine: each checks its operands' shapes and says how it is written in ONNX.
 * Derivatives are in `autodiff.ts`, one rule an operator.
 *
 * Linear layers keep Hugging Face's weight layout [out, in], so a layer is `matmul(x, w, { transB: true })`.
 * Operators of the domain com.microsoft are ONNX Runtime's own; where one fuses several passes over memory it is used.
 */
import { type Attribute, type Dim, graphError, type OnnxConstant, shapeText, type Value } from "./graph.ts";

const MICROSOFT = "com.microsoft";

function ints(values: readonly number[]): OnnxConstant {
  return { type: "int64", dims: [values.length], data: BigInt64Array.from(values, BigInt) };
}

function make(
  op: string,
  inputs: readonly Value[],
  shape: readonly Dim[],
  onnx: Value["onnx"],
  attributes: Record<string, Attribute> = {},
): Value {
  return { op, inputs, shape, type: inputs[0].type, attributes, onnx };
}

/** Shape of an elementwise operation: dimensions are equal, or one of them is 1. */
export function broadcastShape(op: string, a: readonly Dim[], b: readonly Dim[]): Dim[] {
  const rank = Math.max(a.length, b.length);
  return Array.from({ length: rank }, (_, i) => {
    const x = a[i - rank + a.length] ?? 1;
    const y = b[i - rank + b.length] ?? 1;
    if (x !== y && x !== 1 && y !== 1) {
      throw graphError(op, "shapes that are equal or broadcast", `${shapeText(a)} and ${shapeText(b)}`);
    }
    return x === 1 ? y : x;
  });
}

function binary(op: string, onnxOp: string): (a: Value, b: Value) => Value {
  return (a, b) => make(op, [a, b], broadcastShape(op, a.shape, b.shape), { op: onnxOp });
}

function unary(op: string, onnxOp: string): (x: Value) => Value {
  return (x) => make(op, [x], x.shape, { op: onnxOp });
}

export const add = binary("add", "Add");
export const sub = binary("sub", "Sub");
export const mul = binary("mul", "Mul");
export const div = binary("div", "Div");
export const neg = unary("neg", "Neg");
export const exp = unary("exp", "Exp");
export const log = unary("log", "Log");
export const sigmoid = unary("sigmoid", "Sigmoid");

/** x · sigmoid(x), in one pass (QuickGelu with α = 1). */
export function silu(x: Value): Value {
  return make("silu", [x], x.shape, { op: "QuickGelu", domain: MICROSOFT, attributes: { alpha: { float: 1 } } });
}

/** Softmax over the last axis. */
export function softmax(x: Value): Value {
  return make("softmax", [x], x.shape, { op: "Softmax", attributes: { axis: -1 } });
}

/** Logarithm of the softmax over the last axis. */
export function logSoftmax(x: Value): Value {
  return make("logSoftmax", [x], x.shape, { op: "LogSoftmax", attributes: { axis: -1 } });
}

export interface MatmulOptions {
  transA?: boolean;
  transB?: boolean;
  /** Factor of the product. */
  alpha?: number;
}

/**
 * alpha · A·B over the last two axes, each transposed where asked. The axes before them are equal or broadcast;
 * a two-dimensional B multiplies every row of an A of any rank.
 */
export function matmul(a: Value, b: Value, options: MatmulOptions = {}): Value {
  const { transA = false, transB = false, alpha = 1 } = options;
  if (a.shape.length < 2 || b.shape.length < 2) {
    throw graphError("matmul", "operands of rank 2 or more", `${shapeText(a.shape)} and ${shapeText(b.shape)}`);
  }
  if (transA && b.shape.length === 2 && a.shape.length > 2) {
    throw graphError("matmul", "a two-dimensional A with transA and a two-dimensional B", shapeText(a.shape));
  }
  const [m, ka] = lastTwo(a.shape, transA);
  const [kb, n] = lastTwo(b.shape, transB);
  if (ka !== kb) {
    throw graphError("matmul", "inner dimensions that agree", `${shapeText(a.shape)} and ${shapeText(b.shape)}`);
  }
  const batch = broadcastShape("matmul", a.shape.slice(0, -2), b.shape.slice(0, -2));
  const plain = !transA && !transB && alpha === 1;
  return make(
    "matmul",
    [a, b],
    [...batch, m, n],
    plain
      ? { op: "MatMul" }
      : {
          op: "FusedMatMul",
          domain: MICROSOFT,
          attributes: { transA: Number(transA), transB: Number(transB), alpha: { float: alpha } },
        },
    { transA: Number(transA), transB: Number(transB), alpha: { float: alpha } },
  );
}

function lastTwo(shape: readonly Dim[], swap: boolean): [Dim, Dim] {
  const rows = shape[shape.length - 2];
  const columns = shape[shape.length - 1];
  return swap ? [columns, rows] : [rows, columns];
}

/** Reorders axes: axis i of the result is axis `permutation[i]` of x. */
export function transpose(x: Value, permutation: readonly number[]): Value {
  if (permutation.length !== x.shape.length || new Set(permutation).size !== permutation.length) {
    throw graphError("transpose", `a permutation of ${x.shape.length} axes`, `[${permutation.join()}]`);
  }
  const shape = permutation.map((axis) => x.shape[axis]);
  return make("transpose", [x], shape, { op: "Transpose", attributes: { perm: permutation } }, { permutation });
}

/** Same elements in another shape; at most one dimension that is not fixed or in its old place. */
export function reshape(x: Value, shape: readonly Dim[]): Value {
  let unknown = 0;
  const target = shape.map((dim, i) => {
    if (typeof dim === "number") return dim;
    if (dim === x.shape[i]) return 0;
    unknown++;
    return -1;
  });
  const fixed = (dims: readonly Dim[]) =>
    dims.reduce<number>((product, dim) => product * (typeof dim === "number" ? dim : 1), 1);
  const symbols = (dims: readonly Dim[]) => dims.filter((dim) => typeof dim === "string").length;
  if (unknown > 1 || (symbols(shape) === 0 && symbols(x.shape) > 0)) {
    throw graphError("reshape", "at most one dimension to be inferred", `${shapeText(x.shape)} to ${shapeText(shape)}`);
  }
  if (symbols(shape) === symbols(x.shape) && fixed(shape) !== fixed(x.shape)) {
    throw graphError("reshape", "the same number of elements", `${shapeText(x.shape)} to ${shapeText(shape)}`);
  }
  return make("reshape", [x], shape, { op: "Reshape", constants: [ints(target)] });
}

/** All axes but the last as one: [..., n] to [rows, n]. */
export function flattenRows(x: Value): Value {
  if (x.shape.length === 2) return x;
  const rows = x.shape.slice(0, -1);
  const dim = rows.every((d) => typeof d === "number") ? (rows as number[]).reduce((a, b) => a * b, 1) : rows.join("*");
  return reshape(x, [dim, x.shape[x.shape.length - 1]]);
}

/** Sum over axes; with `keep`, they stay as 1. */
export function reduceSum(x: Value, axes: readonly number[], keep = false): Value {
  return reduction("reduceSum", "ReduceSum", x, axes, keep);
}

/** Mean over axes; with `keep`, they stay as 1. */
export function reduceMean(x: Value, axes: readonly number[], keep = false): Value {
  return reduction("reduceMean", "ReduceMean", x, axes, keep);
}

function reduction(op: string, onnxOp: string, x: Value, axes: readonly number[], keep: boolean): Value {
  const rank = x.shape.length;
  const positive = axes.map((axis) => (axis < 0 ? axis + rank : axis));
  if (positive.some((axis) => axis < 0 || axis >= rank)) {
    throw graphError(op, `axes of ${shapeText(x.shape)}`, `[${axes.join()}]`);
  }
  const shape = keep
    ? x.shape.map((dim, axis) => (positive.includes(axis) ? 1 : dim))
    : x.shape.filter((_, axis) => !positive.includes(axis));
  return make(
    op,
    [x],
    shape,
    { op: onnxOp, attributes: { keepdims: Number(keep) }, constants: [ints(positive)] },
    { axes: positive, keep: Number(keep) },
  );
}

/** Joins along an axis. The dimension there is the sum, so it must be known, or be named by the caller. */
export function concat(values: readonly Value[], axis: number, dim?: Dim): Value {
  const dims = values.map((value) => value.shape[axis]);
  const total =
    dim ?? (dims.every((d) => typeof d === "number") ? (dims as number[]).reduce((a, b) => a + b, 0) : undefined);
  if (total === undefined) throw graphError("concat", "fixed dimensions or a name for their sum", `[${dims.join()}]`);
  const shape = values[0].shape.map((d, i) => (i === axis ? total : d));
  return make("concat", values, shape, { op: "Concat", attributes: { axis } }, { axis });
}

/** Elements `from` to `to` (exclusive; negative counts from the end; null: to the end) of an axis. */
export function slice(x: Value, axis: number, from: number, to: number | null, dim?: Dim): Value {
  const size = x.shape[axis];
  const at = (i: number) => (i < 0 ? (size as number) + i : i);
  const length = dim ?? (typeof size === "number" ? (to === null ? size : at(to)) - at(from) : undefined);
  if (length === undefined)
    throw graphError("slice", "a fixed dimension or a name for the new one", shapeText(x.shape));
  const shape = x.shape.map((d, i) => (i === axis ? length : d));
  const end = to ?? Number.MAX_SAFE_INTEGER;
  return make(
    "slice",
    [x],
    shape,
    { op: "Slice", constants: [ints([from]), ints([end]), ints([axis])] },
    { axis, from, to: end },
  );
}

/** x / sqrt(mean(x²) + ε) · weight over the last axis (Zhang and Sennrich, 2019), in one pass. */
export function rmsNorm(x: Value, weight: Value, epsilon: number): Value {
  checkNorm(x, weight);
  return make("rmsNorm", [x, weight], x.shape, normForm(epsilon, 0), { epsilon: { float: epsilon } });
}

/** The factor 1 / sqrt(mean(x²) + ε) of `rmsNorm`, [..., 1]; a second output of the same node. */
export function rmsNormScale(x: Value, weight: Value, epsilon: number): Value {
  checkNorm(x, weight);
  return make("rmsNormScale", [x, weight], [...x.shape.slice(0, -1), 1], normForm(epsilon, 1));
}

function checkNorm(x: Value, weight: Value): void {
  if (weight.shape.length !== 1 || weight.shape[0] !== x.shape[x.shape.length - 1]) {
    throw graphError("rmsNorm", `a weight for ${shapeText(x.shape)}`, shapeText(weight.shape));
  }
}

function normForm(epsilon: number, output: number): Value["onnx"] {
  const attributes = { axis: -1, epsilon: { float: epsilon } };
  return { op: "SimplifiedLayerNormalization", attributes, outputs: 2, output };
}

/**
 * Rotary position embedding of x [batch, heads, length, dim], the two halves of a head paired as in Hugging Face's
 * Llama. `positions` int64: [1] (position of the first column) or [batch, length]. Tables: [positions, dim / 2].
 */
export function rope(x: Value, positions: Value, cos: Value, sin: Value): Value {
  const half = x.shape[3];
  if (x.shape.length !== 4 || typeof half !== "number" || cos.shape[1] !== half / 2 || sin.shape[1] !== half / 2) {
    throw graphError(
      "rope",
      "x [batch, heads, length, dim] and tables [positions, dim / 2]",
      `${shapeText(x.shape)} and ${shapeText(cos.shape)}`,
    );
  }
  return make("rope", [x, positions, cos, sin], x.shape, { op: "RotaryEmbedding", domain: MICROSOFT });
}

/** Rows of a table [rows, n] by int64 `ids` [m]: [m, n]. Decoding only; training gathers outside the graph. */
export function gatherRows(table: Value, ids: Value): Value {
  return make("gatherRows", [table, ids], [ids.shape[0], table.shape[1]], { op: "Gather", attributes: { axis: 0 } });
}

/** One element of each row of x [m, n] by int64 `index` [m, 1]: [m, 1]. */
export function gatherElement(x: Value, index: Value): Value {
  if (x.shape.length !== 2 || index.shape.length !== 2 || index.shape[1] !== 1 || index.shape[0] !== x.shape[0]) {
    throw graphError(
      "gatherElement",
      "x [m, n] and index [m, 1]",
      `${shapeText(x.shape)} and ${shapeText(index.shape)}`,
    );
  }
  return make("gatherElement", [x, index], index.shape, { op: "GatherElements", attributes: { axis: 1 } });
}

/** Rows [m, n] with 1 at `index` [m, 1] and 0 elsewhere. */
export function oneHot(index: Value, size: number): Value {
  const depth: OnnxConstant = { type: "int64", dims: [], data: BigInt64Array.from([BigInt(size)]) };
  const values: OnnxConstant = { type: "float32", dims: [2], data: new Float32Array([0, 1]) };
  const flat = reshape(index, [index.shape[0]]);
  return {
    ...make("oneHot", [flat], [index.shape[0], size], { op: "OneHot", constants: [depth, values] }),
    type: "float32",
  };
}

/**
 * Marks a value that the forward pass keeps for the backward pass: a backward graph takes it as an input named `name` and
 * does not compute it again. Its derivative is the operator's own.
 */
export function saved(name: string, value: Value): Value {
  return { ...value, savedAs: name };
}
