import { Tokenizer } from "@huggingface/tokenizers";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { RlvrError } from "../base/errors.ts";
import { byteCharacters, trainBpe } from "./bpe.ts";

const texts = [
  "double each, keep over 15, sort down\n[3,-1,14]->[28]\n",
  "xs.map(x=>x*2).filter(x=>x>15).sort((a,b)=>b-a)",
  "xs.map(x=>x+7).filter(x=>x>2).map(x=>x*3)",
  "keep over 2, keep even then sort down\n[10,22]->[22,10]\n",
];
const options = { vocabularySize: 280, specialTokens: ["<|pad|>", "<|eos|>"] };
const json = trainBpe(texts, options);
const tokenizer = new Tokenizer(json, { clean_up_tokenization_spaces: false });

const pieces = (text: string) => tokenizer.encode(text).ids.map((id: number) => tokenizer.decode([id]));

describe("trainBpe", () => {
  it("gives ids to special tokens, then bytes, then merges", () => {
    const { vocab, merges } = json.model;
    expect(Object.values(vocab).sort((a, b) => a - b)).toEqual(Array.from({ length: 280 }, (_, id) => id));
    expect([vocab["<|pad|>"], vocab["<|eos|>"], vocab["!"]]).toEqual([0, 1, 2 + 33]);
    expect(merges.length).toBe(22);
    expect(json.added_tokens.map(({ id, content, special }) => [id, content, special])).toEqual([
      [0, "<|pad|>", true],
      [1, "<|eos|>", true],
    ]);
  });

  it("merges the most frequent pair first, and of equals the first in order", () => {
    // ab 3 times; cd and xy twice each.
    const small = trainBpe(["ab", "ab", "ab", "xy", "xy", "cd", "cd", "q"], { vocabularySize: 400, specialTokens: [] });
    expect(small.model.merges).toEqual(["a b", "c d", "x y"]);
  });

  it("never merges over digits, line breaks or the space before a word", () => {
    const tokens = Object.keys(json.model.vocab).filter((token) => json.model.vocab[token] >= 258);
    expect(tokens.length).toBeGreaterThan(0);
    for (const token of tokens) {
      expect(token).not.toMatch(/[0-9Ċ]/);
      expect(token.slice(0, -1)).not.toContain("Ġ");
    }
    expect(pieces("keep 15\n")).toEqual(["keep ", "1", "5", "\n"]);
  });

  it("shortens what it was trained on", () => {
    for (const text of texts) expect(pieces(text).length).toBeLessThan(text.length * 0.95);
  });

  it("gives every text back", () => {
    const text = fc.oneof(fc.string({ unit: "binary" }), fc.constantFrom(...texts), fc.string({ unit: "grapheme" }));
    fc.assert(
      fc.property(text, (sample) => {
        const { ids } = tokenizer.encode(sample);
        expect(ids.length === 0 ? "" : tokenizer.decode(ids)).toBe(sample);
      }),
      { numRuns: 300, seed: 1 },
    );
  });

  it("does not depend on the order of the texts", () => {
    expect(trainBpe([...texts].reverse(), options)).toEqual(json);
  });

  it("has a character of its own for each byte", () => {
    expect(new Set(byteCharacters()).size).toBe(256);
    expect([byteCharacters()[32], byteCharacters()[10], byteCharacters()[65]]).toEqual(["Ġ", "Ċ", "A"]);
  });

  it.each([
    ["RLVR_BPE_OPTIONS", { vocabularySize: 200, specialTokens: [] }],
    ["RLVR_BPE_OPTIONS", { vocabularySize: 300, specialTokens: ["<e>", "<e>"] }],
    ["RLVR_BPE_PATTERN", { vocabularySize: 300, specialTokens: [], pattern: "[a-z]+" }],
  ])("reports %s", (code, bad) => {
    expect(() => trainBpe(texts, bad)).toThrowError(expect.objectContaining({ code }));
    expect(() => trainBpe(texts, bad)).toThrowError(RlvrError);
  });
});
