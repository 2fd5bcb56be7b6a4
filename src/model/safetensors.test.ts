import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { readSafetensors, readSafetensorsHeader, readTensor, type Tensor, writeSafetensors } from "./safetensors.ts";

const folder = mkdtempSync(join(tmpdir(), "rlvr-safetensors-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

let count = 0;
const fresh = () => join(folder, `${count++}.safetensors`);

/** A file with the given header text and number of data bytes, or the given data. */
function raw(header: string | Buffer, data: number | Uint8Array = 0, length?: number): string {
  const file = fresh();
  const bytes = Buffer.from(header as string);
  const start = Buffer.alloc(8);
  start.writeBigUInt64LE(BigInt(length ?? bytes.byteLength));
  writeFileSync(file, Buffer.concat([start, bytes, typeof data === "number" ? Buffer.alloc(data) : data]));
  return file;
}

const entry = (dtype: string, shape: unknown, begin: unknown, end: unknown) => ({
  dtype,
  shape,
  data_offsets: [begin, end],
});
const file = (header: object, data: number | Uint8Array = 0) => raw(JSON.stringify(header), data);

const tensors: [string, Tensor][] = [
  ["b", { shape: [2, 3], data: Float32Array.of(1, -2, 3.5, 1e-30, 0, -0) }],
  ["empty", { shape: [0, 4], data: new Float32Array(0) }],
  ["a", { shape: [], data: Float32Array.of(7) }],
  ["7", { shape: [1], data: Float32Array.of(8) }],
  ["__proto__", { shape: [1], data: Float32Array.of(9) }],
];

describe("files", () => {
  test("what is written is read", () => {
    const path = fresh();
    writeSafetensors(path, tensors, { metadata: { format: "pt", step: "3" } });
    expect(readSafetensors(path)).toEqual(new Map(tensors));
    expect(readSafetensorsHeader(path).metadata).toEqual({ format: "pt", step: "3" });
    expect(readSafetensors(path, (name) => name === "a")).toEqual(new Map([tensors[2]]));
  });

  test("the data starts at a multiple of 8 and the file ends with it", () => {
    const path = fresh();
    writeSafetensors(path, tensors);
    const bytes = readFileSync(path);
    const header = Number(bytes.readBigUInt64LE(0));
    expect(header % 8).toBe(0);
    expect(bytes.byteLength).toBe(8 + header + 4 * 9);
    expect(JSON.parse(bytes.toString("utf8", 8, 8 + header))).toMatchObject({
      __metadata__: { format: "pt" },
      b: { dtype: "F32", shape: [2, 3], data_offsets: [0, 24] },
    });
  });

  test("a part of a larger array is written as such", () => {
    const path = fresh();
    const data = Float32Array.of(1, 2, 3, 4).subarray(1, 3);
    for (const type of ["F32", "F16", "BF16"] as const) {
      writeSafetensors(path, [["x", { shape: [2], data }]], { type });
      expect(readSafetensors(path).get("x")?.data).toEqual(Float32Array.of(2, 3));
    }
  });

  test("16-bit types round to nearest even and are read as float32, over several pieces", () => {
    const data = new Float32Array(2 ** 20 + 3).fill(1);
    data.set([1.00048828125, 1.00146484375, 65504], 2 ** 20);
    const path = fresh();
    writeSafetensors(path, [["x", { shape: [data.length], data }]], { type: "F16" });
    const half = readSafetensors(path).get("x")?.data as Float32Array;
    expect([...half.subarray(2 ** 20 - 1)]).toEqual([1, 1, 1.001953125, 65504]);
    writeSafetensors(path, [["x", { shape: [data.length], data }]], { type: "BF16" });
    const brain = readSafetensors(path).get("x")!.data;
    expect([...brain.subarray(2 ** 20)]).toEqual([1, 1, 65536]);
  });

  test("a file of other types can be listed, and its floats read", () => {
    const path = file(
      { i: entry("I64", [2], 0, 16), f: entry("BF16", [1], 16, 18) },
      Buffer.from([...Array(16).fill(0), 0x80, 0x3f]),
    );
    const { tensors: stored } = readSafetensorsHeader(path);
    expect(stored.get("i")).toMatchObject({ type: "I64", shape: [2], bytes: 16 });
    expect(readSafetensors(path, (name) => name === "f").get("f")?.data).toEqual(Float32Array.of(1));
    expect(() => readSafetensors(path)).toThrow("tensor i: expected F32, F16 or BF16, got I64");
  });
});

describe("refusals", () => {
  const one = { a: entry("F32", [2], 0, 8) };
  const cases: [string, () => string, string][] = [
    ["short file", writeShort, "expected at least 8 bytes, got 3"],
    ["length beyond the file", () => raw("{}", 4, 7), "expected a header of 2 to 6 bytes, got a length of 7"],
    ["no header", () => raw("", 4), "got a length of 0"],
    ["huge length", () => raw("{}", 0, Number.MAX_SAFE_INTEGER), "got a length of 9007199254740991"],
    ["no JSON", () => raw("{nope}"), "expected a JSON header"],
    ["no UTF-8", () => raw(Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x7d])), "expected a JSON header"],
    ["a list", () => raw("[1]"), "expected a JSON object as header"],
    ["leading blanks", () => raw("  {}"), "expected a JSON object as header"],
    ["truncated", () => file(one, 7), "the file is truncated"],
    ["more data", () => file(one, 9), "there is data after the tensors"],
    ["a gap", () => file({ ...one, b: entry("F32", [1], 12, 16) }, 16), "tensor b: expected to start at byte"],
    ["a gap at the start", () => file({ a: entry("F32", [1], 4, 8) }, 8), "after the header, got a gap"],
    ["an overlap", () => file({ ...one, b: entry("F32", [1], 4, 8) }, 8), "after tensor a, got an overlap"],
    ["the same place", () => file({ ...one, b: entry("F32", [2], 0, 8) }, 8), "got an overlap"],
    ["a wrong size", () => file({ a: entry("F32", [3], 0, 8) }, 8), "tensor a: expected 12 bytes for F32 [3], got 8"],
    ["an unknown type", () => file({ a: entry("F7", [1], 0, 1) }, 1), "tensor a: expected a dtype of"],
    ["a type from the prototype", () => file({ a: entry("toString", [1], 0, 1) }, 1), "expected a dtype of"],
    ["a negative size", () => file({ a: entry("F32", [-1], 0, 4) }, 4), "expected a shape of whole numbers, got [-1]"],
    ["a fraction", () => file({ a: entry("F32", [0.5], 0, 2) }, 2), "expected a shape of whole numbers"],
    ["an overflowing shape", () => file({ a: entry("F32", [2 ** 40, 2 ** 40], 0, 4) }, 4), "tensor a: expected"],
    [
      "backward offsets",
      () => file({ a: entry("F32", [1], 8, 4) }, 8),
      "expected data_offsets [begin, end], got [8,4]",
    ],
    ["text offsets", () => file({ a: entry("F32", [1], "0", "4") }, 4), "expected data_offsets"],
    ["no entry", () => file({ a: null }), "tensor a: expected an object"],
    ["odd metadata", () => file({ __metadata__: { n: 1 } }), "__metadata__: expected an object of texts"],
  ];

  function writeShort(): string {
    const path = fresh();
    writeFileSync(path, "abc");
    return path;
  }

  test.each(cases)("%s", (_, make, message) => {
    const path = make();
    expect(() => readSafetensorsHeader(path)).toThrow(expect.objectContaining({ code: "RLVR_SAFETENSORS" }));
    expect(() => readSafetensorsHeader(path)).toThrow(message);
    expect(() => readSafetensorsHeader(path)).toThrow(path);
  });

  test("a name twice, even in another spelling and inside other text", () => {
    const a = JSON.stringify(entry("F32", [0], 0, 0));
    expect(() => readSafetensorsHeader(raw(`{"a":${a},"\\u0061" :${a}}`))).toThrow('got "a" twice');
    const escaped = raw(`{"__metadata__":{"a":"\\"a\\":"},"a":${a},"\\"":${a}}`);
    expect([...readSafetensorsHeader(escaped).tensors.keys()]).toEqual(["a", '"']);
  });

  test("a missing file", () => {
    const path = join(folder, "none");
    expect(() => readSafetensorsHeader(path)).toThrow(expect.objectContaining({ code: "RLVR_MODEL_FILE" }));
  });

  test("a file that shrinks after its header was read", () => {
    const path = file(one, 8);
    const stored = readSafetensorsHeader(path).tensors.get("a")!;
    writeFileSync(path, "");
    expect(() => readTensor(stored)).toThrow("expected 8 bytes at");
  });

  test("tensors that cannot be written leave the old file as it was", () => {
    const path = fresh();
    writeSafetensors(path, [tensors[0]]);
    const before = readFileSync(path);
    const x = (data: Float32Array, shape = [data.length]): [string, Tensor] => ["x", { shape, data }];
    expect(() => writeSafetensors(path, [x(Float32Array.of(1), [2])])).toThrow("expected 2 numbers for [2], got 1");
    expect(() => writeSafetensors(path, [x(Float32Array.of(1)), x(Float32Array.of(1))])).toThrow('got "x" again');
    const large = [x(Float32Array.of(1, 1e6))];
    expect(() => writeSafetensors(path, large, { type: "F16" })).toThrow("expected numbers within F16, got 1000000");
    expect(readFileSync(path)).toEqual(before);
    expect(readdirSync(folder).filter((name) => name.includes("tmp"))).toEqual([]);
  });

  test("a folder that is not there", () => {
    const write = () => writeSafetensors(join(folder, "none", "x.safetensors"), tensors);
    expect(write).toThrow(expect.objectContaining({ code: "RLVR_WRITE_FAILED" }));
  });
});
