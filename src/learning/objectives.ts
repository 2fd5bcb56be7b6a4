/** Objectives by name. A new one is a file beside `grpo.ts` and a line here. */
import { createGrpo, type GrpoOptions } from "./grpo.ts";
import type { Objective } from "./objective.ts";

const OBJECTIVES = { grpo: createGrpo } as const;

export type ObjectiveName = keyof typeof OBJECTIVES;

/**
 * The objective called `name`, with its constants.
 *
 * @example
 * const objective = createObjective("grpo", { clipHigh: 0.28 });
 */
export function createObjective(name: ObjectiveName, options: Partial<GrpoOptions> = {}): Objective {
  return OBJECTIVES[name](options);
}
