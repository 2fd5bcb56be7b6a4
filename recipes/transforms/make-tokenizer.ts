/**
 * Writes `model/tokenizer.json` and `model/tokenizer_config.json`, from texts that this recipe generates:
 *
 *   node --import jiti/register recipes/transforms/make-tokenizer.ts
 */
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { writeFileAtomic } from "../../src/base/files.ts";
import { trainBpe } from "../../src/model/bpe.ts";
import { loadTokenizer } from "../../src/model/tokenizer.ts";
import { transformsDemonstrations } from "./demonstrations.ts";
import { transformsTasks } from "./tasks.ts";

export const VOCABULARY_SIZE = 576;
const SPECIAL_TOKENS = ["<|pad|>", "<|eos|>"];
/** Demonstrations, all of them right, whose prompts and programs the vocabulary is learned from. */
const DEMONSTRATIONS = 2000;

export function makeTokenizer(folder: string): void {
  const texts = transformsDemonstrations(0, { count: DEMONSTRATIONS, wrongShare: 0 }).flatMap(
    ({ prompt, completion }) => [prompt as string, completion],
  );
  const json = trainBpe(texts, { vocabularySize: VOCABULARY_SIZE, specialTokens: SPECIAL_TOKENS });
  const config = {
    tokenizer_class: "PreTrainedTokenizerFast",
    pad_token: SPECIAL_TOKENS[0],
    eos_token: SPECIAL_TOKENS[1],
    clean_up_tokenization_spaces: false,
  };
  mkdirSync(folder, { recursive: true });
  writeFileAtomic(join(folder, "tokenizer.json"), `${JSON.stringify(json, null, 1)}\n`);
  writeFileAtomic(join(folder, "tokenizer_config.json"), `${JSON.stringify(config, null, 2)}\n`);
}

function describeLengths(lengths: number[]): string {
  const mean = lengths.reduce((a, b) => a + b, 0) / lengths.length;
  return `mean ${mean.toFixed(1)}, longest ${Math.max(...lengths)} tokens`;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const folder = fileURLToPath(new URL("./model", import.meta.url));
  makeTokenizer(folder);
  const tokenizer = loadTokenizer(folder);
  const prompts = Object.values(transformsTasks(1)).flat();
  const demonstrations = transformsDemonstrations(1, { count: 4000 });
  console.log(`${folder}: ${tokenizer.vocabularySize} tokens`);
  console.log(`prompts: ${describeLengths(prompts.map((task) => tokenizer.encode(task.prompt as string).length))}`);
  console.log(
    `completions: ${describeLengths(demonstrations.map(({ completion }) => tokenizer.encode(completion).length + 1))}, end token included`,
  );
}
