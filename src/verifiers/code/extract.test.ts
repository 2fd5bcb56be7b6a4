import { describe, expect, it } from "vitest";
import { extractCode } from "./extract.ts";

describe("extractCode", () => {
  it("takes the whole completion, trimmed", () => {
    expect(extractCode("  xs => xs \n", "completion")).toBe("xs => xs");
    expect(extractCode(" \n ", "completion")).toBe("");
  });

  it("takes the last closed fenced block", () => {
    expect(extractCode("First:\n```js\n1\n```\nor\n```\nxs =>\n  xs\n```\nDone.", "last-fence")).toBe("xs =>\n  xs");
    expect(extractCode("```js\n1\n```\n```js\n2", "last-fence")).toBe("1");
    for (const none of ["xs => xs", "```js\nxs => xs", ""]) expect(extractCode(none, "last-fence")).toBe("");
  });
});
