/**
 * A value that may cross the border of a candidate's process: plain data, without behaviour. `NaN`, the infinities,
 * `undefined` and big integers are values too, so that they can be told from what was expected.
 */
export type PlainValue =
  | null
  | undefined
  | boolean
  | number
  | bigint
  | string
  | PlainValue[]
  | { [key: string]: PlainValue };

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
