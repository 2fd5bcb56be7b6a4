/** The header of a safetensors file, checked in every respect: a file that passes can be read without surprises. */
import { closeSync, fstatSync, openSync, readSync } from "node:fs";
import { errorMessage, RlvrError } from "../base/errors.ts";

/** Where a tensor lies. */
export interface StoredTensor {
  name: string;
  /** F32, F16, BF16, …; only these three can be read. */
  type: string;
  shape: number[];
  file: string;
  /** First byte in the file. */
  offset: number;
  bytes: number;
}

export interface SafetensorsHeader {
  tensors: Map<string, StoredTensor>;
  metadata: Record<string, string>;
}

const bytesPerElement: Record<string, number> = {
  F64: 8,
  F32: 4,
  F16: 2,
  BF16: 2,
  F8_E4M3: 1,
  F8_E5M2: 1,
  I64: 8,
  I32: 4,
  I16: 2,
  I8: 1,
  U64: 8,
  U32: 4,
  U16: 2,
  U8: 1,
  BOOL: 1,
};

/** The reference implementation's limit; a larger length means that the file is something else. */
const longestHeader = 100_000_000;

export function safetensorsError(file: string, text: string, next?: string, cause?: unknown): RlvrError {
  return new RlvrError("RLVR_SAFETENSORS", `${file}: ${text}`, {
    next: next ?? "copy or download the file again; it is damaged or no safetensors file",
    cause,
  });
}

/** Opens a file for reading; `RLVR_MODEL_FILE` where that fails. The result of `use` is returned, the file closed. */
export function withFile<T>(file: string, use: (fd: number) => T): T {
  let fd: number;
  try {
    fd = openSync(file, "r");
  } catch (cause) {
    throw new RlvrError("RLVR_MODEL_FILE", `${file}: expected a readable file, got ${errorMessage(cause)}`, {
      next: "check the path and its permissions",
      cause,
    });
  }
  try {
    return use(fd);
  } finally {
    closeSync(fd);
  }
}

/** Fills `target` from `offset` on, in pieces: one call may not read 2 GB or more. */
export function readExactly(fd: number, file: string, target: Uint8Array, offset: number): void {
  for (let done = 0; done < target.byteLength; ) {
    const count = readSync(fd, target, done, Math.min(target.byteLength - done, 1 << 28), offset + done);
    if (count === 0) throw safetensorsError(file, `expected ${target.byteLength} bytes at ${offset}, got ${done}`);
    done += count;
  }
}

/** Reads and checks the header of one file. Throws `RLVR_SAFETENSORS`, or `RLVR_MODEL_FILE` if it cannot be opened. */
export function readSafetensorsHeader(file: string): SafetensorsHeader {
  return withFile(file, (fd) => {
    const status = fstatSync(fd);
    if (!status.isFile()) throw safetensorsError(file, "expected a file, got something else");
    if (status.size < 8) throw safetensorsError(file, `expected at least 8 bytes, got ${status.size}`);
    const start = new Uint8Array(8);
    readExactly(fd, file, start, 0);
    const length = Number(new DataView(start.buffer).getBigUint64(0, true));
    if (length < 2 || length > Math.min(longestHeader, status.size - 8)) {
      const most = Math.min(longestHeader, status.size - 8);
      throw safetensorsError(file, `expected a header of 2 to ${most} bytes, got a length of ${length}`);
    }
    const header = new Uint8Array(length);
    readExactly(fd, file, header, 8);
    return parseHeader(file, header, status.size);
  });
}

function parseHeader(file: string, bytes: Uint8Array, size: number): SafetensorsHeader {
  let text: string;
  let json: unknown;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
    json = JSON.parse(text);
  } catch (cause) {
    throw safetensorsError(file, `expected a JSON header, got ${errorMessage(cause)}`, undefined, cause);
  }
  if (text[0] !== "{" || typeof json !== "object" || json === null) {
    throw safetensorsError(file, `expected a JSON object as header, got ${text.slice(0, 40)}`);
  }
  refuseDuplicates(file, text);
  const { __metadata__: metadata = {}, ...entries } = json as Record<string, unknown>;
  checkMetadata(file, metadata);
  const dataStart = 8 + bytes.byteLength;
  const tensors = Object.entries(entries).map(([name, entry]) => parseEntry(file, name, entry, dataStart));
  checkLayout(file, tensors, dataStart, size);
  return { tensors: new Map(tensors.map((tensor) => [tensor.name, tensor])), metadata };
}

/** `JSON.parse` keeps the last of equal keys in silence, so keys at the top level are collected from the text. */
function refuseDuplicates(file: string, text: string): void {
  const seen = new Set<string>();
  let depth = 0;
  for (const match of text.matchAll(/"[^"\\]*(?:\\.[^"\\]*)*"(\s*:)?|[{}[\]]/g)) {
    const token = match[0];
    if (token === "{" || token === "[") depth++;
    else if (token === "}" || token === "]") depth--;
    else if (depth === 1 && match[1] !== undefined) {
      const key = JSON.parse(token.slice(0, token.length - match[1].length));
      if (seen.has(key)) throw safetensorsError(file, `expected each name once, got ${JSON.stringify(key)} twice`);
      seen.add(key);
    }
  }
}

function checkMetadata(file: string, metadata: unknown): asserts metadata is Record<string, string> {
  const ok =
    typeof metadata === "object" &&
    metadata !== null &&
    !Array.isArray(metadata) &&
    Object.values(metadata).every((value) => typeof value === "string");
  if (!ok) throw safetensorsError(file, `__metadata__: expected an object of texts, got ${JSON.stringify(metadata)}`);
}

const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;

function parseEntry(file: string, name: string, entry: unknown, dataStart: number): StoredTensor {
  const fail = (expected: string, got: unknown) =>
    safetensorsError(file, `tensor ${name}: expected ${expected}, got ${JSON.stringify(got) ?? "nothing"}`);
  if (typeof entry !== "object" || entry === null) throw fail("an object with dtype, shape and data_offsets", entry);
  const { dtype, shape, data_offsets: offsets } = entry as Record<string, unknown>;
  if (typeof dtype !== "string" || !Object.hasOwn(bytesPerElement, dtype)) {
    throw fail(`a dtype of ${Object.keys(bytesPerElement).join(", ")}`, dtype);
  }
  if (!Array.isArray(shape) || !shape.every(isCount)) throw fail("a shape of whole numbers", shape);
  if (!Array.isArray(offsets) || offsets.length !== 2 || !offsets.every(isCount) || offsets[0] > offsets[1]) {
    throw fail("data_offsets [begin, end]", offsets);
  }
  const bytes = shape.reduce((product, n) => product * n, bytesPerElement[dtype]);
  if (bytes !== offsets[1] - offsets[0]) {
    throw fail(`${bytes} bytes for ${dtype} ${JSON.stringify(shape)}`, offsets[1] - offsets[0]);
  }
  return { name, type: dtype, shape, file, offset: dataStart + offsets[0], bytes };
}

/** Tensors must fill the rest of the file: no gap, no overlap, nothing after them. */
function checkLayout(file: string, tensors: StoredTensor[], dataStart: number, size: number): void {
  let end = dataStart;
  let previous = "the header";
  // An empty tensor may share its offset with the next one, and comes first then.
  for (const tensor of [...tensors].sort((a, b) => a.offset - b.offset || a.bytes - b.bytes)) {
    if (tensor.offset !== end) {
      const got = tensor.offset < end ? "an overlap" : "a gap";
      throw safetensorsError(
        file,
        `tensor ${tensor.name}: expected to start at byte ${end}, after ${previous}, got ${got} (byte ${tensor.offset})`,
      );
    }
    end = tensor.offset + tensor.bytes;
    previous = `tensor ${tensor.name}`;
  }
  if (end > size) throw safetensorsError(file, `expected ${end} bytes, got ${size}: the file is truncated`);
  if (end < size) throw safetensorsError(file, `expected ${end} bytes, got ${size}: there is data after the tensors`);
}
