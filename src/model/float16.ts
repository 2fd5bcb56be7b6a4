/** Conversions between 16-bit floats, as bits, and float32. Narrowing rounds to nearest, ties to even. */

const bits = new Uint32Array(1);
const float = new Float32Array(bits.buffer);

export type Widen = (from: Uint16Array, to: Float32Array, offset: number) => void;
export type Narrow = (from: Float32Array, to: Uint16Array) => void;

/** IEEE binary16 into `to` from `offset` on; subnormals, infinities and NaNs included. */
export const widenF16: Widen = (from, to, offset) => {
  for (let i = 0; i < from.length; i++) {
    const half = from[i];
    const sign = (half & 0x8000) << 16;
    const exponent = (half >>> 10) & 31;
    const fraction = half & 1023;
    if (exponent === 0) {
      float[0] = fraction * 2 ** -24;
      bits[0] |= sign;
    } else {
      bits[0] = sign | ((exponent === 31 ? 255 : exponent + 112) << 23) | (fraction << 13);
    }
    to[offset + i] = float[0];
  }
};

/** bfloat16, the upper half of a float32, into `to` from `offset` on. */
export const widenBF16: Widen = (from, to, offset) => {
  const target = new Uint32Array(to.buffer, to.byteOffset, to.length);
  for (let i = 0; i < from.length; i++) target[offset + i] = from[i] << 16;
};

function halfBits(word: number): number {
  const sign = (word >>> 16) & 0x8000;
  const size = word & 0x7fffffff;
  if (size > 0x7f800000) return sign | 0x7e00;
  if (size >= 0x477ff000) return sign | 0x7c00; // 65520 and above round to infinity
  if (size >= 0x38800000) return sign | ((size - 0x38000000 + 0xfff + ((size >>> 13) & 1)) >>> 13);
  bits[0] = size;
  const scaled = float[0] * 2 ** 24; // a subnormal half is a multiple of 2^-24
  const below = Math.floor(scaled);
  const rest = scaled - below;
  return sign | (below + (rest > 0.5 || (rest === 0.5 && below % 2 === 1) ? 1 : 0));
}

export const narrowF16: Narrow = (from, to) => {
  const words = new Uint32Array(from.buffer, from.byteOffset, from.length);
  for (let i = 0; i < words.length; i++) to[i] = halfBits(words[i]);
};

export const narrowBF16: Narrow = (from, to) => {
  const words = new Uint32Array(from.buffer, from.byteOffset, from.length);
  for (let i = 0; i < words.length; i++) {
    const word = words[i];
    const noNumber = (word & 0x7fffffff) > 0x7f800000;
    to[i] = noNumber ? (word >>> 16) | 0x40 : (word + 0x7fff + ((word >>> 16) & 1)) >>> 16;
  }
};
