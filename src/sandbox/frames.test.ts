import { describe, expect, it } from "vitest";
import { FrameReader, frame, MAX_FRAME_BYTES } from "./frames.ts";

describe("frames", () => {
  it("come out whole, however the stream is cut", () => {
    const texts = ["", "one", "a longer text", "ünïcödé"];
    const stream = Buffer.concat(texts.map((text) => frame(Buffer.from(text))));
    for (const size of [1, 2, 3, 7, stream.byteLength]) {
      const reader = new FrameReader();
      const out: string[] = [];
      for (let at = 0; at < stream.byteLength; at += size) {
        for (const bytes of reader.push(stream.subarray(at, at + size))) out.push(bytes.toString());
      }
      expect(out).toEqual(texts);
    }
  });

  it("are refused above the cap, before anything is allocated", () => {
    expect(() => frame(Buffer.alloc(MAX_FRAME_BYTES + 1))).toThrow(RangeError);
    const header = Buffer.alloc(4);
    header.writeUInt32LE(0xffffffff);
    expect(() => new FrameReader().push(header)).toThrow(RangeError);
  });
});
