/** Median of a list of numbers. */
export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)];
}

/** One line of a benchmark: what, and what was measured. */
export function row(what: string, ...measured: string[]): void {
  console.log(`${what.padEnd(64)} ${measured.join("; ")}`);
}
