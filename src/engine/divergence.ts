/**
 * Divergence between the distributions of two models, a student's and a teacher's, at each scored token: computed in
 * the head from both models' hidden states, a chunk of tokens at a time, with its derivative for the student's side.
 *
 *   forward   KL(T‖S)  = Σ_v T·(log T − log S)
 *   reverse   KL(S‖T)  = Σ_v S·(log S − log T)
 *   jsd       β·KL(T‖M) + (1 − β)·KL(S‖M),  M = (1 − β)·S + β·T;  β = 0: forward, β = 1: reverse
 *
 * Sums are over the vocabulary that both models have: where one pads its own, both distributions are taken over the
 * ids below the smaller size.
 */
import type { ModelConfig } from "../model/config.ts";
import { vjp } from "./autodiff.ts";
import { headWeights, logits, weightInputs } from "./decoder.ts";
import { type CompiledGraph, compileGraph, input, scalar, type Value } from "./graph.ts";
import * as ops from "./ops.ts";

export interface Divergence {
  kind: "forward-kl" | "reverse-kl" | "jsd";
  /** Weight of the teacher in the mixture, in [0, 1]; of `jsd` only. */
  beta?: number;
}

/** Added to the mixture before its logarithm: what both models give less than this counts as 0 and not as 0·∞. */
const SMALLEST = 1e-37;

/** Σ_v p·(log p − log q), [T, 1]. */
function kl(p: Value, logP: Value, logQ: Value): Value {
  return ops.reduceSum(ops.mul(p, ops.sub(logP, logQ)), [1], true);
}

/** Divergence of each row, [T, 1], from log-probabilities [T, V]. */
export function divergenceOf(student: Value, teacher: Value, { kind, beta = 0.5 }: Divergence): Value {
  const s = ops.exp(student);
  const t = ops.exp(teacher);
  // At its ends the generalised divergence is 0; the limits that are meant are those of it / β and it / (1 − β).
  if (kind === "forward-kl" || (kind === "jsd" && beta === 0)) return kl(t, teacher, student);
  if (kind === "reverse-kl" || (kind === "jsd" && beta === 1)) return kl(s, student, teacher);
  const mixture = ops.add(ops.mul(s, scalar(1 - beta)), ops.mul(t, scalar(beta)));
  const logMixture = ops.log(ops.add(mixture, scalar(SMALLEST)));
  return ops.add(
    ops.mul(kl(t, teacher, logMixture), scalar(beta)),
    ops.mul(kl(s, student, logMixture), scalar(1 - beta)),
  );
}

export interface DivergenceGraphs {
  /**
   * Inputs: those of the head, and the teacher's as `teacher.h` [T, d], `teacher.finalNorm`, `teacher.head`.
   * Outputs, [T, 1] each: logprobs, entropies, teacherLogprobs, divergences.
   */
  forward: CompiledGraph;
  /** Inputs as forward, and dLogprobs and dDivergences [T, 1]. Outputs: dh, d.finalNorm, d.head of the student. */
  backward: CompiledGraph;
}

export function buildDivergenceHead(
  config: ModelConfig,
  teacher: ModelConfig,
  divergence: Divergence,
): DivergenceGraphs {
  const h = input("h", ["T", config.hiddenSize]);
  const w = weightInputs(headWeights(config));
  const inverseTemperature = input("inverseTemperature", ["T", 1]);
  const targets = input("targets", ["T", 1], "int64");
  const studentLogits = logits(h, w, config, inverseTemperature);
  const theirs = weightInputs(headWeights(teacher), "teacher.");
  const teacherLogits = logits(input("teacher.h", ["T", teacher.hiddenSize]), theirs, teacher, inverseTemperature);
  const shared = Math.min(config.vocabularySize, teacher.vocabularySize);
  const common = (value: Value, size: number) => (size === shared ? value : ops.slice(value, 1, 0, shared));

  const own = ops.logSoftmax(studentLogits);
  const student = config.vocabularySize === shared ? own : ops.logSoftmax(common(studentLogits, config.vocabularySize));
  const other = ops.logSoftmax(common(teacherLogits, teacher.vocabularySize));
  const logprobs = ops.gatherElement(own, targets);
  const entropies = ops.neg(ops.reduceSum(ops.mul(ops.exp(own), own), [1], true));
  const divergences = divergenceOf(student, other, divergence);
  const [dh, dNorm, dHead] = vjp(
    [
      { value: logprobs, cotangent: input("dLogprobs", ["T", 1]) },
      { value: divergences, cotangent: input("dDivergences", ["T", 1]) },
    ],
    [h, w.finalNorm, w.head],
  );
  return {
    forward: compileGraph({ logprobs, entropies, teacherLogprobs: ops.gatherElement(other, targets), divergences }),
    backward: compileGraph({ dh, "d.finalNorm": dNorm, "d.head": dHead }),
  };
}
