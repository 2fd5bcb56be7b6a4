/**
 * The part of the ONNX file format that the engine needs, written as protocol buffers.
 * Field numbers: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto (IR version 10).
 *
 * Own code because no maintained npm package writes ONNX; the message set is small and checked by ONNX Runtime
 * whenever a graph is loaded.
 */

export type ElementType = "float32" | "int64";
/** A dimension: a number, or the name of one that is known only at run time. */
export type Dim = number | string;

export type Attribute = number | string | readonly number[] | { float: number };

export interface OnnxTensor {
  name: string;
  type: ElementType;
  dims: readonly number[];
  data: Float32Array | BigInt64Array;
}

export interface OnnxNode {
  op: string;
  /** Empty for the standard operator set. */
  domain: string;
  inputs: readonly string[];
  outputs: readonly string[];
  attributes: Readonly<Record<string, Attribute>>;
}

export interface OnnxValue {
  name: string;
  type: ElementType;
  shape: readonly Dim[];
}

/** Name of the extra first output of a model with `marker`. */
export const MARKER = "done";

export interface OnnxModel {
  /** Adds an empty sequence as the first output; `session.ts` says what for. */
  marker?: boolean;
  nodes: readonly OnnxNode[];
  inputs: readonly OnnxValue[];
  outputs: readonly OnnxValue[];
  constants: readonly OnnxTensor[];
}

const ELEMENT_TYPE: Record<ElementType, number> = { float32: 1, int64: 7 };
const IR_VERSION = 10;
const OPSET = 21;

/** Collects the bytes of one protocol buffer message. */
class Message {
  readonly #chunks: Uint8Array[] = [];

  #varint(value: number): void {
    const bytes: number[] = [];
    let rest = BigInt.asUintN(64, BigInt(value));
    do {
      const low = Number(rest & 0x7fn);
      rest >>= 7n;
      bytes.push(rest > 0n ? low | 0x80 : low);
    } while (rest > 0n);
    this.#chunks.push(Uint8Array.from(bytes));
  }

  integer(field: number, value: number): this {
    this.#varint(field * 8);
    this.#varint(value);
    return this;
  }

  float(field: number, value: number): this {
    this.#varint(field * 8 + 5);
    this.#chunks.push(new Uint8Array(new Float32Array([value]).buffer));
    return this;
  }

  bytes(field: number, value: Uint8Array): this {
    this.#varint(field * 8 + 2);
    this.#varint(value.byteLength);
    this.#chunks.push(value);
    return this;
  }

  text(field: number, value: string): this {
    return this.bytes(field, Buffer.from(value));
  }

  message(field: number, value: Message): this {
    return this.bytes(field, value.finish());
  }

  finish(): Uint8Array {
    return Buffer.concat(this.#chunks);
  }
}

function attributeMessage(name: string, value: Attribute): Message {
  const message = new Message().text(1, name);
  if (typeof value === "number") {
    return message.integer(3, value).integer(20, 2);
  }
  if (typeof value === "string") {
    return message.text(4, value).integer(20, 3);
  }
  if ("float" in value) {
    return message.float(2, value.float).integer(20, 1);
  }
  for (const item of value) {
    message.integer(8, item);
  }
  return message.integer(20, 7);
}

function valueMessage(value: OnnxValue): Message {
  const shape = new Message();
  for (const dim of value.shape) {
    shape.message(1, typeof dim === "number" ? new Message().integer(1, dim) : new Message().text(2, dim));
  }
  const tensor = new Message().integer(1, ELEMENT_TYPE[value.type]).message(2, shape);
  return new Message().text(1, value.name).message(2, new Message().message(1, tensor));
}

/** The marker's declaration: a sequence of float32 tensors. */
function markerMessage(): Message {
  const element = new Message().message(1, new Message().integer(1, ELEMENT_TYPE.float32));
  return new Message().text(1, MARKER).message(2, new Message().message(4, new Message().message(1, element)));
}

function tensorMessage(tensor: OnnxTensor): Message {
  const message = new Message();
  for (const dim of tensor.dims) {
    message.integer(1, dim);
  }
  const { buffer, byteOffset, byteLength } = tensor.data;
  return message
    .integer(2, ELEMENT_TYPE[tensor.type])
    .text(8, tensor.name)
    .bytes(9, new Uint8Array(buffer, byteOffset, byteLength));
}

/** Serialises a graph as an ONNX model. */
export function encodeModel(model: OnnxModel): Uint8Array {
  const graph = new Message();
  const marker: OnnxNode = { op: "SequenceEmpty", domain: "", inputs: [], outputs: [MARKER], attributes: {} };
  for (const node of model.marker ? [...model.nodes, marker] : model.nodes) {
    const message = new Message();
    for (const input of node.inputs) message.text(1, input);
    for (const output of node.outputs) message.text(2, output);
    message.text(4, node.op);
    for (const [name, value] of Object.entries(node.attributes)) message.message(5, attributeMessage(name, value));
    if (node.domain !== "") message.text(7, node.domain);
    graph.message(1, message);
  }
  graph.text(2, "rlvr");
  for (const constant of model.constants) graph.message(5, tensorMessage(constant));
  for (const input of model.inputs) graph.message(11, valueMessage(input));
  if (model.marker) graph.message(12, markerMessage());
  for (const output of model.outputs) graph.message(12, valueMessage(output));
  return new Message()
    .integer(1, IR_VERSION)
    .text(2, "rlvr")
    .message(7, graph)
    .message(8, new Message().text(1, "").integer(2, OPSET))
    .message(8, new Message().text(1, "com.microsoft").integer(2, 1))
    .finish();
}
