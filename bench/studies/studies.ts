/**
 * Small studies of learning rules on the recipe `transforms`: each compares arms that differ in the keys named here and
 * in nothing else, over the same seeds. What a study expects is written down before it is run; what came out is in
 * docs/studies/.
 */
export interface Arm {
  name: string;
  /** Flags of `rlvr train`. */
  keys: Record<string, string | number | boolean>;
}

export interface Study {
  name: string;
  question: string;
  /** What the literature leads one to expect. */
  expected: string;
  arms: Arm[];
  /** Metric that is drawn over the steps. */
  drawn: string;
  /** Columns of the table. */
  columns: string[];
  seeds: number[];
  steps: number;
}

const SEEDS = [1, 2, 3];
/** Several updates of a batch: only then do ratios leave 1 and clipping have something to do. */
const FOUR_UPDATES = { "updates.miniBatches": 4, "optimizer.learningRate": 3e-4 };

export const STUDIES: Study[] = [
  {
    name: "dynamic-sampling",
    question:
      "Does replacing groups without a difference in reward reach the same reward in fewer updates, and at which rollout cost?",
    expected: "Fewer updates, more rollouts (DAPO, arXiv 2503.14476).",
    arms: [
      { name: "every group", keys: { "objective.name": "dapo" } },
      { name: "dynamic sampling", keys: { "objective.name": "dapo", "rollouts.dynamicSampling": true } },
    ],
    drawn: "reward/mean",
    columns: ["pass@1 after", "steps to reward 0.65", "rollouts to reward 0.65", "rollouts sampled"],
    seeds: SEEDS,
    steps: 30,
  },
  {
    name: "length-normalisation",
    question: "Do wrong answers grow longer when each sequence's loss is divided by its length?",
    expected: "Yes under 1 / length, not under a constant (Dr.GRPO, arXiv 2503.20783).",
    arms: [
      { name: "sequence-mean", keys: { "objective.aggregation": "sequence-mean" } },
      { name: "constant-length", keys: { "objective.aggregation": "constant-length" } },
    ],
    drawn: "length/wrong",
    columns: ["pass@1 after", "length of wrong, first 5 steps", "length of wrong, last 5 steps"],
    seeds: SEEDS,
    steps: 30,
  },
  {
    name: "clip-higher",
    question: "Does a wider upper clip keep the policy's entropy up?",
    expected: "Entropy falls more slowly with 0.28 than with 0.2 (DAPO, arXiv 2503.14476).",
    arms: [
      { name: "0.2 / 0.2", keys: { ...FOUR_UPDATES, "objective.clipHigh": 0.2 } },
      { name: "0.2 / 0.28", keys: { ...FOUR_UPDATES, "objective.clipHigh": 0.28 } },
    ],
    drawn: "entropy",
    columns: ["pass@1 after", "entropy, last 5 steps", "clipped above, mean"],
    seeds: SEEDS,
    steps: 30,
  },
  {
    name: "clip-fractions",
    question: "How large a share of tokens is clipped under token ratios and under sequence ratios?",
    expected: "A share larger by orders of magnitude under sequence ratios (GSPO, arXiv 2507.18071).",
    arms: [
      { name: "grpo, 0.2 / 0.2", keys: { ...FOUR_UPDATES } },
      { name: "gspo, 3e-4 / 4e-4", keys: { ...FOUR_UPDATES, "objective.name": "gspo" } },
    ],
    drawn: "clip/total",
    columns: ["pass@1 after", "clipped, mean"],
    seeds: SEEDS,
    steps: 30,
  },
  {
    name: "kl-anchor",
    question: "What does a divergence term cost, and does a hard reset of the reference give it back?",
    expected: "The anchor slows learning; resets let it go on (ProRL, arXiv 2505.24864).",
    arms: [
      { name: "no KL term", keys: {} },
      { name: "β 0.1", keys: { "objective.klCoefficient": 0.1 } },
      { name: "β 0.1, reset every 10", keys: { "objective.klCoefficient": 0.1, "reference.resetEvery": 10 } },
    ],
    drawn: "reward/mean",
    columns: ["pass@1 after", "reward, last 5 steps", "kl to the reference, last 5 steps"],
    seeds: SEEDS,
    steps: 30,
  },
  {
    name: "advantage-scale",
    question: "Do the divisor of advantages and its degrees of freedom matter?",
    expected: "Little: scales are close, the batch's deviation marginally best (arXiv 2510.13786).",
    arms: [
      { name: "group, ddof 0", keys: {} },
      { name: "group, ddof 1", keys: { "objective.ddof": 1 } },
      { name: "batch", keys: { "objective.advantageScale": "batch" } },
      { name: "none", keys: { "objective.advantageScale": "none" } },
    ],
    drawn: "reward/mean",
    columns: ["pass@1 after", "reward, last 5 steps"],
    seeds: SEEDS,
    steps: 30,
  },
];
