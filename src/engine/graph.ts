/**
 * The graph builder: expressions over tensors with shapes that are checked while they are built.
 *
 * A `Value` is one result of one operator. Values form a pure expression graph; `compileGraph` writes what the wanted
 * outputs reach as an ONNX model. Operators and their shapes are in `ops.ts`, their derivatives in `autodiff.ts`.
 */
import { RlvrError } from "../base/errors.ts";
import type { Attribute, Dim, ElementType, OnnxModel, OnnxNode, OnnxTensor } from "./onnx.ts";

export type { Attribute, Dim, ElementType } from "./onnx.ts";

export interface Value {
  /** Name of the operator in `ops.ts`; it selects the derivative rule. */
  readonly op: string;
  readonly inputs: readonly Value[];
  readonly attributes: Readonly<Record<string, Attribute>>;
  readonly shape: readonly Dim[];
  readonly type: ElementType;
  /** Set for `input`: the name under which it is fed. */
  readonly name?: string;
  /** Set by `saved`: the name under which a backward graph takes the value from the forward pass. */
  readonly savedAs?: string;
  /** Set for `constant`. */
  readonly data?: Float32Array | BigInt64Array;
  /** How the operator is written in ONNX: operator, domain, attributes, and which of its outputs this value is. */
  readonly onnx?: OnnxForm;
}

export interface OnnxForm {
  op: string;
  domain?: string;
  attributes?: Record<string, Attribute>;
  /** Further constant inputs, after the value's own (shapes, axes). */
  constants?: readonly OnnxConstant[];
  /** Outputs of the node, and the index of this value among them. Default: 1 and 0. */
  outputs?: number;
  output?: number;
}

export interface OnnxConstant {
  type: ElementType;
  dims: readonly number[];
  data: Float32Array | BigInt64Array;
}

export function shapeText(shape: readonly Dim[]): string {
  return `[${shape.join(", ")}]`;
}

export function graphError(op: string, expected: string, got: string): RlvrError {
  return new RlvrError("RLVR_GRAPH", `${op}: expected ${expected}, got ${got}`);
}

/** An input of the graph. */
export function input(name: string, shape: readonly Dim[], type: ElementType = "float32"): Value {
  return { op: "input", inputs: [], attributes: {}, shape, type, name };
}

/** A constant tensor. */
export function constant(data: Float32Array, shape: readonly number[]): Value {
  return { op: "constant", inputs: [], attributes: {}, shape, type: "float32", data };
}

export function scalar(value: number): Value {
  return constant(new Float32Array([value]), []);
}

export interface CompiledGraph {
  model: OnnxModel;
  inputs: string[];
  outputs: string[];
}

/**
 * Writes the part of the expression graph that `outputs` reach as an ONNX model.
 * A value marked by `saved` is written as an input and what it was computed from is left out, unless `recompute` is given.
 */
export function compileGraph(outputs: Record<string, Value>, options: { recompute?: boolean } = {}): CompiledGraph {
  const names = new Map<Value, string>();
  const nodes: OnnxNode[] = [];
  const nodeOutputs = new Map<string, string[]>();
  const inputs = new Map<string, Value>();
  const constants: OnnxTensor[] = [];
  const constantNames = new Map<string, string>();
  let counter = 0;

  const addConstant = (value: OnnxConstant): string => {
    const key = `${value.type}/${value.dims.join()}/${Buffer.from(value.data.buffer, value.data.byteOffset, value.data.byteLength).toString("base64")}`;
    let name = constantNames.get(key);
    if (name === undefined) {
      name = `#${counter++}`;
      constantNames.set(key, name);
      constants.push({ name, ...value });
    }
    return name;
  };

  const place = (value: Value): string => {
    const known = names.get(value);
    if (known !== undefined) return known;
    let name: string;
    const fed = value.op === "input" ? value.name : options.recompute ? undefined : value.savedAs;
    if (fed !== undefined) {
      name = fed;
      const other = inputs.get(name);
      if ((other !== undefined && other !== value) || (name in outputs && outputs[name] !== value)) {
        throw graphError("compile", `one value named ${name}`, "two different ones");
      }
      inputs.set(name, value);
    } else if (value.op === "constant") {
      name = addConstant({ type: value.type, dims: value.shape as number[], data: value.data as Float32Array });
    } else {
      name = placeNode(value);
    }
    names.set(value, name);
    return name;
  };

  // A node writes straight into the graph's output where it can: an Identity would copy.
  const outputName = new Map<Value, string>();
  for (const [name, value] of Object.entries(outputs)) {
    if (value.onnx !== undefined && !outputName.has(value)) outputName.set(value, name);
  }

  const placeNode = (value: Value): string => {
    const form = value.onnx as OnnxForm;
    const operands = value.inputs.map(place);
    for (const extra of form.constants ?? []) operands.push(addConstant(extra));
    // Two values of one node (a norm and its scale, say) share it: same operator, operands and attributes.
    const attributes = form.attributes ?? {};
    const key = JSON.stringify([form.op, operands, attributes]);
    let results = nodeOutputs.get(key);
    if (results === undefined) {
      results = Array.from({ length: form.outputs ?? 1 }, () => `%${counter++}`);
      results[form.output ?? 0] = outputName.get(value) ?? results[form.output ?? 0];
      nodeOutputs.set(key, results);
      nodes.push({ op: form.op, domain: form.domain ?? "", inputs: operands, outputs: results, attributes });
    }
    return results[form.output ?? 0];
  };

  const outputList: { name: string; type: ElementType; shape: readonly Dim[] }[] = [];
  for (const [name, value] of Object.entries(outputs)) {
    const placed = place(value);
    // The same value under two names, an input, or a constant.
    if (placed !== name) nodes.push({ op: "Identity", domain: "", inputs: [placed], outputs: [name], attributes: {} });
    outputList.push({ name, type: value.type, shape: value.shape });
  }
  const inputList = [...inputs].map(([name, value]) => ({ name, type: value.type, shape: value.shape }));
  return {
    model: { nodes, inputs: inputList, outputs: outputList, constants },
    inputs: inputList.map(({ name }) => name),
    outputs: Object.keys(outputs),
  };
}
