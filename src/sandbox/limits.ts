/** What a candidate is allowed. Every limit is per candidate unless its comment says otherwise. */
export interface SandboxLimits {
  /** Milliseconds from the start of compiling to the last returned value, all calls together. */
  wallMs: number;
  /** Milliseconds past `wallMs` after which the process is killed from outside: some native loops cannot be interrupted. */
  killGraceMs: number;
  /** Bytes of the engine's heap. */
  memoryBytes: number;
  /** Bytes of the engine's stack. */
  stackBytes: number;
  /** Bytes of one returned value: UTF-8 bytes of its text and keys, 8 for every value in it. */
  outputBytes: number;
  /** Number of values (arrays and objects included) in one returned value. */
  outputValues: number;
  /** UTF-8 bytes of the source. */
  sourceBytes: number;
}

export const DEFAULT_LIMITS: Readonly<SandboxLimits> = {
  wallMs: 250,
  killGraceMs: 250,
  memoryBytes: 64 * 1024 * 1024,
  stackBytes: 160 * 1024,
  outputBytes: 64 * 1024,
  outputValues: 10_000,
  sourceBytes: 256 * 1024,
};

/** A limit that ended a candidate. */
export type SandboxLimit = "time" | "memory" | "stack" | "output";
