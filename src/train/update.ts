import { RandomStream } from "../base/random.ts";
import type { RlvrConfig } from "../config/index.ts";
import { scheduledRate } from "../engine/index.ts";
import type { Objective } from "../learning/objective.ts";
import type { Policy } from "../policy/policy.ts";
import type { Rollout } from "../rollouts/rollout.ts";
import { ownLogprobs, type ScoredTokens, scoreTokens } from "./score-batch.ts";
import type { Scored } from "./scoring.ts";

export interface UpdateOptions {
  config: RlvrConfig;
  /** From 0. */
  step: number;
  /** Factor of the learning rate: halved by each automatic return. */
  rateScale: number;
  objective: Objective;
  /** Weight of the divergence from the reference, as it is adapted now. */
  klCoefficient: number;
}

export interface UpdateReport {
  /** Metrics by the names of `runs/metrics.ts`. */
  metrics: Record<string, number>;
  /** False where a non-finite number made the update be refused; `culprit` is the first rollout concerned. */
  applied: boolean;
  culprit?: Rollout;
  /** Rollout with the largest gap between decoding and training. */
  widestGap?: Rollout;
}

/**
 * All updates of one step: `updates.epochsPerStep` passes over the rollouts, in `updates.miniBatches` parts each.
 * The check that decoding and training agree is made on the first part, before anything is changed, over rollouts of the
 * present weights; above `alerts.logprobGapStop` nothing is changed. A part without any gradient leaves the weights as they are: the optimiser's
 * momentum alone must not move them.
 */
export async function updatePolicy(
  policy: Policy,
  scored: readonly Scored[],
  options: UpdateOptions,
): Promise<UpdateReport> {
  const { config, step } = options;
  const learningRate = options.rateScale * scheduledRate(config.optimizer, step, config.steps);
  const sums = new Sums();
  let agreement: Agreement | undefined;
  const report = (applied: boolean, metrics: Record<string, number>, culprit?: Rollout): UpdateReport => ({
    metrics: { ...sums.means(), ...metrics, "logprob/gap": agreement?.gap ?? 0 },
    applied,
    culprit,
    widestGap: agreement?.widest,
  });
  const rollouts = scored.map(({ rollout }) => rollout);
  const oldLogprobs = config.objective.correction === "none" ? undefined : await ownLogprobs(policy, rollouts);
  const scoring = { config, klCoefficient: options.klCoefficient, oldLogprobs };
  for (let epoch = 0; epoch < config.updates.epochsPerStep; epoch++) {
    const order =
      epoch === 0 ? [...scored] : new RandomStream(config.seed, "mini-batches", step, epoch).shuffle(scored);
    for (const part of split(order, config.updates.miniBatches)) {
      const batch = await scoreTokens(policy, part, scoring);
      agreement ??= compare(batch, step);
      if (agreement.gap > config.alerts.logprobGapStop) return report(false, {});
      const { loss, gradient, entropyGradient, stats } = options.objective(batch);
      const broken = gradient.findIndex((value) => !Number.isFinite(value));
      if (broken >= 0 || !Number.isFinite(loss)) {
        return report(false, { loss }, batch.rollouts.findLast(({ at }) => at <= broken)?.rollout);
      }
      let gradNorm = 0;
      let updates = 0;
      if (gradient.some((value) => value !== 0) || entropyGradient?.some((value) => value !== 0)) {
        await policy.backward(Float32Array.from(gradient), entropyGradient && Float32Array.from(entropyGradient));
        const result = await policy.update({ ...config.optimizer, learningRate });
        gradNorm = result.gradNorm;
        updates = 1;
        if (!result.applied) return report(false, { "optimizer/grad-norm": gradNorm });
      }
      sums.add({
        loss,
        entropy: batch.entropy,
        "optimizer/grad-norm": gradNorm,
        "optimizer/updates": updates,
        "tokens/trained": batch.trainedTokens,
        "tokens/forward": batch.forwardTokens,
        ...stats,
      });
    }
  }
  policy.endStep(step + 1);
  return report(true, { "optimizer/learning-rate": learningRate });
}

interface Agreement {
  /** Largest difference of a token's log-probability between decoding and training, in nats. */
  gap: number;
  widest?: Rollout;
}

/** Older rollouts differ because the weights do: they say nothing about the two paths. */
function compare(batch: Pick<ScoredTokens, "rollouts" | "logprobs">, step: number): Agreement {
  const agreement: Agreement = { gap: 0 };
  for (const { rollout, at } of batch.rollouts) {
    if (rollout.policy.step !== step) continue;
    rollout.logprobs.forEach((logprob, t) => {
      const difference = Math.abs(logprob - batch.logprobs[at + t]);
      if (difference <= agreement.gap || Number.isNaN(agreement.gap)) return; // NaN is the widest of all
      agreement.gap = difference;
      agreement.widest = rollout;
    });
  }
  return agreement;
}

/** Consecutive parts of about equal size. */
function split<T>(items: readonly T[], parts: number): T[][] {
  const size = Math.ceil(items.length / parts);
  return Array.from({ length: parts }, (_, i) => items.slice(i * size, (i + 1) * size)).filter(
    (part) => part.length > 0,
  );
}

/** Metrics that are counts: they are added over the updates of a step. */
const COUNTS = /^tokens\/|^optimizer\/updates$/;

/** Adds up metrics over updates; counts are added, everything else is averaged. */
class Sums {
  readonly #sums = new Map<string, number>();
  #count = 0;

  add(metrics: Record<string, number>): void {
    this.#count++;
    for (const [name, value] of Object.entries(metrics)) this.#sums.set(name, (this.#sums.get(name) ?? 0) + value);
  }

  means(): Record<string, number> {
    return Object.fromEntries(
      [...this.#sums].map(([name, sum]) => [name, COUNTS.test(name) ? sum : sum / Math.max(1, this.#count)]),
    );
  }
}
