/** Model folders as Hugging Face writes them: load with every name and shape checked, save in one piece. */
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, statSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { errorMessage, RlvrError } from "../base/errors.ts";
import { removeQuietly, syncDirectory, writeFileAtomic } from "../base/files.ts";
import { type ModelConfig, parseModelConfig, renderModelConfig } from "./config.ts";
import { ConfigReader } from "./config-reader.ts";
import { elements, type ParameterShape, parameterShapes } from "./parameters.ts";
import { type FloatType, readTensor, type StoredTensor, writeSafetensors } from "./safetensors.ts";
import { listWeights, readJson, weightsFile } from "./weights.ts";

export interface Model {
  config: ModelConfig;
  /** By name, in the order of `parameterShapes`; row-major. */
  parameters: Map<string, Float32Array>;
}

export interface ModelFolder extends Model {
  /** Absolute path of the folder. */
  path: string;
}

/** What goes along with the weights from one folder to the next. */
const companions = [
  "tokenizer.json",
  "tokenizer_config.json",
  "special_tokens_map.json",
  "generation_config.json",
  "chat_template.jinja",
];

const dtypes = { F32: "float32", F16: "float16", BF16: "bfloat16" } as const;

/**
 * Loads `config.json`, the end tokens of `generation_config.json`, and the weights as float32.
 *
 * Throws `RLVR_MODEL_FILE` (missing or unreadable), `RLVR_MODEL_CONFIG`, `RLVR_MODEL_UNSUPPORTED`, `RLVR_SAFETENSORS`
 * (damaged file) or `RLVR_MODEL_WEIGHTS` (names, shapes or values do not fit the config). Nothing is read from the
 * weights before all names and shapes are known to be right.
 */
export function loadModelFolder(path: string): ModelFolder {
  const config = loadModelConfig(path);
  const shapes = parameterShapes(config);
  const stored = listWeights(path);
  checkStored(path, config, shapes, stored);
  const parameters = new Map<string, Float32Array>();
  for (const { name } of shapes) parameters.set(name, readFinite(stored.get(name) as StoredTensor));
  const head = stored.get("lm_head.weight");
  if (config.tieEmbeddings && head !== undefined) checkTiedHead(path, readTensor(head), parameters);
  return { config, parameters, path: resolve(path) };
}

/** The config of a folder, without its weights. */
export function loadModelConfig(path: string): ModelConfig {
  if (!statSync(path, { throwIfNoEntry: false })?.isDirectory()) {
    throw new RlvrError(
      "RLVR_MODEL_FILE",
      `model folder: expected a folder with config.json and ${weightsFile}, got ${path}: ${existsSync(path) ? "not a folder" : "nothing there"}`,
      { next: "give the path of a Hugging Face model folder on this machine" },
    );
  }
  const file = join(path, "config.json");
  const config = parseModelConfig(readJson(file), file);
  const generation = join(path, "generation_config.json");
  if (existsSync(generation)) {
    // Chat models often name a further end token only there.
    const ids = new ConfigReader(readJson(generation), generation).tokenIds("eos_token_id", config.vocabularySize);
    config.eosIds = [...new Set([...config.eosIds, ...ids])];
  }
  return config;
}

/** Throws `RLVR_VOCABULARY` unless every id below `tokenizerSize` (highest token id + 1) has an embedding. */
export function checkVocabulary(config: ModelConfig, tokenizerSize: number): void {
  // Models often pad their embeddings beyond the tokenizer; the reverse cannot work.
  if (tokenizerSize > 0 && tokenizerSize <= config.vocabularySize) return;
  throw new RlvrError(
    "RLVR_VOCABULARY",
    `vocabulary: expected 1 to ${config.vocabularySize} tokens in the tokenizer (vocab_size in config.json), got ${tokenizerSize}`,
    { next: "use the tokenizer.json that belongs to this model" },
  );
}

function listed(names: string[]): string {
  return names.length > 5 ? `${names.slice(0, 5).join(", ")} and ${names.length - 5} more` : names.join(", ");
}

function weightsError(path: string, problems: string[], next: string): RlvrError {
  return new RlvrError("RLVR_MODEL_WEIGHTS", `${path}: ${problems.join("; ")}`, { next });
}

function checkStored(
  path: string,
  config: ModelConfig,
  shapes: ParameterShape[],
  stored: Map<string, StoredTensor>,
): void {
  const expected = new Map(shapes.map(({ name, shape }) => [name, shape]));
  const optional = new Map(
    config.tieEmbeddings ? [["lm_head.weight", [config.vocabularySize, config.hiddenSize]]] : [],
  );
  const missing = [...expected.keys()].filter((name) => !stored.has(name));
  const unexpected: string[] = [];
  const wrong: string[] = [];
  for (const { name, shape } of stored.values()) {
    const want = expected.get(name) ?? optional.get(name);
    if (want !== undefined) {
      if (want.join() !== shape.join()) wrong.push(`${name}: expected [${want}], got [${shape}]`);
    } else if (!name.endsWith(".rotary_emb.inv_freq")) {
      unexpected.push(name); // older folders hold the rotary frequencies, which follow from the config
    }
  }
  const problems = [
    ...(missing.length > 0 ? [`expected ${missing.length} more tensors, got none named ${listed(missing)}`] : []),
    ...(unexpected.length > 0 ? [`expected no other tensors, got ${listed(unexpected)}`] : []),
    ...(wrong.length > 0 ? [`wrong shapes: ${listed(wrong)}`] : []),
  ];
  if (problems.length === 0) return;
  const onlyHead = missing.join() === "lm_head.weight" && problems.length === 1;
  const next = onlyHead
    ? 'set "tie_word_embeddings": true in config.json if the model ties its head to the embedding'
    : "config.json and the weights must come from the same model, in the naming of transformers";
  throw weightsError(path, problems, next);
}

function readFinite(tensor: StoredTensor): Float32Array {
  const values = readTensor(tensor);
  for (let i = 0; i < values.length; i++) {
    if (!Number.isFinite(values[i])) {
      const problem = `${tensor.name}: expected finite numbers, got ${values[i]} at element ${i}`;
      throw weightsError(tensor.file, [problem], "use an earlier checkpoint; this one is broken");
    }
  }
  return values;
}

function checkTiedHead(path: string, head: Float32Array, parameters: Map<string, Float32Array>): void {
  const embedding = parameters.get("model.embed_tokens.weight") as Float32Array;
  if (embedding.every((value, i) => value === head[i])) return;
  const problem = "lm_head.weight: expected the values of model.embed_tokens.weight (tie_word_embeddings), got others";
  throw weightsError(path, [problem], 'set "tie_word_embeddings": false in config.json, or remove lm_head.weight');
}

export interface SaveOptions extends Model {
  /** Folder whose tokenizer, chat template and generation settings are copied, where it has them. */
  copyFrom?: string;
  /** Type in the file; F32 unless set. */
  type?: FloatType;
  /** Take the place of a folder that exists. */
  replace?: boolean;
}

/**
 * Writes a folder that `transformers` loads, under a temporary name first: `path` is the whole folder or does not
 * exist. With `replace` the old folder is moved aside, and removed once the new one is in place.
 *
 * Throws `RLVR_FOLDER_EXISTS`, `RLVR_MODEL_WEIGHTS` (parameters that do not fit the config) or `RLVR_WRITE_FAILED`.
 */
export function saveModelFolder(path: string, options: SaveOptions): void {
  const { config, parameters, copyFrom, type = "F32", replace = false } = options;
  const tensors = checkedTensors(path, config, parameters);
  if (!replace && existsSync(path)) {
    throw new RlvrError("RLVR_FOLDER_EXISTS", `save: expected ${path} not to exist, got a folder or file there`, {
      next: "choose another name or remove it",
    });
  }
  const target = resolve(path);
  const temporary = `${target}.tmp-${process.pid}`;
  try {
    rmSync(temporary, { recursive: true, force: true });
    mkdirSync(temporary, { recursive: true });
    writeFileAtomic(
      join(temporary, "config.json"),
      `${JSON.stringify(renderModelConfig(config, dtypes[type]), null, 2)}\n`,
    );
    writeSafetensors(join(temporary, weightsFile), tensors, { type });
    if (copyFrom !== undefined) copyCompanions(copyFrom, temporary);
    syncDirectory(temporary);
    moveIntoPlace(temporary, target);
  } catch (cause) {
    removeQuietly(temporary);
    if (cause instanceof RlvrError) throw cause;
    throw new RlvrError("RLVR_WRITE_FAILED", `save: expected to write ${path}, got ${errorMessage(cause)}`, {
      next: "free disk space or choose another folder; what was there before is unchanged",
      cause,
    });
  }
}

function checkedTensors(path: string, config: ModelConfig, parameters: Map<string, Float32Array>) {
  const shapes = parameterShapes(config);
  const names = new Set(shapes.map(({ name }) => name));
  const problems = [
    ...shapes
      .filter(({ name, shape }) => parameters.get(name)?.length !== elements(shape))
      .map(({ name, shape }) => `${name}: expected [${shape}], got ${parameters.get(name)?.length ?? "no"} numbers`),
    ...[...parameters.keys()].filter((name) => !names.has(name)).map((name) => `${name}: expected no such parameter`),
  ];
  if (problems.length > 0) throw weightsError(path, [listed(problems)], "give the parameters of this config");
  return shapes.map(({ name, shape }) => [name, { shape, data: parameters.get(name) as Float32Array }] as const);
}

function copyCompanions(from: string, to: string): void {
  for (const name of companions) {
    const source = join(from, name);
    if (existsSync(source)) writeFileAtomic(join(to, name), readFileSync(source));
  }
}

function moveIntoPlace(temporary: string, target: string): void {
  const old = `${target}.old-${process.pid}`;
  const replaced = existsSync(target);
  if (replaced) {
    removeQuietly(old);
    renameSync(target, old);
  }
  try {
    renameSync(temporary, target);
  } catch (error) {
    if (replaced) renameSync(old, target);
    throw error;
  }
  syncDirectory(dirname(target));
  removeQuietly(old); // the new folder is in place; what might be left of the old one does no harm
}
