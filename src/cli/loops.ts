/** The loops as the commands call them. They are loaded when they are needed: the engine takes time to start. */
import type { RlvrConfig } from "../config/schema.ts";
import type { Evaluation, EvaluationPair, RunEvent } from "../runs/events.ts";

export interface LoopOptions {
  /** Absolute path of the config file. */
  configPath: string;
  /** Run folder to continue. */
  resume?: string;
  /** When it aborts, the loop ends the step, saves and returns with `interrupted`. */
  signal: AbortSignal;
  onEvent(event: RunEvent): void;
}

export interface TrainResult {
  run: string;
  steps: number;
  seconds: number;
  evaluation: EvaluationPair;
  interrupted: boolean;
}

export interface SftResult {
  run: string;
  steps: number;
  seconds: number;
  model: string;
  interrupted: boolean;
}

export interface EvaluateOptions {
  /** Model folder. */
  model: string;
  signal: AbortSignal;
  onEvent(event: RunEvent): void;
}

export interface Loops {
  trainRlvr(config: RlvrConfig, options: LoopOptions): Promise<TrainResult>;
  trainSft(config: RlvrConfig, options: LoopOptions): Promise<SftResult>;
  evaluateModel(config: RlvrConfig, options: EvaluateOptions): Promise<Evaluation>;
}

const places: Record<keyof Loops, string> = {
  trainRlvr: "../train/rlvr.js",
  trainSft: "../train/sft.js",
  evaluateModel: "../evaluate/evaluate.js",
};

/** Loads one loop. */
export async function loop<Name extends keyof Loops>(name: Name): Promise<Loops[Name]> {
  return ((await import(places[name])) as Loops)[name];
}
