/**
 * Estimators of the divergence KL(π ‖ π_ref) from one sample, with d = log π − log π_ref
 * (J. Schulman, "Approximating KL divergence", 2020): k1 = d, k2 = d²/2, k3 = exp(−d) − 1 + d.
 * k1 is unbiased and may be negative; k3 is unbiased and never negative; k2 is biased with a small variance.
 */
export type KlEstimator = "k1" | "k2" | "k3";

/** exp(20): beyond this, an exponential says only that the policies have nothing in common. */
export const LOG_RATIO_LIMIT = 20;

/** Value of the estimator at d, and its derivative with respect to log π. */
export function klTerm(estimator: KlEstimator, d: number): { value: number; derivative: number } {
  if (estimator === "k1") return { value: d, derivative: 1 };
  if (estimator === "k2") return { value: (d * d) / 2, derivative: d };
  // Clamped so that one far-off token cannot make the batch infinite; flat beyond the limit.
  if (d < -LOG_RATIO_LIMIT) return { value: Math.exp(LOG_RATIO_LIMIT) - 1 - LOG_RATIO_LIMIT, derivative: 0 };
  return { value: Math.expm1(-d) + d, derivative: -Math.expm1(-d) };
}
