import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, test } from "vitest";
import { parseModelConfig } from "./config.ts";
import { checkVocabulary, loadModelConfig, loadModelFolder, saveModelFolder } from "./folder.ts";
import { initialParameters, parameterShapes } from "./parameters.ts";
import { readSafetensors, readSafetensorsHeader, type Tensor, writeSafetensors } from "./safetensors.ts";

const root = mkdtempSync(join(tmpdir(), "rlvr-folder-"));
afterAll(() => rmSync(root, { recursive: true, force: true }));
let count = 0;
const fresh = () => join(root, `${count++}`);

const fixture = (name: string) => fileURLToPath(new URL(`../engine/fixtures/${name}`, import.meta.url));
const families = ["llama-tied", "llama-untied", "llama3-rope", "llama-biased", "qwen2", "qwen3"];

const config = parseModelConfig({
  model_type: "llama",
  vocab_size: 8,
  hidden_size: 4,
  intermediate_size: 6,
  num_hidden_layers: 1,
  num_attention_heads: 2,
  tie_word_embeddings: true,
});
const parameters = initialParameters(config, 1);

function saved(): string {
  const path = fresh();
  saveModelFolder(path, { config, parameters });
  return path;
}

/** A saved folder whose tensors were changed. */
function changed(change: (tensors: Map<string, Tensor>) => void): string {
  const path = saved();
  const file = join(path, "model.safetensors");
  const tensors = readSafetensors(file);
  change(tensors);
  writeSafetensors(file, tensors);
  return path;
}

function edited(name: string, text: string): string {
  const path = saved();
  writeFileSync(join(path, name), text);
  return path;
}

function refuses(load: () => unknown, code: string, message: string): void {
  expect(load).toThrow(expect.objectContaining({ code }));
  expect(load).toThrow(message);
}

describe("loading what transformers saved", () => {
  test.each(families)("%s", (name) => {
    const model = loadModelFolder(fixture(name));
    expect([...model.parameters.keys()]).toEqual(parameterShapes(model.config).map((shape) => shape.name));
    expect(model.config).toMatchObject({ vocabularySize: 40, layers: 2, heads: 4, bosId: 1, eosIds: [2], padId: 0 });
    // Gradients in the golden file are named and shaped by PyTorch, an independent list of the parameters.
    const golden = [...readSafetensorsHeader(join(fixture(name), "golden.safetensors")).tensors.values()];
    const theirs = golden
      .filter((tensor) => tensor.name.startsWith("gradient.logprob."))
      .map((tensor) => [tensor.name.slice("gradient.logprob.".length), tensor.shape]);
    const ours = parameterShapes(model.config).map(({ name, shape }) => [name, shape]);
    expect(new Map(ours as [string, number[]][])).toEqual(new Map(theirs as [string, number[]][]));
  });

  test("reads the rotary settings of version 5", () => {
    expect(loadModelConfig(fixture("llama3-rope"))).toMatchObject({
      ropeTheta: 100,
      ropeScaling: { type: "llama3", factor: 8, originalMaxPositions: 64 },
    });
    expect(loadModelConfig(fixture("llama-biased")).ropeScaling).toEqual({ type: "linear", factor: 2 });
  });

  test.each(["sharded-bf16", "f16"])("16-bit weights as PyTorch widens them: %s", (name) => {
    const model = loadModelFolder(fixture(name));
    const expected = readSafetensors(join(fixture(name), "expected.safetensors"));
    expect(model.parameters.size).toBe(expected.size);
    for (const [key, { data }] of expected) expect(model.parameters.get(key)).toEqual(data);
  });
});

describe("saving", () => {
  test.each(families)("what is loaded and saved is loaded again as the same: %s", (name) => {
    const model = loadModelFolder(fixture(name));
    const path = fresh();
    saveModelFolder(path, { ...model, copyFrom: model.path });
    expect(loadModelFolder(path)).toEqual({ ...model, path });
    expect(readdirSync(path).sort()).toEqual(["config.json", "generation_config.json", "model.safetensors"]);
  });

  test("narrow types say so in config.json", () => {
    const path = fresh();
    saveModelFolder(path, { config, parameters, type: "BF16" });
    expect(JSON.parse(readFileSync(join(path, "config.json"), "utf8")).torch_dtype).toBe("bfloat16");
    const loaded = loadModelFolder(path);
    for (const [name, values] of parameters) {
      expect(
        loaded.parameters.get(name)?.every((value, i) => Math.abs(value - values[i]) <= Math.abs(values[i]) / 256),
      ).toBe(true);
    }
  });

  test("copies tokenizer, template and generation settings, and nothing else", () => {
    const source = fresh();
    mkdirSync(source);
    for (const name of ["tokenizer.json", "chat_template.jinja", "README.md"]) writeFileSync(join(source, name), name);
    const path = fresh();
    saveModelFolder(path, { config, parameters, copyFrom: source });
    expect(readdirSync(path).sort()).toEqual([
      "chat_template.jinja",
      "config.json",
      "model.safetensors",
      "tokenizer.json",
    ]);
    expect(readFileSync(join(path, "tokenizer.json"), "utf8")).toBe("tokenizer.json");
  });

  test("refuses a folder that exists, unless told to replace it", () => {
    const path = saved();
    writeFileSync(join(path, "tokenizer.json"), "{}");
    const other = initialParameters(config, 2);
    refuses(() => saveModelFolder(path, { config, parameters: other }), "RLVR_FOLDER_EXISTS", path);
    expect(loadModelFolder(path).parameters).toEqual(parameters);
    saveModelFolder(path, { config, parameters: other, copyFrom: path, replace: true });
    expect(loadModelFolder(path).parameters).toEqual(other);
    expect(existsSync(join(path, "tokenizer.json"))).toBe(true);
  });

  test("refuses parameters that do not fit, and leaves nothing behind", () => {
    const before = readdirSync(root).sort();
    const path = join(root, "never");
    const without = new Map(parameters);
    without.delete("model.norm.weight");
    refuses(
      () => saveModelFolder(path, { config, parameters: without }),
      "RLVR_MODEL_WEIGHTS",
      "model.norm.weight: expected [4], got no numbers",
    );
    const short = new Map(parameters).set("model.norm.weight", new Float32Array(3));
    refuses(
      () => saveModelFolder(path, { config, parameters: short }),
      "RLVR_MODEL_WEIGHTS",
      "expected [4], got 3 numbers",
    );
    const more = new Map(parameters).set("extra", new Float32Array(3));
    refuses(
      () => saveModelFolder(path, { config, parameters: more }),
      "RLVR_MODEL_WEIGHTS",
      "extra: expected no such parameter",
    );
    expect(readdirSync(root).sort()).toEqual(before);
  });

  test("a failed write leaves the folder that was there", () => {
    const path = saved();
    const huge = new Map(parameters).set("model.norm.weight", new Float32Array(4).fill(1e30));
    refuses(
      () => saveModelFolder(path, { config, parameters: huge, type: "F16", replace: true }),
      "RLVR_SAFETENSORS",
      "expected numbers within F16",
    );
    expect(loadModelFolder(path).parameters).toEqual(parameters);
    const file = join(path, "config.json", "below-a-file");
    refuses(() => saveModelFolder(file, { config, parameters }), "RLVR_WRITE_FAILED", "expected to write");
    expect(readdirSync(root).filter((name) => /tmp|old/.test(name))).toEqual([]);
  });
});

describe("bad folders", () => {
  test.each([
    ["nothing there", () => join(root, "none"), "RLVR_MODEL_FILE", "nothing there"],
    ["a file", () => join(saved(), "config.json"), "RLVR_MODEL_FILE", "not a folder"],
    ["no config", () => without("config.json"), "RLVR_MODEL_FILE", "config.json: expected a readable file"],
    ["config of text", () => edited("config.json", "hello"), "RLVR_MODEL_FILE", "config.json: expected JSON"],
    ["config of null", () => edited("config.json", "null"), "RLVR_MODEL_CONFIG", "config.json: expected a JSON object"],
    ["no weights", () => without("model.safetensors"), "RLVR_MODEL_FILE", "expected model.safetensors or"],
    [
      "weights of text",
      () => edited("model.safetensors", "version https://git-lfs"),
      "RLVR_SAFETENSORS",
      "expected a header",
    ],
    [
      "bad generation settings",
      () => edited("generation_config.json", '{"eos_token_id": 99}'),
      "RLVR_MODEL_CONFIG",
      "eos_token_id",
    ],
  ])("%s", (_, make, code, message) => {
    const path = make();
    refuses(() => loadModelFolder(path), code, message);
  });

  function without(name: string): string {
    const path = saved();
    rmSync(join(path, name));
    return path;
  }

  test("truncated weights", () => {
    const path = saved();
    const file = join(path, "model.safetensors");
    writeFileSync(file, readFileSync(file).subarray(0, -4));
    refuses(() => loadModelFolder(path), "RLVR_SAFETENSORS", "truncated");
  });

  test("missing, unexpected and wrong-shaped tensors are listed together", () => {
    const path = changed((tensors) => {
      tensors.delete("model.norm.weight");
      tensors.set("model.layers.1.mlp.up_proj.weight", { shape: [1], data: new Float32Array(1) });
      const up = tensors.get("model.layers.0.mlp.up_proj.weight")!;
      tensors.set("model.layers.0.mlp.up_proj.weight", { shape: [4, 6], data: up.data });
    });
    refuses(
      () => loadModelFolder(path),
      "RLVR_MODEL_WEIGHTS",
      "expected 1 more tensors, got none named model.norm.weight",
    );
    refuses(() => loadModelFolder(path), "RLVR_MODEL_WEIGHTS", "got model.layers.1.mlp.up_proj.weight");
    refuses(() => loadModelFolder(path), "RLVR_MODEL_WEIGHTS", "up_proj.weight: expected [6,4], got [4,6]");
  });

  test("weights that are not numbers", () => {
    const path = changed((tensors) => tensors.get("model.norm.weight")!.data.set([NaN], 2));
    refuses(
      () => loadModelFolder(path),
      "RLVR_MODEL_WEIGHTS",
      "model.norm.weight: expected finite numbers, got NaN at element 2",
    );
  });

  test("a missing head points at the tie", () => {
    const path = saved();
    const json = JSON.parse(readFileSync(join(path, "config.json"), "utf8"));
    writeFileSync(join(path, "config.json"), JSON.stringify({ ...json, tie_word_embeddings: false }));
    expect(() => loadModelFolder(path)).toThrow(
      expect.objectContaining({ code: "RLVR_MODEL_WEIGHTS", next: expect.stringContaining("tie_word_embeddings") }),
    );
  });
});

describe("what is tolerated", () => {
  const embedding = () => ({ shape: [8, 4], data: Float32Array.from(parameters.get("model.embed_tokens.weight")!) });

  test("a tied head that is stored, and rotary frequencies", () => {
    const path = changed((tensors) => {
      tensors.set("lm_head.weight", embedding());
      tensors.set("model.layers.0.self_attn.rotary_emb.inv_freq", { shape: [1], data: new Float32Array(1) });
    });
    expect(loadModelFolder(path).parameters).toEqual(parameters);
  });

  test("but not a tied head with other values", () => {
    const path = changed((tensors) => {
      const head = embedding();
      head.data[5] += 1;
      tensors.set("lm_head.weight", head);
    });
    refuses(() => loadModelFolder(path), "RLVR_MODEL_WEIGHTS", "lm_head.weight: expected the values of");
  });

  test("further end tokens in the generation settings", () => {
    const path = edited("generation_config.json", '{"eos_token_id": [3, 5]}');
    expect(loadModelFolder(path).config.eosIds).toEqual([3, 5]);
  });
});

describe("shards", () => {
  const index = "model.safetensors.index.json";

  function copy(change: (map: Record<string, unknown>, path: string) => void): string {
    const path = fresh();
    cpSync(fixture("sharded-bf16"), path, { recursive: true });
    const json = JSON.parse(readFileSync(join(path, index), "utf8"));
    change(json.weight_map, path);
    writeFileSync(join(path, index), JSON.stringify(json));
    return path;
  }

  const norm = "model.norm.weight";
  const [first, second] = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];

  test.each([
    ["a shard that is gone", (_: object, path: string) => rmSync(join(path, second)), "expected a readable file"],
    [
      "a tensor said to be elsewhere",
      (map: Record<string, unknown>) => Object.assign(map, { [norm]: map[norm] === first ? second : first }),
      norm,
    ],
    [
      "a tensor in no shard",
      (map: Record<string, unknown>) => Object.assign(map, { ghost: first }),
      "ghost: expected in",
    ],
    ["a tensor that the index leaves out", (map: Record<string, unknown>) => delete map[norm], "expected in no shard"],
    [
      "a path",
      (map: Record<string, unknown>) => Object.assign(map, { [norm]: `../${first}` }),
      "expected the name of a file",
    ],
    ["a number", (map: Record<string, unknown>) => Object.assign(map, { [norm]: 3 }), "expected the name of a file"],
  ])("%s", (_, change, message) => {
    const path = copy(change as (map: Record<string, unknown>, path: string) => void);
    refuses(() => loadModelFolder(path), "RLVR_MODEL_FILE", message);
  });

  test("an index without a map", () => {
    const path = copy(() => {});
    writeFileSync(join(path, index), "{}");
    refuses(() => loadModelFolder(path), "RLVR_MODEL_FILE", "weight_map: expected an object");
  });
});

test("a tokenizer may be smaller than the embedding, not larger", () => {
  checkVocabulary(config, 8);
  checkVocabulary(config, 5);
  refuses(
    () => checkVocabulary(config, 9),
    "RLVR_VOCABULARY",
    "expected 1 to 8 tokens in the tokenizer (vocab_size in config.json), got 9",
  );
  refuses(() => checkVocabulary(config, 0), "RLVR_VOCABULARY", "got 0");
});
