/** One message of a chat prompt, as chat templates expect it. */
export interface ChatMessage {
  role: "system" | "user" | "assistant";
  content: string;
}

/**
 * A task for the policy. Only `prompt` is ever shown to it; `reference` (gold answer, hidden tests, statement to
 * prove) goes to the verifier alone.
 */
export interface Task<Reference = unknown> {
  /** Unique in its task set. */
  id: string;
  prompt: string | ChatMessage[];
  reference: Reference;
  /** Family of near copies: a source is never on two sides of a split. */
  source: string;
  tags: string[];
  difficulty?: number;
}

export type Split = "train" | "validation" | "test";

/** Tasks by split. */
export type TaskSet<Reference = unknown> = Record<Split, Task<Reference>[]>;
