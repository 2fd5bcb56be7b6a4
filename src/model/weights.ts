/** The weight files of a Hugging Face folder: which tensors there are, without reading them. */
import { existsSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { errorMessage, RlvrError } from "../base/errors.ts";
import { readSafetensorsHeader, type StoredTensor } from "./safetensors.ts";

export const weightsFile = "model.safetensors";
export const weightsIndexFile = "model.safetensors.index.json";

/** A parsed JSON file; `RLVR_MODEL_FILE` where it is missing, unreadable or no JSON. */
export function readJson(file: string): unknown {
  let text: string;
  try {
    text = readFileSync(file, "utf8");
  } catch (cause) {
    throw new RlvrError("RLVR_MODEL_FILE", `${file}: expected a readable file, got ${errorMessage(cause)}`, {
      next: "give the folder of a Hugging Face model, complete with this file",
      cause,
    });
  }
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new RlvrError("RLVR_MODEL_FILE", `${file}: expected JSON, got ${errorMessage(cause)}`, {
      next: "copy or download the file again",
      cause,
    });
  }
}

/** Tensors of `model.safetensors`, or of the shards that `model.safetensors.index.json` names. */
export function listWeights(folder: string): Map<string, StoredTensor> {
  const single = join(folder, weightsFile);
  if (existsSync(single)) return readSafetensorsHeader(single).tensors;
  const index = join(folder, weightsIndexFile);
  if (existsSync(index)) return listShards(folder, index);
  throw new RlvrError("RLVR_MODEL_FILE", `${folder}: expected ${weightsFile} or ${weightsIndexFile}, got neither`, {
    next: existsSync(join(folder, "pytorch_model.bin"))
      ? "convert pytorch_model.bin: load it in transformers and call save_pretrained"
      : "give the folder of a Hugging Face model, complete with its weights",
  });
}

function listShards(folder: string, index: string): Map<string, StoredTensor> {
  const fail = (text: string) =>
    new RlvrError("RLVR_MODEL_FILE", `${index}: ${text}`, { next: "copy or download the index and all shards again" });
  const map = (readJson(index) as { weight_map?: unknown } | null)?.weight_map;
  if (typeof map !== "object" || map === null || Array.isArray(map)) {
    throw fail(`weight_map: expected an object from tensor to file, got ${JSON.stringify(map) ?? "nothing"}`);
  }
  const wanted = new Map<string, string>();
  for (const [name, file] of Object.entries(map)) {
    // Shards lie beside the index; a path could name any file.
    if (typeof file !== "string" || file === "" || basename(file) !== file || file.includes("\\")) {
      throw fail(`weight_map: ${name}: expected the name of a file in the folder, got ${JSON.stringify(file)}`);
    }
    wanted.set(name, file);
  }
  const found = new Map<string, StoredTensor>();
  for (const file of [...new Set(wanted.values())].sort()) {
    for (const tensor of readSafetensorsHeader(join(folder, file)).tensors.values()) {
      const shard = wanted.get(tensor.name);
      if (shard !== file) throw fail(`${tensor.name}: expected in ${shard ?? "no shard"}, got it in ${file}`);
      found.set(tensor.name, tensor);
    }
  }
  for (const [name, file] of wanted) {
    if (!found.has(name)) throw fail(`${name}: expected in ${file}, got a file without it`);
  }
  return found;
}
