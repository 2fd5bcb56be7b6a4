/** The embedded engine: a decoder that trains and samples in this process. */
export type { AdamSettings } from "./adamw.ts";
export { adamwUpdate, scheduledRate } from "./adamw.ts";
export { paddingShare, scoredOffsets, type TokenSequence } from "./batch.ts";
export { EngineClient } from "./client.ts";
export type { Divergence } from "./divergence.ts";
export { Engine, type EngineOptions, type EngineSource, type UpdateResult } from "./engine.ts";
export type { Generated, GenerationRequest } from "./generation.ts";
export type { SampleKey, SamplerSettings } from "./sampling.ts";
export type { LogprobOptions, LogprobResult } from "./training.ts";
