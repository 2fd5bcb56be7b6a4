import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { Tokenizer as HuggingFaceTokenizer } from "@huggingface/tokenizers";
import { errorMessage, RlvrError } from "../base/errors.ts";

export interface Tokenizer {
  /**
   * Token ids of the text. With `addSpecialTokens` (off unless asked for) the tokenizer's own frame, such as a token for
   * the beginning, is put around it.
   *
   * The name of a special token inside the text becomes that token's one id: chat templates rely on it, and so does
   * `transformers`. Text from users or models is no exception; whoever must keep it apart has to look for such names
   * (`specialTokens`) before encoding.
   */
  encode(text: string, options?: { addSpecialTokens?: boolean }): number[];
  /**
   * Text of the ids, exactly: no spaces are cleaned up. Bytes that are no UTF-8 become U+FFFD. Ids that a model's padded
   * vocabulary has and the tokenizer has not, give no text. Special tokens appear unless `skipSpecialTokens`.
   */
  decode(ids: ArrayLike<number>, options?: { skipSpecialTokens?: boolean }): string;
  /** Largest id plus one. */
  vocabularySize: number;
  /** Ids that end a completion, the tokenizer's own one first. At least one. */
  eosIds: number[];
  /** Fills rows that are shorter than others; the first end token where the folder names none. */
  padId: number;
  bosId?: number;
  eosToken: string;
  bosToken?: string;
  /** Texts that encode to one special id. */
  specialTokens: string[];
  /** Jinja text, for `renderChat`. */
  chatTemplate?: string;
}

type Json = Record<string, unknown>;

function isObject(value: unknown): value is Json {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function readJson(folder: string, name: string): Json | undefined {
  const path = join(folder, name);
  if (!existsSync(path)) return undefined;
  let value: unknown;
  try {
    value = JSON.parse(readFileSync(path, "utf8"));
  } catch (cause) {
    throw new RlvrError("RLVR_TOKENIZER_JSON", `${path}: expected JSON, got ${errorMessage(cause)}`, {
      next: "download the file again or write it again with save_pretrained",
      cause,
    });
  }
  if (!isObject(value))
    throw new RlvrError("RLVR_TOKENIZER_JSON", `${path}: expected a JSON object, got ${JSON.stringify(value)}`, {
      next: "check that this is the tokenizer's own file",
    });
  return value;
}

const KINDS = ["BPE", "Unigram", "WordPiece"];

/** The tokenizer of the library; what it cannot read is an error that says so. */
function construct(path: string, json: Json, config: Json): HuggingFaceTokenizer {
  try {
    const type = isObject(json.model) ? json.model.type : undefined;
    // The library would take an unknown type for an old file without one, and encode wrongly.
    if (type !== undefined && !KINDS.includes(type as string)) throw new Error(`model type ${JSON.stringify(type)}`);
    return new HuggingFaceTokenizer(withDefaults(json), config);
  } catch (cause) {
    throw new RlvrError(
      "RLVR_TOKENIZER_UNSUPPORTED",
      `${path}: expected a tokenizer that @huggingface/tokenizers can run, got ${errorMessage(cause)}`,
      { next: "use a model whose tokenizer.json is of type BPE, Unigram or WordPiece with common parts", cause },
    );
  }
}

/** The format lets these be absent, the library does not. */
function withDefaults(json: Json): Json {
  const defaults = { normalizer: null, pre_tokenizer: null, post_processor: null, decoder: null, added_tokens: [] };
  return { ...defaults, ...json };
}

/** Name of a special token: both files may give it as text or as an object with `content`. */
function tokenName(files: (Json | undefined)[], key: string): string | undefined {
  for (const file of files) {
    const value = file?.[key];
    if (typeof value === "string") return value;
    if (isObject(value) && typeof value.content === "string") return value.content;
  }
  return undefined;
}

function endIds(path: string, file: Json | undefined): number[] {
  const value = file?.eos_token_id;
  if (value === undefined || value === null) return [];
  const ids = Array.isArray(value) ? value : [value];
  if (ids.every((id) => Number.isInteger(id) && id >= 0)) return ids;
  throw new RlvrError(
    "RLVR_TOKENIZER_EOS",
    `${path}: expected eos_token_id to be an id or a list of ids, got ${JSON.stringify(value)}`,
    { next: "correct eos_token_id" },
  );
}

function readChatTemplate(folder: string, config: Json): string | undefined {
  const path = join(folder, "chat_template.jinja");
  if (existsSync(path)) return readFileSync(path, "utf8");
  const value = config.chat_template;
  if (typeof value === "string") return value;
  if (!Array.isArray(value)) return undefined;
  const named = value.filter((entry) => isObject(entry) && typeof entry.template === "string");
  return (named.find((entry) => entry.name === "default") ?? named[0])?.template;
}

/**
 * Reads the tokenizer of a Hugging Face model folder: `tokenizer.json`, and where they exist `tokenizer_config.json`,
 * `special_tokens_map.json`, `chat_template.jinja`, and the end tokens of `generation_config.json` and `config.json`.
 *
 * Throws `RLVR_TOKENIZER_MISSING` (no tokenizer.json), `RLVR_TOKENIZER_JSON` (a file is no JSON object),
 * `RLVR_TOKENIZER_UNSUPPORTED` (a part the library does not know), `RLVR_TOKENIZER_TOKEN` (a special token that is not in
 * the vocabulary) and `RLVR_TOKENIZER_EOS` (no end token).
 *
 * @example
 * const tokenizer = loadTokenizer("recipes/transforms/model");
 * tokenizer.decode(tokenizer.encode("xs.length")); // "xs.length"
 */
export function loadTokenizer(folder: string): Tokenizer {
  const path = join(folder, "tokenizer.json");
  const json = readJson(folder, "tokenizer.json");
  if (json === undefined)
    throw new RlvrError("RLVR_TOKENIZER_MISSING", `${path}: expected the tokenizer of the model, got no such file`, {
      next: existsSync(folder)
        ? "write one from the model's slow tokenizer with AutoTokenizer.from_pretrained(…).save_pretrained(…)"
        : "check the model's path: the folder does not exist",
    });
  const config = readJson(folder, "tokenizer_config.json") ?? {};
  const names = [config, readJson(folder, "special_tokens_map.json")];
  const library = construct(path, json, config);

  const idOf = (key: string): number | undefined => {
    const name = tokenName(names, key);
    if (name === undefined) return undefined;
    const id = library.token_to_id(name);
    if (id === undefined)
      throw new RlvrError(
        "RLVR_TOKENIZER_TOKEN",
        `${folder}: expected ${key} ${JSON.stringify(name)} to be in the vocabulary of tokenizer.json, got no such token`,
        { next: `correct ${key} in tokenizer_config.json or special_tokens_map.json` },
      );
    return id;
  };

  const vocabularySize = 1 + Math.max(...library.get_vocab(true).values());
  const own = idOf("eos_token");
  const eosIds = [
    ...new Set([
      ...(own === undefined ? [] : [own]),
      ...["generation_config.json", "config.json"].flatMap((name) =>
        endIds(join(folder, name), readJson(folder, name)),
      ),
    ]),
  ];
  const eosToken = eosIds.length > 0 ? library.id_to_token(eosIds[0]) : undefined;
  if (eosToken === undefined)
    throw new RlvrError(
      "RLVR_TOKENIZER_EOS",
      `${folder}: expected an end token, got ${eosIds.length === 0 ? "none in any file" : `id ${eosIds[0]}, which the vocabulary of ${vocabularySize} has not`}`,
      { next: "set eos_token in tokenizer_config.json, or eos_token_id in generation_config.json or config.json" },
    );

  return {
    encode: (text, options = {}) => library.encode(text, { add_special_tokens: options.addSpecialTokens ?? false }).ids,
    decode: (ids, options = {}) => {
      const known = Array.from(ids).filter((id) => library.id_to_token(id) !== undefined);
      if (known.length === 0) return "";
      return library.decode(known, {
        skip_special_tokens: options.skipSpecialTokens ?? false,
        clean_up_tokenization_spaces: false,
      });
    },
    vocabularySize,
    eosIds,
    padId: idOf("pad_token") ?? eosIds[0],
    bosId: idOf("bos_token"),
    eosToken,
    bosToken: tokenName(names, "bos_token"),
    specialTokens: [...library.get_added_tokens_decoder().values()]
      .filter((token) => token.special)
      .map((token) => token.content),
    chatTemplate: readChatTemplate(folder, config),
  };
}
