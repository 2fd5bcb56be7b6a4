import { RlvrError } from "../base/errors.ts";

function check(n: number, c: number, k: number): void {
  const valid = [n, c, k].every(Number.isInteger) && c >= 0 && c <= n && k >= 1 && k <= n;
  if (!valid) {
    throw new RlvrError(
      "RLVR_PASS_AT_K",
      `pass@k: expected integers 0 <= c <= n and 1 <= k <= n, got n ${n}, c ${c}, k ${k}`,
      {
        next: "take at least k samples of each task",
      },
    );
  }
}

/**
 * Unbiased estimate of the chance that at least one of `k` samples passes, from `c` passes among `n` samples:
 * 1 - C(n-c, k) / C(n, k), as a product so that no binomial overflows.
 */
export function passAtK(n: number, c: number, k: number): number {
  check(n, c, k);
  if (n - c < k) return 1;
  // C(n-c, k) / C(n, k) has k factors this way and c the other way: the shorter product rounds less.
  let allFail = 1;
  if (k <= c) {
    for (let i = 0; i < k; i++) allFail *= (n - c - i) / (n - i);
  } else {
    for (let i = 0; i < c; i++) allFail *= (n - k - i) / (n - i);
  }
  return 1 - allFail;
}

/** Unbiased estimate of the chance that all of `k` samples pass: C(c, k) / C(n, k). */
export function passHatK(n: number, c: number, k: number): number {
  check(n, c, k);
  let allPass = 1;
  for (let i = 0; i < k; i++) allPass *= Math.max(0, c - i) / (n - i);
  return allPass;
}
