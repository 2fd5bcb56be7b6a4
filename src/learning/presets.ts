/** Every objective as data: the constants of the shared composition in `compose.ts`, and of its advantages. */
import type { AdvantageOptions } from "./advantages.ts";
import type { Aggregation } from "./aggregation.ts";
import type { CorrectionOptions } from "./correction.ts";
import type { KlEstimator } from "./kl.ts";
import type { RatioKind } from "./ratio.ts";
import type { SurrogateOptions } from "./surrogate.ts";

export interface ObjectiveOptions extends SurrogateOptions, CorrectionOptions {
  /** What the ratio of a token is; see `ratio.ts`. */
  ratio: RatioKind;
  /** How token terms become one loss; see `aggregation.ts`. */
  aggregation: Aggregation;
  /** `constant-length`: tokens that each sequence's sum is divided by; the completion limit, usually. */
  constantLength: number;
  /** β: weight of the divergence to the reference policy. */
  klCoefficient: number;
  klEstimator: KlEstimator;
  /**
   * Whether the divergence of each token is weighted by its ratio, which then has a derivative too: with `k3` and token
   * ratios, an unbiased gradient of KL(π ‖ π_ref) off-policy as well (arXiv 2512.02556).
   */
  klRatio: boolean;
  /** Weight of the entropy that is added to what is maximised. */
  entropyCoefficient: number;
}

export type ObjectiveName = "grpo" | "dr-grpo" | "dapo" | "gspo" | "gspo-token" | "cispo" | "rloo" | "reinforce";

const GRPO: Readonly<ObjectiveOptions> = {
  ratio: "token",
  surrogate: "clipped",
  clipLow: 0.2,
  clipHigh: 0.2,
  dualClip: null,
  ratioCap: 5,
  ratioFloor: 0,
  correction: "none",
  correctionLevel: "token",
  correctionCap: 2,
  correctionFloor: null,
  aggregation: "sequence-mean",
  constantLength: 1,
  klCoefficient: 0,
  klEstimator: "k3",
  klRatio: false,
  entropyCoefficient: 0,
};

export const PRESETS: Readonly<Record<ObjectiveName, Readonly<ObjectiveOptions>>> = {
  /** arXiv 2402.03300, with β 0 in place of 0.04. */
  grpo: GRPO,
  /** arXiv 2503.20783: no division by lengths. */
  "dr-grpo": { ...GRPO, aggregation: "constant-length" },
  /** arXiv 2503.14476: clip-higher and a token mean, over the batch as in all code bases; eq. 8 is `prompt-mean`. */
  dapo: { ...GRPO, clipHigh: 0.28, aggregation: "token-mean" },
  /** arXiv 2507.18071. */
  gspo: { ...GRPO, ratio: "sequence", clipLow: 3e-4, clipHigh: 4e-4 },
  "gspo-token": { ...GRPO, ratio: "sequence-token", clipLow: 3e-4, clipHigh: 4e-4 },
  /** arXiv 2506.13585; the cap is what TRL advises, and 4, 5 and 8 were no different in arXiv 2510.13786. */
  cispo: { ...GRPO, surrogate: "capped", aggregation: "token-mean" },
  /** arXiv 2402.14740: a completion is one action, its log-probability the sum over tokens. */
  rloo: { ...GRPO, surrogate: "plain", aggregation: "constant-length" },
  /** Williams, 1992, with the mean of the group as baseline. */
  reinforce: { ...GRPO, surrogate: "plain", aggregation: "constant-length" },
};

const GROUP: Readonly<Required<AdvantageOptions>> = { scale: "group", ddof: 0, epsilon: 1e-6, baseline: "mean" };
const CENTRED: Readonly<Required<AdvantageOptions>> = { ...GROUP, scale: "none" };

/** The advantages that each objective is published with, for `groupAdvantages`. */
export const ADVANTAGE_PRESETS: Readonly<Record<ObjectiveName, Readonly<Required<AdvantageOptions>>>> = {
  grpo: GROUP,
  "dr-grpo": CENTRED,
  dapo: GROUP,
  gspo: GROUP,
  "gspo-token": GROUP,
  cispo: GROUP,
  rloo: { ...CENTRED, baseline: "leave-one-out" },
  reinforce: CENTRED,
};
