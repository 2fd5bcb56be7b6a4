/** Reading and writing tensors in the safetensors format, as float32 in memory. */
import { closeSync, fsyncSync, openSync, renameSync, writeSync } from "node:fs";
import { endianness } from "node:os";
import { dirname } from "node:path";
import { errorMessage, RlvrError } from "../base/errors.ts";
import { removeQuietly, syncDirectory } from "../base/files.ts";
import { narrowBF16, narrowF16, widenBF16, widenF16 } from "./float16.ts";
import {
  readExactly,
  readSafetensorsHeader,
  type StoredTensor,
  safetensorsError,
  withFile,
} from "./safetensors-header.ts";

export { readSafetensorsHeader, type SafetensorsHeader, type StoredTensor } from "./safetensors-header.ts";

export interface Tensor {
  shape: number[];
  /** Row-major. */
  data: Float32Array;
}

export type FloatType = "F32" | "F16" | "BF16";

/** Elements converted at a time, so that 16-bit tensors need no second copy. */
const piece = 1 << 20;
const bigEndian = endianness() === "BE";

const bytesOf = (array: Float32Array | Uint16Array): Buffer =>
  Buffer.from(array.buffer, array.byteOffset, array.byteLength);

/** Reads one tensor, and only its bytes. F32, F16 and BF16; anything else is `RLVR_SAFETENSORS`. */
export function readTensor(tensor: StoredTensor): Float32Array {
  const { type, file, bytes, offset } = tensor;
  if (type !== "F32" && type !== "F16" && type !== "BF16") {
    throw safetensorsError(file, `tensor ${tensor.name}: expected F32, F16 or BF16, got ${type}`, "save it as floats");
  }
  return withFile(file, (fd) => {
    if (type === "F32") {
      const data = new Float32Array(bytes / 4);
      readExactly(fd, file, bytesOf(data), offset);
      if (bigEndian) bytesOf(data).swap32();
      return data;
    }
    const data = new Float32Array(bytes / 2);
    const buffer = new Uint16Array(Math.min(piece, data.length));
    const widen = type === "F16" ? widenF16 : widenBF16;
    for (let done = 0; done < data.length; done += piece) {
      const part = buffer.subarray(0, Math.min(piece, data.length - done));
      readExactly(fd, file, bytesOf(part), offset + 2 * done);
      if (bigEndian) bytesOf(part).swap16();
      widen(part, data, done);
    }
    return data;
  });
}

/** All tensors of one file, or those whose name `select` accepts. */
export function readSafetensors(file: string, select: (name: string) => boolean = () => true): Map<string, Tensor> {
  const tensors = new Map<string, Tensor>();
  for (const stored of readSafetensorsHeader(file).tensors.values()) {
    if (select(stored.name)) tensors.set(stored.name, { shape: stored.shape, data: readTensor(stored) });
  }
  return tensors;
}

/**
 * Writes a file in one stream, into a temporary file that takes the place of `file` when it is complete and on disk.
 * Throws `RLVR_SAFETENSORS` for tensors that cannot be written, `RLVR_WRITE_FAILED` where the disk refuses; a file
 * that was there before is unchanged then.
 */
export function writeSafetensors(
  file: string,
  tensors: Iterable<readonly [name: string, tensor: Tensor]>,
  options: { type?: FloatType; metadata?: Record<string, string> } = {},
): void {
  const { type = "F32", metadata = { format: "pt" } } = options;
  const entries = [...tensors];
  const header = renderHeader(file, entries, type, metadata);
  const temporary = `${file}.tmp-${process.pid}`;
  try {
    const fd = openSync(temporary, "w");
    try {
      writeAll(fd, header);
      for (const [name, { data }] of entries) writeData(fd, file, name, data, type);
      fsyncSync(fd);
    } finally {
      closeSync(fd);
    }
    renameSync(temporary, file);
    syncDirectory(dirname(file));
  } catch (cause) {
    removeQuietly(temporary);
    if (cause instanceof RlvrError) throw cause;
    throw new RlvrError("RLVR_WRITE_FAILED", `write: expected to write ${file}, got ${errorMessage(cause)}`, {
      next: "free disk space or choose another folder; the file that was there before is unchanged",
      cause,
    });
  }
}

function renderHeader(
  file: string,
  entries: readonly (readonly [string, Tensor])[],
  type: FloatType,
  metadata: Record<string, string>,
): Buffer {
  const fail = (text: string) =>
    safetensorsError(file, text, "give each tensor its own name and as many numbers as its shape");
  const header: [string, unknown][] = [["__metadata__", metadata]];
  const names = new Set(["__metadata__"]);
  let end = 0;
  for (const [name, { shape, data }] of entries) {
    if (names.has(name)) throw fail(`expected each name once, got ${JSON.stringify(name)} again`);
    names.add(name);
    const count = shape.reduce((product, n) => product * n, 1);
    if (count !== data.length)
      throw fail(`tensor ${name}: expected ${count} numbers for [${shape}], got ${data.length}`);
    const begin = end;
    end += count * (type === "F32" ? 4 : 2);
    header.push([name, { dtype: type, shape, data_offsets: [begin, end] }]);
  }
  // fromEntries, unlike assignment, also keeps a tensor named "__proto__".
  const text = Buffer.from(JSON.stringify(Object.fromEntries(header)));
  const padded = Buffer.alloc(8 + Math.ceil(text.byteLength / 8) * 8, " ");
  padded.writeBigUInt64LE(BigInt(padded.byteLength - 8), 0);
  text.copy(padded, 8);
  return padded;
}

function writeData(fd: number, file: string, name: string, data: Float32Array, type: FloatType): void {
  if (type === "F32" && !bigEndian) {
    writeAll(fd, bytesOf(data));
    return;
  }
  for (let done = 0; done < data.length; done += piece) {
    const part = data.subarray(done, done + piece);
    if (type === "F32") {
      writeAll(fd, Buffer.from(bytesOf(part)).swap32());
      continue;
    }
    const narrow = new Uint16Array(part.length);
    (type === "F16" ? narrowF16 : narrowBF16)(part, narrow);
    refuseOverflow(file, name, part, narrow, type);
    writeAll(fd, bigEndian ? bytesOf(narrow).swap16() : bytesOf(narrow));
  }
}

/** A finite weight that would be saved as infinity is a broken model. */
function refuseOverflow(file: string, name: string, from: Float32Array, to: Uint16Array, type: FloatType): void {
  const infinity = type === "F16" ? 0x7c00 : 0x7f80;
  for (let i = 0; i < to.length; i++) {
    if ((to[i] & 0x7fff) === infinity && Number.isFinite(from[i])) {
      throw safetensorsError(file, `tensor ${name}: expected numbers within ${type}, got ${from[i]}`, "save as F32");
    }
  }
}

function writeAll(fd: number, bytes: Buffer): void {
  for (let done = 0; done < bytes.byteLength; ) {
    done += writeSync(fd, bytes, done, Math.min(bytes.byteLength - done, 1 << 28));
  }
}
