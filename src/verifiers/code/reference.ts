import { encodeValue } from "../../sandbox/values.ts";
import type { CodeReference } from "../../tasks/code.ts";

export const TEST_SETS = ["visible", "hidden", "heldOut"] as const;
export type TestSet = (typeof TEST_SETS)[number];

/** What is wrong with a reference; undefined when tests in `deciding` exist and all values are plain. */
export function referenceFault(reference: CodeReference, deciding: TestSet): string | undefined {
  for (const set of TEST_SETS) {
    if (!Array.isArray(reference?.[set]))
      return `reference.${set}: expected a list of tests, got ${typeof reference?.[set]}`;
    for (const [index, test] of reference[set].entries()) {
      try {
        encodeValue(test.args);
        encodeValue(test.expected);
      } catch (error) {
        return `reference.${set}[${index}]: ${(error as Error).message}`;
      }
    }
  }
  return reference[deciding].length > 0 ? undefined : `reference.${deciding}: expected at least one test, got none`;
}
