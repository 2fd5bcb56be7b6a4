import { RlvrError } from "../base/errors.ts";

/**
 * Where a text is cut before merges are learned; a token never reaches over a cut. Words take the space behind them
 * along, digits stand alone, a dot starts a new piece (`.map(x=>x*`), spaces and line breaks otherwise stand alone.
 * Written with classes that mean the same to JavaScript and to Oniguruma.
 */
export const CODE_PATTERN = "\\.[^ \\t\\r\\n0-9.]+|\\p{L}+ ?|[0-9]|[^ \\t\\r\\n0-9.\\p{L}]+ ?|[ \\t\\r\\n.]";

export interface BpeOptions {
  /** Largest vocabulary, special tokens and the 256 bytes included. Smaller when no pair is frequent enough. */
  vocabularySize: number;
  /** Get the first ids, in this order. */
  specialTokens: string[];
  /** Regular expression whose matches are the pieces of a text; it must match every character. */
  pattern?: string;
  /** A pair is merged only if it occurs at least this often. */
  minFrequency?: number;
}

/** The parts of a Hugging Face `tokenizer.json` that this trainer writes. */
export interface TokenizerJson {
  version: string;
  added_tokens: { id: number; content: string; special: boolean; [flag: string]: unknown }[];
  model: { type: "BPE"; vocab: Record<string, number>; merges: string[]; [setting: string]: unknown };
  [part: string]: unknown;
}

/**
 * The printable character that stands for each byte in a byte-level vocabulary: the byte's own Latin-1 character where
 * that is visible, else the next free one from U+0100 on. Every byte-level tokenizer uses this table.
 */
export function byteCharacters(): string[] {
  let next = 256;
  return Array.from({ length: 256 }, (_, byte) => {
    const visible = (byte >= 33 && byte <= 126) || (byte >= 161 && byte !== 173);
    return String.fromCharCode(visible ? byte : next++);
  });
}

interface Word {
  symbols: string[];
  count: number;
}

function countPieces(texts: Iterable<string>, pattern: RegExp): Word[] {
  const characters = byteCharacters();
  const counts = new Map<string, number>();
  for (const text of texts) {
    const pieces = text.match(pattern) ?? [];
    if (pieces.join("") !== text)
      throw new RlvrError(
        "RLVR_BPE_PATTERN",
        `trainBpe: expected a pattern whose matches make up the text, got one that skips part of ${JSON.stringify(text.slice(0, 60))}`,
        { next: "add an alternative that matches the remaining characters" },
      );
    for (const piece of pieces) counts.set(piece, (counts.get(piece) ?? 0) + 1);
  }
  return [...counts].map(([piece, count]) => ({
    symbols: [...Buffer.from(piece, "utf8")].map((byte) => characters[byte]),
    count,
  }));
}

/** The most frequent pair; of equally frequent ones the first in the order of code units. */
function bestPair(words: Word[], minFrequency: number): [string, string] | undefined {
  const counts = new Map<string, number>();
  for (const { symbols, count } of words) {
    for (let i = 0; i + 1 < symbols.length; i++) {
      const pair = `${symbols[i]} ${symbols[i + 1]}`;
      counts.set(pair, (counts.get(pair) ?? 0) + count);
    }
  }
  let best: string | undefined;
  let most = minFrequency - 1;
  for (const [pair, count] of counts) {
    if (count > most || (count === most && best !== undefined && pair < best)) [best, most] = [pair, count];
  }
  return best === undefined ? undefined : (best.split(" ") as [string, string]);
}

function mergeIn(word: Word, left: string, right: string): void {
  const { symbols } = word;
  let kept = 0;
  for (let i = 0; i < symbols.length; i++) {
    const merges = symbols[i] === left && symbols[i + 1] === right;
    symbols[kept++] = merges ? left + right : symbols[i];
    if (merges) i++;
  }
  symbols.length = kept;
}

/**
 * Learns a byte-level BPE vocabulary and returns it as a `tokenizer.json` for `@huggingface/tokenizers`, `tokenizers`
 * and `transformers`. Ids: special tokens, the 256 bytes, then merged tokens in the order they were learned. Any text
 * can be encoded, and decoding gives it back. The result depends on the pieces' counts only, not on the texts' order.
 *
 * Throws `RLVR_BPE_OPTIONS` when the vocabulary has no room for the bytes or a special token comes twice, and
 * `RLVR_BPE_PATTERN` when the pattern skips part of a text.
 *
 * @example
 * const json = trainBpe(["sum\n[1,2]->3\n"], { vocabularySize: 300, specialTokens: ["<|pad|>", "<|eos|>"] });
 */
export function trainBpe(texts: Iterable<string>, options: BpeOptions): TokenizerJson {
  const { vocabularySize, specialTokens, pattern = CODE_PATTERN, minFrequency = 2 } = options;
  const fixed = specialTokens.length + 256;
  if (vocabularySize < fixed || new Set(specialTokens).size !== specialTokens.length)
    throw new RlvrError(
      "RLVR_BPE_OPTIONS",
      `trainBpe: expected different special tokens and a vocabularySize of at least ${fixed} (special tokens and bytes), got ${JSON.stringify(specialTokens)} and ${vocabularySize}`,
      { next: "enlarge vocabularySize or correct specialTokens" },
    );
  const words = countPieces(texts, new RegExp(pattern, "gu"));
  const tokens = [...specialTokens, ...byteCharacters()];
  const known = new Set(tokens);
  const merges: string[] = [];
  while (tokens.length < vocabularySize) {
    const pair = bestPair(words, Math.max(1, minFrequency));
    if (pair === undefined) break;
    const [left, right] = pair;
    for (const word of words) mergeIn(word, left, right);
    merges.push(`${left} ${right}`);
    // Two different merges can spell one token; it keeps its first id.
    if (!known.has(left + right)) {
      known.add(left + right);
      tokens.push(left + right);
    }
  }
  return tokenizerJson(tokens, merges, specialTokens, pattern);
}

function tokenizerJson(tokens: string[], merges: string[], specialTokens: string[], pattern: string): TokenizerJson {
  return {
    version: "1.0",
    truncation: null,
    padding: null,
    added_tokens: specialTokens.map((content, id) => ({
      id,
      content,
      single_word: false,
      lstrip: false,
      rstrip: false,
      normalized: false,
      special: true,
    })),
    normalizer: null,
    pre_tokenizer: {
      type: "Sequence",
      pretokenizers: [
        { type: "Split", pattern: { Regex: pattern }, behavior: "Isolated", invert: false },
        { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: false },
      ],
    },
    post_processor: null,
    decoder: { type: "ByteLevel", add_prefix_space: true, trim_offsets: true, use_regex: true },
    model: {
      type: "BPE",
      dropout: null,
      unk_token: null,
      continuing_subword_prefix: null,
      end_of_word_suffix: null,
      fuse_unk: false,
      byte_fallback: false,
      ignore_merges: false,
      vocab: Object.fromEntries(tokens.map((token, id) => [token, id])),
      merges,
    },
  };
}
