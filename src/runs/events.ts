/**
 * What the loops tell the outside while they work. A caller gets every event through `onEvent`; `--json` prints each as
 * one line. Times are in seconds unless the name says otherwise.
 */

/** An estimate with the bounds of its confidence interval (95 % unless said otherwise). */
export interface Interval {
  estimate: number;
  low: number;
  high: number;
}

/** What one task gave in an evaluation: `passed` of `samples` judged completions. */
export interface TaskResult {
  id: string;
  samples: number;
  passed: number;
  source?: string;
  difficulty?: number;
  tags?: string[];
}

/** The result of judging one model on one set of tasks. Only the first three keys are in a `done` line. */
export interface Evaluation {
  /** Mean over tasks of the share of passing samples; interval by bootstrap over tasks. */
  passAt1: Interval;
  /** Number of tasks that were judged. */
  tasks: number;
  samplesPerTask: number;
  split?: string;
  /** Unbiased pass@k by k, as text: `{ "1": …, "8": … }`. */
  passAtK?: Record<string, Interval>;
  perTask?: TaskResult[];
  /** Verdicts `error`: not counted as samples anywhere else. */
  errors?: number;
  /** Share of completions that reached the token limit. */
  truncated?: number;
  /** Mean length in tokens of passing and of other completions. */
  length?: { right: number | null; wrong: number | null };
  /** Share of completions that pass the visible tests and fail the deciding ones. */
  visiblePassHiddenFail?: number;
  seconds?: number;
}

/** The verifier's contract, in the shape `verifiers/verifier.ts` gives it. */
export interface RecordedContract {
  observes: string;
  extracts: string;
  limits: Record<string, number>;
  doesNotCheck: string[];
}

/** A rollout shown to people. */
export interface Sample {
  taskId: string;
  prompt: string;
  completion: string;
  outcome: string;
  /** In [0, 1]. */
  score: number;
  components?: Record<string, number>;
  /** Length of the completion in tokens. */
  tokens?: number;
}

/** `warn`: said and recorded. `return`: go back to the last good checkpoint. `stop`: end the run. */
export type AlertLevel = "warn" | "return" | "stop";

/** A rule of `runs/alerts.ts` that fired. */
export interface Alert {
  level: AlertLevel;
  code: string;
  message: string;
  step: number;
  values: Record<string, number>;
}

export interface StartEvent {
  event: "start";
  /** The run folder, as the user would type it. */
  run: string;
  /** `describeConfig` of the resolved config. */
  config: Record<string, unknown>;
  contract?: RecordedContract;
  /** Name and version of the verifier. */
  verifier?: string;
  /** The step whose checkpoint this run continues from; absent for a new run. */
  resumedFrom?: number;
}

/** Sizes known before the first step: parameters, tasks by split, rollouts a step, threads, … */
export interface PlanEvent {
  event: "plan";
  steps: number;
  values: Record<string, number | string>;
}

export interface EvaluationEvent {
  event: "evaluation";
  when: "before" | "after";
  evaluation: Evaluation;
}

/** How far a long phase outside the steps is (an evaluation, loading); not recorded. */
export interface ProgressEvent {
  event: "progress";
  phase: string;
  done: number;
  total: number;
}

export interface StepEvent {
  event: "step";
  /** From 1. */
  step: number;
  steps: number;
  metrics: Record<string, number>;
  etaSeconds: number;
}

export interface AlertEvent extends Alert {
  event: "alert";
}

export interface CheckpointEvent {
  event: "checkpoint";
  step: number;
  path: string;
}

export interface SamplesEvent {
  event: "samples";
  step: number;
  best?: Sample;
  worst?: Sample;
  latest?: Sample;
}

/** Before and after on the same untouched tasks; null where that evaluation is switched off. */
export interface EvaluationPair {
  before: Evaluation | null;
  after: Evaluation | null;
}

export interface TrainDoneEvent {
  event: "done";
  run: string;
  steps: number;
  seconds: number;
  evaluation: EvaluationPair;
}

export interface SftDoneEvent {
  event: "done";
  run: string;
  steps: number;
  seconds: number;
  /** Folder of the trained model. */
  model: string;
}

export interface EvaluateDoneEvent {
  event: "done";
  model: string;
  seconds: number;
  evaluation: Evaluation;
}

/** The run was asked to end and has saved its state. */
export interface InterruptedEvent {
  event: "interrupted";
  run: string;
  step: number;
}

export interface ErrorEvent {
  event: "error";
  code: string;
  message: string;
  next?: string;
}

export type RunEvent =
  | StartEvent
  | PlanEvent
  | EvaluationEvent
  | ProgressEvent
  | StepEvent
  | AlertEvent
  | CheckpointEvent
  | SamplesEvent
  | TrainDoneEvent
  | SftDoneEvent
  | EvaluateDoneEvent
  | InterruptedEvent
  | ErrorEvent;
