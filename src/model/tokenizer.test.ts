import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeEach, describe, expect, it } from "vitest";
import { trainBpe } from "./bpe.ts";
import { loadTokenizer } from "./tokenizer.ts";

const json = trainBpe(["xs.map(x=>x*2)", "xs.map(x=>x+1)"], {
  vocabularySize: 280,
  specialTokens: ["<|pad|>", "<|bos|>", "<|eos|>", "<|im_end|>"],
});
const config = { bos_token: "<|bos|>", eos_token: { content: "<|eos|>" }, pad_token: "<|pad|>" };

const root = mkdtempSync(join(tmpdir(), "rlvr-tokenizer-"));
afterAll(() => rmSync(root, { recursive: true, force: true }));

let folder = root;
const write = (name: string, value: unknown) =>
  writeFileSync(join(folder, name), typeof value === "string" ? value : JSON.stringify(value));

beforeEach(() => {
  folder = mkdtempSync(join(root, "case-"));
  write("tokenizer.json", json);
  write("tokenizer_config.json", config);
});

const fails = (code: string, text: string) =>
  expect(() => loadTokenizer(folder)).toThrowError(
    expect.objectContaining({ code, message: expect.stringContaining(text), next: expect.any(String) }),
  );

describe("loadTokenizer", () => {
  it("encodes and decodes exactly, spaces before punctuation included", () => {
    const tokenizer = loadTokenizer(folder);
    for (const text of ["xs.map(x=>x*2)", "a . b ! don 't", " ", "", "日本"])
      expect(tokenizer.decode(tokenizer.encode(text))).toBe(text);
    expect(tokenizer.vocabularySize).toBe(Object.keys(json.model.vocab).length);
    expect([tokenizer.padId, tokenizer.bosId, tokenizer.eosIds]).toEqual([0, 1, [2]]);
    expect([tokenizer.bosToken, tokenizer.eosToken]).toEqual(["<|bos|>", "<|eos|>"]);
  });

  it("encodes the name of a special token inside a text as its one id, and skips it on demand", () => {
    const tokenizer = loadTokenizer(folder);
    const ids = tokenizer.encode("x<|im_end|>\n");
    expect(ids.filter((id) => id === 3).length).toBe(1);
    expect(ids.length).toBe(3);
    expect(tokenizer.decode(ids)).toBe("x<|im_end|>\n");
    expect(tokenizer.decode(ids, { skipSpecialTokens: true })).toBe("x\n");
    expect(tokenizer.specialTokens).toEqual(["<|pad|>", "<|bos|>", "<|eos|>", "<|im_end|>"]);
  });

  it("adds the tokenizer's own frame only when asked", () => {
    const single = [{ SpecialToken: { id: "<|bos|>", type_id: 0 } }, { Sequence: { id: "A", type_id: 0 } }];
    const special_tokens = { "<|bos|>": { id: "<|bos|>", ids: [1], tokens: ["<|bos|>"] } };
    write("tokenizer.json", {
      ...json,
      post_processor: { type: "TemplateProcessing", single, pair: single, special_tokens },
    });
    const tokenizer = loadTokenizer(folder);
    expect(tokenizer.encode("x")).toEqual([4 + 120]);
    expect(tokenizer.encode("x", { addSpecialTokens: true })).toEqual([1, 4 + 120]);
  });

  it("ignores ids of a padded vocabulary when decoding", () => {
    const tokenizer = loadTokenizer(folder);
    expect(tokenizer.decode([tokenizer.vocabularySize + 5, ...tokenizer.encode("x"), -1])).toBe("x");
    expect(tokenizer.decode([])).toBe("");
    expect(tokenizer.decode(Int32Array.from(tokenizer.encode("xs")))).toBe("xs");
  });

  it("collects all end tokens, the tokenizer's own first, and pads with it where no pad token is named", () => {
    write("tokenizer_config.json", { eos_token: "<|im_end|>" });
    write("generation_config.json", { eos_token_id: [2, 3] });
    write("config.json", { eos_token_id: 2 });
    const tokenizer = loadTokenizer(folder);
    expect([tokenizer.eosIds, tokenizer.padId, tokenizer.bosId]).toEqual([[3, 2], 3, undefined]);
  });

  it("reads special tokens from special_tokens_map.json and end tokens from config.json alone", () => {
    rmSync(join(folder, "tokenizer_config.json"));
    write("special_tokens_map.json", { pad_token: { content: "<|pad|>" } });
    write("config.json", { eos_token_id: 2 });
    const tokenizer = loadTokenizer(folder);
    expect([tokenizer.eosIds, tokenizer.eosToken, tokenizer.padId]).toEqual([[2], "<|eos|>", 0]);
  });

  it("finds the chat template: its own file first, then text or a named list in the config", () => {
    expect(loadTokenizer(folder).chatTemplate).toBeUndefined();
    const named = [
      { name: "tools", template: "T" },
      { name: "default", template: "D" },
    ];
    write("tokenizer_config.json", { ...config, chat_template: named });
    expect(loadTokenizer(folder).chatTemplate).toBe("D");
    write("tokenizer_config.json", { ...config, chat_template: "C" });
    expect(loadTokenizer(folder).chatTemplate).toBe("C");
    write("chat_template.jinja", "J");
    expect(loadTokenizer(folder).chatTemplate).toBe("J");
  });

  it("says what is missing or wrong", () => {
    write("tokenizer_config.json", { ...config, eos_token: "<|none|>" });
    fails("RLVR_TOKENIZER_TOKEN", "<|none|>");
    write("tokenizer_config.json", {});
    fails("RLVR_TOKENIZER_EOS", "none in any file");
    write("config.json", { eos_token_id: 9999 });
    fails("RLVR_TOKENIZER_EOS", "9999");
    write("config.json", { eos_token_id: "2" });
    fails("RLVR_TOKENIZER_EOS", "eos_token_id");
    write("config.json", "{ half");
    fails("RLVR_TOKENIZER_JSON", "config.json");
    rmSync(join(folder, "config.json"));
    write("tokenizer.json", { ...json, model: { type: "Mystery", vocab: {} } });
    fails("RLVR_TOKENIZER_UNSUPPORTED", "tokenizer.json");
    write("tokenizer.json", { ...json, pre_tokenizer: { type: "Mystery" } });
    fails("RLVR_TOKENIZER_UNSUPPORTED", "Mystery");
    write("tokenizer.json", "[]");
    fails("RLVR_TOKENIZER_JSON", "expected a JSON object");
    rmSync(join(folder, "tokenizer.json"));
    fails("RLVR_TOKENIZER_MISSING", "tokenizer.json");
    folder = join(root, "nowhere");
    fails("RLVR_TOKENIZER_MISSING", "nowhere");
  });
});
