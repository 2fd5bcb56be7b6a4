/**
 * Several reward components and one advantage. With weights v_k:
 *
 *   sum-then-normalize   r_i = Σ_k v_k·r_ik, then advantages of r as usual
 *   normalize-then-sum   A_i = Σ_k v_k·A_ik, with A_ik the advantages of component k alone in its group; then, over the
 *                        batch, (A_i − mean) / (std + ε). GDPO, arXiv 2601.05242
 *
 * The first lets the component with the widest spread drown the others; the second gives each a spread of 1 first.
 */
import { RlvrError } from "../base/errors.ts";
import { type AdvantageOptions, allEqual, batchAdvantages, standardDeviation } from "./advantages.ts";

export interface ComponentOptions extends AdvantageOptions {
  mode: "sum-then-normalize" | "normalize-then-sum";
  /** Weight of each component; one without a weight has no part. */
  weights: Readonly<Record<string, number>>;
  /** `normalize-then-sum`: whether the sum is normalised over the batch once more; true unless set. */
  normalizeBatch?: boolean;
}

export interface CombinedRewards {
  /** Advantage of each rollout, group by group. */
  advantages: number[][];
  /** Σ_k v_k·r_ik of each rollout, group by group. */
  rewards: number[][];
  /**
   * For the log, by component, over the batch: mean and deviation as given, and after normalisation in the groups. A
   * normalised deviation of 0 says that the component told no group's completions apart.
   */
  components: Record<string, { mean: number; std: number; normalizedMean: number; normalizedStd: number }>;
}

/**
 * Advantages of rollouts that were scored in several ways. `groups[g][i]` holds the components of rollout i of group g.
 * Throws `RLVR_REWARD` where a rollout lacks a component with a weight, or a value is not finite.
 *
 * @example
 * combineRewards([[{ right: 1, form: 1 }, { right: 0, form: 1 }]], {
 *   mode: "normalize-then-sum", weights: { right: 1, form: 0.1 }, scale: "group", ddof: 0, epsilon: 1e-6,
 * });
 */
export function combineRewards(
  groups: readonly (readonly Readonly<Record<string, number>>[])[],
  options: ComponentOptions,
): CombinedRewards {
  const names = Object.keys(options.weights);
  if (names.length === 0 || !Object.values(options.weights).every(Number.isFinite)) {
    throw new RlvrError("RLVR_REWARD", `components: expected finite weights, got ${JSON.stringify(options.weights)}`, {
      next: "name at least one component of the verdicts and its weight",
    });
  }
  const scores = Object.fromEntries(names.map((name) => [name, groups.map((group) => group.map(scoreOf(name)))]));
  const normalized = Object.fromEntries(names.map((name) => [name, batchAdvantages(scores[name], options)]));
  const rewards = weightedSum(scores, options.weights, groups);
  const advantages =
    options.mode === "sum-then-normalize"
      ? batchAdvantages(rewards, options)
      : normalizeBatch(weightedSum(normalized, options.weights, groups), options);
  const components = Object.fromEntries(
    names.map((name) => {
      const raw = scores[name].flat();
      const scaled = normalized[name].flat();
      const std = standardDeviation(raw, options.ddof);
      const normalizedStd = standardDeviation(scaled, options.ddof);
      return [name, { mean: mean(raw), std, normalizedMean: mean(scaled), normalizedStd }];
    }),
  );
  return { advantages, rewards, components };
}

function scoreOf(name: string) {
  return (components: Readonly<Record<string, number>>): number => {
    const value = components[name];
    if (Number.isFinite(value)) return value;
    throw new RlvrError("RLVR_REWARD", `components: expected a finite number for ${name}, got ${value}`, {
      next: `the rollout has ${Object.keys(components).join(", ") || "none"}; leave out what could not be judged`,
    });
  };
}

function weightedSum(
  parts: Readonly<Record<string, number[][]>>,
  weights: Readonly<Record<string, number>>,
  groups: readonly (readonly unknown[])[],
): number[][] {
  return groups.map((group, g) =>
    group.map((_, i) => Object.entries(weights).reduce((sum, [name, weight]) => sum + weight * parts[name][g][i], 0)),
  );
}

function normalizeBatch(advantages: number[][], options: ComponentOptions): number[][] {
  if (options.normalizeBatch === false) return advantages;
  const all = advantages.flat();
  const deviation = standardDeviation(all, options.ddof);
  // Components that cancel leave only rounding, which must not be blown up where ε is 0.
  if (allEqual(all) || deviation < 1e-12) return advantages.map((group) => group.map(() => 0));
  const center = mean(all);
  return advantages.map((group) => group.map((value) => (value - center) / (deviation + options.epsilon)));
}

function mean(values: readonly number[]): number {
  return values.length > 0 ? values.reduce((sum, value) => sum + value, 0) / values.length : 0;
}
