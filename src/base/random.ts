/**
 * Counter-based random numbers: a draw is a pure function of its key and index, so a sample never depends on
 * which other samples were drawn before it or beside it.
 *
 * Generator: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), checked in the
 * tests against the known-answer vectors published with the authors' Random123 library.
 */

const M0 = 0xd2511f53;
const M1 = 0xcd9e8d57;
const W0 = 0x9e3779b9;
const W1 = 0xbb67ae85;

const low = new Uint32Array(1);

/** High 32 bits of a·b; the low 32 bits are left in `low[0]`. */
function mulHigh(a: number, b: number): number {
  const aLow = a & 0xffff;
  const aHigh = a >>> 16;
  const bLow = b & 0xffff;
  const bHigh = b >>> 16;
  const mid1 = aHigh * bLow;
  const mid2 = aLow * bHigh;
  const carry = ((aLow * bLow) >>> 16) + (mid1 & 0xffff) + (mid2 & 0xffff);
  low[0] = Math.imul(a, b);
  return (aHigh * bHigh + (mid1 >>> 16) + (mid2 >>> 16) + (carry >>> 16)) >>> 0;
}

/** Writes the Philox4x32-10 block of `counter` (4 words) under `key` (2 words) into `out` (4 words). */
export function philox(counter: ArrayLike<number>, key: ArrayLike<number>, out: Uint32Array): void {
  let c0 = counter[0] >>> 0;
  let c1 = counter[1] >>> 0;
  let c2 = counter[2] >>> 0;
  let c3 = counter[3] >>> 0;
  let k0 = key[0] >>> 0;
  let k1 = key[1] >>> 0;
  for (let round = 0; round < 10; round++) {
    const h0 = mulHigh(M0, c0);
    const l0 = low[0];
    const h1 = mulHigh(M1, c2);
    const l1 = low[0];
    c0 = (h1 ^ c1 ^ k0) >>> 0;
    c1 = l1;
    c2 = (h0 ^ c3 ^ k1) >>> 0;
    c3 = l0;
    k0 = (k0 + W0) >>> 0;
    k1 = (k1 + W1) >>> 0;
  }
  out[0] = c0;
  out[1] = c1;
  out[2] = c2;
  out[3] = c3;
}

/** FNV-1a over UTF-16 code units, finished by Murmur3's mixer: a 32-bit hash of text, stable everywhere. */
export function hash32(text: string): number {
  let h = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) {
    h = Math.imul(h ^ text.charCodeAt(i), 0x01000193);
  }
  h ^= h >>> 16;
  h = Math.imul(h, 0x85ebca6b);
  h ^= h >>> 13;
  h = Math.imul(h, 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}

/** A stream of random numbers named by a seed and up to three further keys (text or integers). */
export class RandomStream {
  readonly #key: Uint32Array;
  readonly #counter: Uint32Array;
  readonly #block = new Uint32Array(4);
  #used = 4;

  /**
   * @example
   * const random = new RandomStream(1, "step", 12, "task-7/3");
   * random.uniform(); // the same number whenever the same names are given
   */
  constructor(seed: number, ...names: (string | number)[]) {
    const words = names.map((name) => (typeof name === "number" ? hash32(`#${name}`) : hash32(name)));
    this.#key = new Uint32Array([seed >>> 0, (Math.floor(seed / 2 ** 32) >>> 0) ^ (words[0] ?? 0)]);
    this.#counter = new Uint32Array([
      0,
      words[1] ?? 0,
      words[2] ?? 0,
      words.length > 3 ? hash32(words.slice(3).join()) : 0,
    ]);
  }

  /** A uniform 32-bit integer. */
  uint32(): number {
    if (this.#used === 4) {
      philox(this.#counter, this.#key, this.#block);
      this.#counter[0]++;
      this.#used = 0;
    }
    return this.#block[this.#used++];
  }

  /** Uniform in [0, 1), 53 bits. */
  uniform(): number {
    return ((this.uint32() >>> 5) * 67108864 + (this.uint32() >>> 6)) / 9007199254740992;
  }

  /** A uniform integer in [0, n). */
  integer(n: number): number {
    return Math.floor(this.uniform() * n);
  }

  /** Standard normal (Box–Muller). */
  normal(): number {
    const radius = Math.sqrt(-2 * Math.log(1 - this.uniform()));
    return radius * Math.cos(2 * Math.PI * this.uniform());
  }

  /** One element, uniformly. */
  pick<T>(items: readonly T[]): T {
    return items[this.integer(items.length)];
  }

  /** A shuffled copy (Fisher–Yates). */
  shuffle<T>(items: readonly T[]): T[] {
    const copy = [...items];
    for (let i = copy.length - 1; i > 0; i--) {
      const j = this.integer(i + 1);
      [copy[i], copy[j]] = [copy[j], copy[i]];
    }
    return copy;
  }
}
