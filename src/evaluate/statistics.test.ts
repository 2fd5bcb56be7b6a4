import { describe, expect, test } from "vitest";
import { RandomStream } from "../base/random.ts";
import { bootstrapDifference, bootstrapMean } from "./intervals.ts";
import { passAtK, passHatK } from "./pass-at-k.ts";

function choose(n: number, k: number): bigint {
  if (k > n) return 0n;
  let value = 1n;
  for (let i = 1; i <= k; i++) value = (value * BigInt(n - k + i)) / BigInt(i);
  return value;
}

/** An exact fraction as the nearest double: enough bits for 1e-15. */
const ratio = (top: bigint, bottom: bigint) => Number((top << 80n) / bottom) / 2 ** 80;

describe("pass@k and pass^k", () => {
  test("equal exact rational arithmetic for all n up to 64", () => {
    let worst = 0;
    for (let n = 1; n <= 64; n++) {
      for (let c = 0; c <= n; c++) {
        for (let k = 1; k <= n; k++) {
          const all = choose(n, k);
          worst = Math.max(
            worst,
            Math.abs(passAtK(n, c, k) - ratio(all - choose(n - c, k), all)),
            Math.abs(passHatK(n, c, k) - ratio(choose(c, k), all)),
          );
        }
      }
    }
    expect(worst).toBeLessThan(1e-14);
  });

  test("have their known ends", () => {
    expect(passAtK(8, 3, 1)).toBeCloseTo(3 / 8, 15);
    expect(passAtK(8, 0, 8)).toBe(0);
    expect(passAtK(8, 1, 8)).toBe(1);
    expect(passHatK(8, 8, 8)).toBe(1);
    expect(passHatK(8, 7, 8)).toBe(0);
    expect(() => passAtK(4, 1, 5)).toThrowError(/expected integers/);
    expect(() => passAtK(4, 5, 1)).toThrowError(/got n 4, c 5, k 1/);
  });
});

describe("bootstrap", () => {
  const values = Array.from({ length: 40 }, (_, i) => (i % 9) / 8);

  test("is the same for the same seed, and another for another", () => {
    const first = bootstrapMean(values, { seed: 1 });
    expect(bootstrapMean(values, { seed: 1 })).toEqual(first);
    expect(bootstrapMean(values, { seed: 2 })).not.toEqual(first);
    expect(first.low).toBeLessThan(first.estimate);
    expect(first.estimate).toBeLessThan(first.high);
    const wider = bootstrapMean(values, { seed: 1, level: 0.99 });
    expect(wider.high - wider.low).toBeGreaterThan(first.high - first.low);
  });

  test("has the width that theory gives for a mean", () => {
    const mean = values.reduce((sum, value) => sum + value) / values.length;
    const variance = values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / values.length;
    const { low, high, estimate } = bootstrapMean(values, { seed: 3 });
    expect(estimate).toBeCloseTo(mean, 14);
    const width = 2 * 1.96 * Math.sqrt(variance / values.length);
    expect(Math.abs((high - low) / width - 1)).toBeLessThan(0.05);
  });

  test("covers the true mean about as often as it says", () => {
    let covered = 0;
    const repeats = 300;
    for (let repeat = 0; repeat < repeats; repeat++) {
      const random = new RandomStream(repeat, "tasks");
      // Each task has its own chance of passing (uniform, mean 0.5) and 4 samples.
      const shares = Array.from({ length: 50 }, () => {
        const chance = random.uniform();
        return [1, 2, 3, 4].reduce((sum) => sum + (random.uniform() < chance ? 0.25 : 0), 0);
      });
      const { low, high } = bootstrapMean(shares, { seed: repeat, resamples: 400 });
      if (low <= 0.5 && 0.5 <= high) covered++;
    }
    expect(covered / repeats).toBeGreaterThan(0.9);
    expect(covered / repeats).toBeLessThan(0.985);
  });

  test("of paired differences is narrower than the two apart", () => {
    const after = values.map((value, i) => Math.min(1, value + (i % 3) / 20));
    const difference = bootstrapDifference(values, after, { seed: 1 });
    const apart = bootstrapMean(values, { seed: 1 });
    expect(difference.low).toBeGreaterThan(0);
    expect(difference.high - difference.low).toBeLessThan((apart.high - apart.low) / 4);
    expect(() => bootstrapDifference([1], [1, 2], { seed: 1 })).toThrowError(/same tasks/);
    expect(() => bootstrapMean([], { seed: 1 })).toThrowError(/at least one task/);
  });
});
