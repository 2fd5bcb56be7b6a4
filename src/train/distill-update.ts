/** The updates of on-policy distillation; formulas in `distill-on-policy.ts`. */
import { RlvrError } from "../base/errors.ts";
import { RandomStream } from "../base/random.ts";
import type { RlvrConfig } from "../config/index.ts";
import { type Divergence, paddingShare, type TokenSequence } from "../engine/index.ts";
import { createObjective } from "../learning/objectives.ts";
import type { TaughtPolicy } from "../policy/policy.ts";
import type { Rollout } from "../rollouts/rollout.ts";

const sampledReverseKl = createObjective("reinforce", { surrogate: "weighted", aggregation: "token-mean" });

export interface StudentUpdate {
  updates: number;
  /** Through the student forwards and backwards, and through the teacher. */
  tokens: number;
  /** Those with padding. */
  positions: number;
  /** Largest difference of a token's log-probability between sampling and training, in nats. */
  gap: number;
  /** Means over the updates. */
  metrics: Record<string, number>;
}

/**
 * All updates of one step: `updates.epochsPerStep` passes over the rollouts, in `updates.miniBatches` parts each. Throws
 * `RLVR_NON_FINITE`, and `RLVR_STOPPED` where training does not compute what was sampled from.
 */
export async function updateStudent(
  student: TaughtPolicy,
  rollouts: readonly Rollout[],
  options: { config: RlvrConfig; step: number; learningRate: number; full: Divergence | undefined },
): Promise<StudentUpdate> {
  const { config, step, learningRate, full } = options;
  const { temperature, optimizer } = config.distill;
  const done: StudentUpdate = { updates: 0, tokens: 0, positions: 0, gap: 0, metrics: {} };
  for (let epoch = 0; epoch < config.updates.epochsPerStep; epoch++) {
    const names = [config.seed, "mini-batches", step - 1, epoch] as const;
    const order = epoch === 0 ? rollouts : new RandomStream(...names).shuffle(rollouts);
    const size = Math.ceil(order.length / config.updates.miniBatches);
    for (let from = 0; from < order.length; from += size) {
      const part = order.slice(from, from + size);
      const sequences = part.map(
        ({ prompt, tokens }): TokenSequence => ({ tokens: [...prompt, ...tokens], scoreFrom: prompt.length }),
      );
      const result = full
        ? await exactGradient(student, part, sequences, temperature, full)
        : await sampledGradient(student, part, sequences, temperature);
      if (done.updates === 0) done.gap = result.gap;
      if (done.gap > config.alerts.logprobGapStop) throw apart(step, done.gap);
      const { gradNorm, applied } = await student.update({ ...optimizer, learningRate });
      if (!applied || !Number.isFinite(result.metrics.loss)) throw notFinite(step, gradNorm);
      for (const [name, value] of Object.entries({ ...result.metrics, "optimizer/grad-norm": gradNorm })) {
        done.metrics[name] = (done.metrics[name] ?? 0) + value;
      }
      const tokens = sequences.reduce((sum, sequence) => sum + sequence.tokens.length, 0);
      done.updates++;
      done.tokens += tokens;
      done.positions += tokens / (1 - paddingShare(sequences, config.engine.microBatchTokens));
    }
  }
  for (const name of Object.keys(done.metrics)) done.metrics[name] /= done.updates;
  return done;
}

interface TokenGradient {
  metrics: { loss: number } & Record<string, number>;
  /** Largest difference of a token's log-probability between sampling and training, before the first update. */
  gap: number;
}

/** Adds the gradient of the sampled reverse KL to the student's. */
async function sampledGradient(
  student: TaughtPolicy,
  part: readonly Rollout[],
  sequences: readonly TokenSequence[],
  temperature: number,
): Promise<TokenGradient> {
  const { logprobs: teacherLogprobs } = await student.teacherLogprobs(sequences, { temperature });
  const { logprobs, entropies, offsets } = await student.logprobs(sequences, { temperature, keep: true });
  const rolloutLogprobs = Float32Array.from(part.flatMap((rollout) => rollout.logprobs));
  const advantages = rolloutLogprobs.map((logprob, t) => teacherLogprobs[t] - logprob);
  const mask = new Float32Array(logprobs.length).fill(1);
  const { loss, gradient } = sampledReverseKl({ logprobs, rolloutLogprobs, advantages, mask, offsets });
  await student.backward(Float32Array.from(gradient));
  return {
    metrics: { loss, entropy: mean(entropies), ...estimates(logprobs, teacherLogprobs) },
    gap: widest(logprobs, rolloutLogprobs),
  };
}

/** Adds the gradient of the mean divergence over the whole distribution. */
async function exactGradient(
  student: TaughtPolicy,
  part: readonly Rollout[],
  sequences: readonly TokenSequence[],
  temperature: number,
  divergence: Divergence,
): Promise<TokenGradient> {
  const scores = await student.logprobs(sequences, { temperature, keep: true, divergence });
  const { logprobs, entropies } = scores;
  const [divergences, teacherLogprobs] = [scores.divergences as Float32Array, scores.teacherLogprobs as Float32Array];
  const count = logprobs.length;
  await student.backwardDivergence(new Float32Array(count), new Float32Array(count).fill(1 / count));
  const loss = mean(divergences);
  return {
    metrics: { loss, "distill/divergence": loss, entropy: mean(entropies), ...estimates(logprobs, teacherLogprobs) },
    gap: widest(logprobs, Float32Array.from(part.flatMap((rollout) => rollout.logprobs))),
  };
}

/** Reverse KL over the sampled tokens, by the plain estimator and by the one that is never negative. */
function estimates(logprobs: Float32Array, teacherLogprobs: Float32Array): Record<string, number> {
  const differences = logprobs.map((logprob, t) => logprob - teacherLogprobs[t]);
  return {
    "distill/reverse-kl": mean(differences),
    "distill/reverse-kl-k3": mean(differences.map((d) => Math.expm1(-d) + d)),
  };
}

function mean(values: Float32Array): number {
  return values.reduce((sum, value) => sum + value, 0) / Math.max(1, values.length);
}

function widest(a: Float32Array, b: Float32Array): number {
  return a.reduce((most, value, t) => Math.max(most, Math.abs(value - b[t])), 0);
}

function notFinite(step: number, gradNorm: number): RlvrError {
  const message = `distill: expected a finite loss and gradient, got a gradient norm of ${gradNorm} at step ${step}`;
  const next = "lower distill.optimizer.learningRate; the last checkpoint is unharmed";
  return new RlvrError("RLVR_NON_FINITE", message, { next });
}

function apart(step: number, gap: number): RlvrError {
  const message = `distill: expected sampling and training to agree on log-probabilities, got a gap of ${gap.toFixed(3)} nats at step ${step}`;
  const next = "this is a fault of the engine or of damaged weights; alerts.logprobGapStop is the limit";
  return new RlvrError("RLVR_STOPPED", message, { next });
}
