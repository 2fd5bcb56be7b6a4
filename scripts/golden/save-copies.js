// Loads every golden model with rlvr, saves it again into the given folder, and writes beside it the logits that
// check_saved.py expects. Needs the build.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { loadModelFolder, saveModelFolder } from "../../dist/model/folder.js";
import { readSafetensors } from "../../dist/model/safetensors.js";

const target = process.argv[2];
if (target === undefined) {
  console.error("usage: node scripts/golden/save-copies.js FOLDER");
  process.exit(2);
}
mkdirSync(target, { recursive: true });

for (const name of ["llama-tied", "llama-untied", "llama3-rope", "llama-biased", "qwen2", "qwen3"]) {
  const source = fileURLToPath(new URL(`../../src/engine/fixtures/${name}`, import.meta.url));
  const model = loadModelFolder(source);
  saveModelFolder(join(target, name), { ...model, copyFrom: source, replace: true });
  const golden = readSafetensors(join(source, "golden.safetensors"), (key) => !key.startsWith("gradient"));
  const rows = (key) => {
    const { shape, data } = golden.get(key);
    return Array.from({ length: shape[0] }, (_, i) => [...data.subarray(i * shape[1], (i + 1) * shape[1])]);
  };
  const lengths = [...golden.get("lengths").data];
  const logits = rows("logits");
  const expected = {
    tokens: rows("tokens").map((tokens, i) => tokens.slice(0, lengths[i])),
    logits: lengths.map((length) => logits.splice(0, length)),
  };
  writeFileSync(join(target, `${name}.json`), JSON.stringify(expected));
}
