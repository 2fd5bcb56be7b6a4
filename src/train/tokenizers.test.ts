import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { toyModel } from "../../test/fixtures/toy/policy.ts";
import { checkSameTokenizer } from "./tokenizers.ts";

const recipe = join(import.meta.dirname, "../../recipes/transforms/model");
let folder: string;
let count = 0;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "rlvr-tokenizers-"));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** A copy of a model folder with its tokenizer changed. */
// biome-ignore lint/suspicious/noExplicitAny: a JSON file.
function changed(from: string, change: (tokenizer: any) => void, config: Record<string, unknown> = {}): string {
  const copy = join(folder, `copy-${count++}`);
  cpSync(from, copy, { recursive: true });
  const path = join(copy, "tokenizer.json");
  const tokenizer = JSON.parse(readFileSync(path, "utf8"));
  change(tokenizer);
  writeFileSync(path, JSON.stringify(tokenizer));
  const settings = join(copy, "tokenizer_config.json");
  writeFileSync(settings, JSON.stringify({ ...JSON.parse(readFileSync(settings, "utf8")), ...config }));
  return copy;
}

describe("checkSameTokenizer", () => {
  it("accepts the same tokenizer, in whatever order it is written", () => {
    const reordered = changed(recipe, (tokenizer) => {
      tokenizer.model.vocab = Object.fromEntries(Object.entries(tokenizer.model.vocab).reverse());
    });
    expect(() => checkSameTokenizer(recipe, reordered, "xs.map(x=>x+1)")).not.toThrow();
    expect(() => checkSameTokenizer(toyModel, toyModel)).not.toThrow();
  });

  it.each<[string, () => string, string]>([
    ["another model's", () => recipe, "here and"],
    [
      "one token more",
      () => changed(toyModel, (t) => Object.assign(t.model.vocab, { i: 10 })),
      '"i" is no token here and 10 there',
    ],
    ["one token less", () => changed(toyModel, (t) => delete t.model.vocab.h), '"h" is 9 here and no token there'],
    [
      "two ids swapped",
      () => changed(toyModel, (t) => Object.assign(t.model.vocab, { a: 3, b: 2 })),
      '"a" is 2 here and 3 there',
    ],
    [
      "another end token",
      () => changed(toyModel, () => {}, { eos_token: "<pad>" }),
      "an answer ends with <eos> here and <pad> there",
    ],
    [
      "a special token that is none there",
      () =>
        changed(toyModel, (t) => {
          t.added_tokens[0].special = false;
        }),
      "special tokens are",
    ],
  ])("refuses %s", (_, other, message) => {
    let error: unknown;
    try {
      checkSameTokenizer(toyModel, other());
    } catch (caught) {
      error = caught;
    }
    expect(error).toMatchObject({ code: "RLVR_TOKENIZERS_DIFFER", message: expect.stringContaining(message) });
  });

  it("refuses one that has the same tokens and splits text in another way", () => {
    const unmerged = changed(recipe, (tokenizer) => {
      tokenizer.model.merges = [];
    });
    expect(() => checkSameTokenizer(recipe, unmerged, "filter even")).toThrow(/tokens here and \d+ there/);
  });
});
