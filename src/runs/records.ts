/** One line of `rollouts/step-000012.jsonl.gz`: a completion with its verdict and what made it. */
export interface RolloutRecord {
  step: number;
  taskId: string;
  /** Index in its group, from 0. */
  sample: number;
  prompt: string;
  completion: string;
  outcome: string;
  /** In [0, 1]. */
  score: number;
  components?: Record<string, number>;
  evidence?: Record<string, unknown>;
  /** The limit that ended the check. */
  limit?: string;
  /** Scored steps, as spans of tokens. */
  steps?: { start: number; end: number; score: number }[];
  /** Null where the verdict was `error`. */
  advantage?: number | null;
  /** Length in tokens, end-of-sequence token included. */
  tokens?: number;
  truncated?: boolean;
  source?: string;
  difficulty?: number;
  /** Tokens and their log-probabilities under the policy that sampled them. */
  tokenIds?: number[];
  logprobs?: number[];
  /** Step and weight hash of that policy. */
  policy?: { step: number; hash: string };
  /** Sampler settings. */
  sampler?: { temperature: number; topP: number; topK: number; maxTokens: number };
}
