import type { ScoredSpan } from "../learning/process.ts";
import type { ScoredStep } from "../verifiers/verifier.ts";

/**
 * Steps of a completion as spans of its tokens: a token is in the step in which its text begins. A step without a token of
 * its own gives an empty span, so that its score still counts in the group's mean.
 *
 * @param steps character ranges of the decoded text, in order and without overlap
 * @param decode the policy's own, so that positions are those of the text that was judged
 */
export function tokenSpans(
  tokens: readonly number[],
  steps: readonly ScoredStep[],
  decode: (tokens: readonly number[]) => string,
): ScoredSpan[] {
  const starts = tokenStarts(tokens, decode);
  let token = 0;
  return steps.map((step) => {
    while (token < starts.length && starts[token] < step.start) token++;
    const start = token;
    while (token < starts.length && starts[token] < step.end) token++;
    return { start, end: token, score: step.score };
  });
}

/** Character at which each token's text begins. */
function tokenStarts(tokens: readonly number[], decode: (tokens: readonly number[]) => string): number[] {
  const alone = tokens.map((token) => decode([token]));
  const whole = decode(tokens);
  // Most tokens decode alone as they do in context; where one does not (a part of a character, a dropped space), what ever
  // longer beginnings have in common with the whole is exact, at a cost that grows with the square of the length.
  const exact = alone.join("") === whole;
  let at = 0;
  return tokens.map((_, index) => {
    const start = exact ? at : Math.max(at, sharedLength(decode(tokens.slice(0, index)), whole));
    at = exact ? at + alone[index].length : start;
    return start;
  });
}

/** Characters that two texts have in common at their beginning: an unfinished character decodes to another one. */
function sharedLength(a: string, b: string): number {
  let length = 0;
  while (length < a.length && a[length] === b[length]) length++;
  return length;
}
