/** What a run cost, counted the same way for every way of training, so that they stand in one table. */
import type { RunFolder } from "../runs/index.ts";

/** `costs.json` of a run. Evaluations, and what verifiers do, are in none of it. */
export interface Costs {
  /** `sft`, `train`, `distill responses`, … */
  method: string;
  /** Tokens that went through the teacher: prompts and answers it wrote, or sequences it scored. */
  teacherTokens: number;
  /** Tokens sampled from the student. */
  studentTokens: number;
  /** Tokens that went through the student forwards and backwards, prompts included. */
  trainedTokens: number;
  /** Optimizer updates. */
  updates: number;
  /** Seconds of all steps, sampling and verifying included. */
  seconds: number;
  flops: Flops;
}

export interface Flops {
  /** Null where the size of the teacher is not known (a server's); 0 without a teacher. */
  teacher: number | null;
  student: number;
  total: number | null;
}

export interface FlopCounts {
  student: {
    /** Parameters, the embedding included: the head multiplies by as many. */
    parameters: number;
    /** Tokens through the student forwards only: sampled, and prompts or sequences that were only scored. */
    forwardTokens: number;
    /** Tokens forwards and backwards. */
    trainedTokens: number;
  };
  teacher?: {
    /** Null where it is not known. */
    parameters: number | null;
    /** Tokens through the teacher, forwards only. */
    forwardTokens: number;
  };
}

/**
 * Floating-point operations of a run: 2·P for a token forwards, 6·P for one forwards and backwards (a backward pass is
 * two products where the forward pass is one). Attention over the context, elementwise work and the optimizer are left
 * out: at the lengths and sizes trained here they are a few per cent.
 */
export function flopsOf({ student, teacher }: FlopCounts): Flops {
  const own = 2 * student.parameters * student.forwardTokens + 6 * student.parameters * student.trainedTokens;
  const unknown = teacher !== undefined && teacher.parameters === null && teacher.forwardTokens > 0;
  const theirs = teacher === undefined ? 0 : 2 * (teacher.parameters ?? 0) * teacher.forwardTokens;
  return { teacher: unknown ? null : theirs, student: own, total: unknown ? null : own + theirs };
}

/** Writes `costs.json`, in place of an earlier one, at once or not at all. */
export function writeCosts(run: Pick<RunFolder, "writeFile">, costs: Costs): void {
  run.writeFile("costs.json", `${JSON.stringify(costs, null, 2)}\n`);
}

/** Seconds of all steps by a run's metrics; a step that was done again after a crash counts once. */
export function stepSeconds(run: Pick<RunFolder, "metrics">): number {
  return run.metrics().reduce((sum, record) => sum + (record["time/total"] ?? 0), 0);
}

/** The costs of a run of reinforcement learning, by its metrics: sampling, updates, and what was only scored. */
export function rlvrCosts(run: Pick<RunFolder, "metrics">, parameters: number): Costs {
  const total = (name: string) => run.metrics().reduce((sum, record) => sum + (record[name] ?? 0), 0);
  const studentTokens = total("tokens/generated");
  const trainedTokens = total("tokens/trained");
  const forwardTokens = studentTokens + total("tokens/prompts") + total("tokens/forward");
  return {
    method: "train",
    teacherTokens: 0,
    studentTokens,
    trainedTokens,
    updates: total("optimizer/updates"),
    seconds: stepSeconds(run),
    flops: flopsOf({ student: { parameters, forwardTokens, trainedTokens } }),
  };
}
