import type { ChatMessage } from "./task.ts";

/** One example for supervised training: the prompt as the policy sees it, and the answer to imitate. */
export interface Demonstration {
  prompt: string | ChatMessage[];
  /** Text of the answer, without end-of-sequence token. */
  completion: string;
  /** Name of the data it belongs to: `distill.mix` gives shares to such names. */
  dataset?: string;
}
