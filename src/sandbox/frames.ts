import { readSync, writeSync } from "node:fs";

/**
 * Messages on a pipe: four bytes of length (little-endian), then that many bytes. The cap is checked before anything
 * is allocated, so a length that makes no sense cannot make the reader allocate it.
 */
export const MAX_FRAME_BYTES = 4 * 1024 * 1024;
const HEADER_BYTES = 4;

/** One frame with its header. Throws `RangeError` above the cap. */
export function frame(payload: Uint8Array): Buffer {
  if (payload.byteLength > MAX_FRAME_BYTES) {
    throw new RangeError(`frame: expected at most ${MAX_FRAME_BYTES} bytes, got ${payload.byteLength}`);
  }
  const out = Buffer.allocUnsafe(HEADER_BYTES + payload.byteLength);
  out.writeUInt32LE(payload.byteLength, 0);
  out.set(payload, HEADER_BYTES);
  return out;
}

/** Cuts a stream of chunks into frames. */
export class FrameReader {
  #chunks: Buffer[] = [];
  #bytes = 0;

  /** The frames that `chunk` completes. Throws `RangeError` when a header announces more than the cap. */
  push(chunk: Buffer): Buffer[] {
    this.#chunks.push(chunk);
    this.#bytes += chunk.byteLength;
    const frames: Buffer[] = [];
    while (this.#bytes >= HEADER_BYTES) {
      const length = this.#join(HEADER_BYTES).readUInt32LE(0);
      if (length > MAX_FRAME_BYTES) {
        throw new RangeError(`frame: expected at most ${MAX_FRAME_BYTES} bytes, got ${length}`);
      }
      if (this.#bytes < HEADER_BYTES + length) break;
      const buffer = this.#join(HEADER_BYTES + length);
      frames.push(buffer.subarray(HEADER_BYTES, HEADER_BYTES + length));
      this.#chunks[0] = buffer.subarray(HEADER_BYTES + length);
      this.#bytes -= HEADER_BYTES + length;
    }
    return frames;
  }

  /** The first chunk, made at least `length` bytes long. */
  #join(length: number): Buffer {
    if (this.#chunks[0].byteLength < length) this.#chunks = [Buffer.concat(this.#chunks)];
    return this.#chunks[0];
  }
}

/** Reads one frame from a blocking descriptor; undefined when the other side has closed it. */
export function readFrame(fd: number): Buffer | undefined {
  const header = readExactly(fd, HEADER_BYTES);
  if (header === undefined) return undefined;
  const length = header.readUInt32LE(0);
  if (length > MAX_FRAME_BYTES) {
    throw new RangeError(`frame: expected at most ${MAX_FRAME_BYTES} bytes, got ${length}`);
  }
  return readExactly(fd, length);
}

function readExactly(fd: number, length: number): Buffer | undefined {
  const buffer = Buffer.allocUnsafe(length);
  for (let offset = 0; offset < length; ) {
    const count = readSync(fd, buffer, offset, length - offset, null);
    if (count === 0) return undefined;
    offset += count;
  }
  return buffer;
}

/** Writes one frame to a blocking descriptor. */
export function writeFrame(fd: number, payload: Uint8Array): void {
  const bytes = frame(payload);
  for (let offset = 0; offset < bytes.byteLength; ) offset += writeSync(fd, bytes, offset);
}
