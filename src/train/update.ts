import { RandomStream } from "../base/random.ts";
import type { RlvrConfig } from "../config/index.ts";
import { scheduledRate, type TokenSequence } from "../engine/index.ts";
import type { Objective } from "../learning/objective.ts";
import type { Policy } from "../policy/policy.ts";
import type { Rollout } from "../rollouts/rollout.ts";

/** A rollout with its advantage; rollouts that could not be judged are not among them. */
export interface Scored {
  rollout: Rollout;
  advantage: number;
}

export interface UpdateOptions {
  config: RlvrConfig;
  /** From 0. */
  step: number;
  /** Factor of the learning rate: halved by each automatic return. */
  rateScale: number;
  objective: Objective;
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
 * The check that decoding and training agree is made on the first part, before anything is changed; above
 * `alerts.logprobGapStop` nothing is. A part without any gradient leaves the weights as they are: the optimiser's
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
  for (let epoch = 0; epoch < config.updates.epochsPerStep; epoch++) {
    const order =
      epoch === 0 ? [...scored] : new RandomStream(config.seed, "mini-batches", step, epoch).shuffle(scored);
    for (const part of split(order, config.updates.miniBatches)) {
      const batch = await scoreBatch(policy, part, options);
      agreement ??= compare(batch);
      if (agreement.gap > config.alerts.logprobGapStop) return report(false, {});
      const { loss, gradient, stats } = options.objective(batch);
      const broken = gradient.findIndex((value) => !Number.isFinite(value));
      if (broken >= 0 || !Number.isFinite(loss)) {
        return report(false, { loss }, batch.rollouts.findLast(({ at }) => at <= broken)?.rollout);
      }
      let gradNorm = 0;
      if (gradient.some((value) => value !== 0)) {
        await policy.backward(Float32Array.from(gradient));
        const result = await policy.update({ ...config.optimizer, learningRate });
        gradNorm = result.gradNorm;
        if (!result.applied) return report(false, { "optimizer/grad-norm": gradNorm });
      }
      const { entropy, tokens } = batch;
      sums.add({ loss, entropy, "optimizer/grad-norm": gradNorm, "tokens/trained": tokens, ...stats });
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

function compare(batch: { rollouts: readonly { rollout: Rollout; at: number }[]; logprobs: Float32Array }): Agreement {
  const agreement: Agreement = { gap: 0 };
  for (const { rollout, at } of batch.rollouts) {
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

/** The arrays of the objective for these rollouts, with log-probabilities under the policy as it is now. */
async function scoreBatch(policy: Policy, part: readonly Scored[], options: UpdateOptions) {
  const { temperature } = options.config.rollouts;
  const useReference = options.config.objective.klCoefficient > 0;
  const sequences = part.map(
    ({ rollout, advantage }): TokenSequence => ({
      tokens: [...rollout.prompt, ...rollout.tokens],
      scoreFrom: rollout.prompt.length,
      frozen: advantage === 0 && !useReference,
    }),
  );
  const { logprobs, entropies, offsets } = await policy.logprobs(sequences, { temperature, keep: true });
  const total = logprobs.length;
  const rolloutLogprobs = Float32Array.from(part.flatMap(({ rollout }) => rollout.logprobs));
  const advantages = new Float32Array(total);
  for (const [s, { advantage }] of part.entries()) advantages.fill(advantage, offsets[s], offsets[s + 1]);
  return {
    logprobs,
    rolloutLogprobs,
    ...(useReference
      ? {
          referenceLogprobs: (await policy.logprobs(sequences, { temperature, keep: false, reference: true })).logprobs,
        }
      : {}),
    advantages,
    mask: new Float32Array(total).fill(1),
    offsets,
    rollouts: part.map(({ rollout }, s) => ({ rollout, at: offsets[s] })),
    entropy: entropies.reduce((sum, value) => sum + value, 0) / Math.max(1, total),
    tokens: sequences.reduce((sum, { tokens }) => sum + tokens.length, 0),
  };
}

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
      [...this.#sums].map(([name, sum]) => [name, name.startsWith("tokens/") ? sum : sum / Math.max(1, this.#count)]),
    );
  }
}
