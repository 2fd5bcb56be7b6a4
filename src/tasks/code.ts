import type { PlainValue } from "../sandbox/values.ts";

export type { PlainValue };

/** One call of the candidate and what it must return. Only `args` ever reach the candidate's process. */
export interface CodeTest {
  args: PlainValue[];
  expected: PlainValue;
}

/** Reference of a code task: three sets of tests with different readers. */
export interface CodeReference {
  /** In the prompt: the policy knows them. */
  visible: CodeTest[];
  /** Decide the reward. Never shown. */
  hidden: CodeTest[];
  /** Decide the evaluation only. Neither shown nor rewarded. */
  heldOut: CodeTest[];
}
