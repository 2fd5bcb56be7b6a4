/** The training loops, for programs that call them instead of the command line. Loading this loads the engine. */
export { evaluateModel, evaluatePolicy, evaluationTasks } from "../evaluate/evaluate.ts";
export { engineOptions, LocalPolicy } from "../policy/local.ts";
export type { Policy, PolicyVersion, SampleRequest, TokenScores } from "../policy/policy.ts";
export type { Rollout, SamplerRecord } from "../rollouts/rollout.ts";
export { type SampledGroups, type SampleGroupsOptions, sampleGroups } from "../rollouts/sample.ts";
export { type Costs, type FlopCounts, type Flops, flopsOf, writeCosts } from "./costs.ts";
export { type DistillResult, trainDistill } from "./distill.ts";
export { type TrainResult, trainRlvr } from "./rlvr.ts";
export type { LoopOptions } from "./setup.ts";
export { type SftResult, trainSft } from "./sft.ts";
