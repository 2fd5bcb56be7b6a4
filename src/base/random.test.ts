import { describe, expect, it } from "vitest";
import { hash32, philox, RandomStream } from "./random.ts";

const words = (text: string) => text.split(" ").map((word) => Number.parseInt(word, 16));

describe("philox", () => {
  // Known answers of philox4x32, 10 rounds, published with the Random123 library.
  it.each([
    ["00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"],
    ["ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"],
    ["243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"],
  ])("counter %s under key %s", (counter, key, answer) => {
    const out = new Uint32Array(4);
    philox(words(counter), words(key), out);
    expect([...out]).toEqual(words(answer));
  });
});

const draws = (random: RandomStream, count: number) => Array.from({ length: count }, () => random.uint32());

describe("a stream", () => {
  it("gives the same numbers for the same names, whatever else was drawn", () => {
    const alone = draws(new RandomStream(5, "step", 3, "task"), 10);
    const other = new RandomStream(5, "step", 4, "task");
    const again = new RandomStream(5, "step", 3, "task");
    expect(
      Array.from({ length: 10 }, () => {
        other.uint32();
        return again.uint32();
      }),
    ).toEqual(alone);
  });

  it("differs by seed and by every name", () => {
    const keys: [number, ...(string | number)[]][] = [
      [1],
      [2],
      [2 ** 32 + 1],
      [1, "a"],
      [1, "b"],
      [1, 1],
      [1, "1"],
      [1, "a", "b"],
      [1, "b", "a"],
      [1, "a", "b", "c"],
      [1, "a", "c", "b"],
      [1, "a", "b", "c", 0],
      [1, "a", "b", "c", 1],
    ];
    const first = keys.map(([seed, ...names]) => draws(new RandomStream(seed, ...names), 4).join());
    expect(new Set(first).size).toBe(keys.length);
  });

  it("is independent of its neighbours: correlations are those of chance", () => {
    const size = 20_000;
    const streams = ["a", "b", "c", 0, 1, 2].map((name) => new RandomStream(9, "independence", name));
    const values = streams.map((random) => Array.from({ length: size }, () => random.uniform() - 0.5));
    for (let i = 0; i < values.length; i++) {
      for (let j = 0; j < i; j++) {
        const covariance = values[i].reduce((sum, value, n) => sum + value * values[j][n], 0) / size;
        // The variance of a uniform is 1/12; five standard errors of a correlation.
        expect(Math.abs(covariance * 12)).toBeLessThan(5 / Math.sqrt(size));
      }
    }
  });

  it("is uniform: chi-squared over 64 bins, for numbers and for integers", () => {
    const random = new RandomStream(3, "uniformity");
    const size = 64_000;
    for (const draw of [
      () => Math.floor(random.uniform() * 64),
      () => random.integer(64),
      () => random.uint32() & 63,
    ]) {
      const counts = new Array(64).fill(0);
      for (let n = 0; n < size; n++) counts[draw()]++;
      const chi2 = counts.reduce((sum, count) => sum + (count - size / 64) ** 2 / (size / 64), 0);
      // 63 degrees of freedom: mean 63, standard deviation 11.2.
      expect(chi2).toBeGreaterThan(25);
      expect(chi2).toBeLessThan(110);
    }
  });

  it("draws uniforms below 1 and normals of mean 0 and variance 1", () => {
    const random = new RandomStream(4, "moments");
    const normals = Array.from({ length: 50_000 }, () => random.normal());
    const moment = (power: number) => normals.reduce((sum, value) => sum + value ** power, 0) / normals.length;
    expect(moment(1)).toBeCloseTo(0, 1);
    expect(moment(2)).toBeCloseTo(1, 1);
    expect(moment(4)).toBeGreaterThan(2.8);
    expect(moment(4)).toBeLessThan(3.2);
    for (let n = 0; n < 10_000; n++) {
      const value = random.uniform();
      expect(value >= 0 && value < 1).toBe(true);
    }
  });

  it("shuffles a copy into every order, equally often", () => {
    const counts = new Map<string, number>();
    const items = ["a", "b", "c"];
    for (let n = 0; n < 6000; n++) {
      const order = new RandomStream(1, "order", n).shuffle(items).join("");
      counts.set(order, (counts.get(order) ?? 0) + 1);
    }
    expect(items).toEqual(["a", "b", "c"]);
    expect(counts.size).toBe(6);
    for (const count of counts.values()) expect(Math.abs(count - 1000)).toBeLessThan(150);
    expect(items).toContain(new RandomStream(1).pick(items));
  });
});

describe("hash32", () => {
  it("spreads short names over 32 bits without a collision", () => {
    const hashes = Array.from({ length: 10_000 }, (_, n) => hash32(`task-${n}`));
    expect(new Set(hashes).size).toBe(10_000);
    expect(hashes.every((hash) => Number.isInteger(hash) && hash >= 0 && hash < 2 ** 32)).toBe(true);
    for (let bit = 0; bit < 32; bit++) {
      const ones = hashes.filter((hash) => (hash >>> bit) & 1).length;
      expect(Math.abs(ones - 5000)).toBeLessThan(250);
    }
  });
});
