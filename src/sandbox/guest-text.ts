const utf8 = new TextEncoder();
const LONE_SURROGATE = /[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/;

/**
 * UTF-8 that also takes lone surrogates (three bytes each), as the engine's own strings do. Returns the number of bytes
 * written; `target` must have room for three bytes a UTF-16 unit.
 */
export function encodeText(text: string, target: Uint8Array): number {
  if (!LONE_SURROGATE.test(text)) return utf8.encodeInto(text, target).written;
  let at = 0;
  for (const character of text) {
    const code = character.codePointAt(0) as number;
    if (code >= 0xd800 && code <= 0xdfff) {
      target[at++] = 0xe0 | (code >> 12);
      target[at++] = 0x80 | ((code >> 6) & 0x3f);
      target[at++] = 0x80 | (code & 0x3f);
    } else {
      at += utf8.encodeInto(character, target.subarray(at)).written;
    }
  }
  return at;
}

/** Inverse of `encodeText`. */
export function decodeText(bytes: Buffer): string {
  let text = "";
  let start = 0;
  for (let i = bytes.indexOf(0xed); i !== -1; i = bytes.indexOf(0xed, i + 1)) {
    if ((bytes[i + 1] ?? 0) < 0xa0) continue;
    text += bytes.toString("utf8", start, i);
    text += String.fromCharCode(((bytes[i] & 0x0f) << 12) | ((bytes[i + 1] & 0x3f) << 6) | (bytes[i + 2] & 0x3f));
    start = i + 3;
  }
  return text + bytes.toString("utf8", start);
}
