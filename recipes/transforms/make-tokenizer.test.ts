import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";
import { loadTokenizer } from "../../src/model/tokenizer.ts";
import { transformsDemonstrations } from "./demonstrations.ts";
import { makeTokenizer } from "./make-tokenizer.ts";
import { transformsTasks } from "./tasks.ts";

const shipped = fileURLToPath(new URL("./model", import.meta.url));

it("writes the tokenizer that ships with the recipe", () => {
  const folder = mkdtempSync(join(tmpdir(), "rlvr-transforms-"));
  makeTokenizer(folder);
  for (const name of ["tokenizer.json", "tokenizer_config.json"])
    expect(readFileSync(join(folder, name), "utf8")).toBe(readFileSync(join(shipped, name), "utf8"));
  rmSync(folder, { recursive: true });
});

it("keeps prompts and programs short, and gives them back", () => {
  const tokenizer = loadTokenizer(shipped);
  const { train, test } = transformsTasks(5, { train: 200, validation: 0, test: 100 });
  const programs = transformsDemonstrations(5, { count: 300 }).map(({ completion }) => completion);
  for (const [texts, most] of [
    [[...train, ...test].map((task) => task.prompt as string), 48],
    [programs, 40],
  ] as const) {
    for (const text of texts) {
      const ids = tokenizer.encode(text);
      expect(tokenizer.decode(ids)).toBe(text);
      expect(ids.length).toBeLessThanOrEqual(most);
    }
  }
});
