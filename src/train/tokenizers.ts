import { readFileSync } from "node:fs";
import { join } from "node:path";
import { RlvrError } from "../base/errors.ts";
import type { Tokenizer } from "../model/tokenizer.ts";
import { loadTokenizer } from "../model/tokenizer.ts";

/** Texts that two tokenizers are tried on beside the prompts: spaces, case, digits, scripts, signs. */
const PROBES = ["Hello, World!  two  spaces\n\ttab", "x1 = 3.14159 * (y - 20)", "Grüße, 世界 – é 🙂", "'s don't WE'LL"];

/** Id of every token by its text, the added ones included. */
function vocabulary(folder: string): Map<string, number> {
  const { model = {}, added_tokens: added = [] } = JSON.parse(readFileSync(join(folder, "tokenizer.json"), "utf8")) as {
    model?: { vocab?: Record<string, number> | [string, number][] };
    added_tokens?: { id: number; content: string }[];
  };
  const { vocab = {} } = model;
  // Unigram models list tokens with their scores: the place in the list is the id.
  const entries: [string, number][] = Array.isArray(vocab)
    ? vocab.map(([text], id) => [text, id])
    : Object.entries(vocab);
  return new Map([...entries, ...added.map(({ content, id }): [string, number] => [content, id])]);
}

/** The first token that is not the same in both, in words; undefined where there is none. */
function difference(ours: Map<string, number>, theirs: Map<string, number>): string | undefined {
  for (const [text, id] of ours) {
    const other = theirs.get(text);
    if (other !== id) return `${JSON.stringify(text)} is ${id} here and ${other ?? "no token"} there`;
  }
  const [text, id] = [...theirs].find(([token]) => !ours.has(token)) ?? [];
  return text === undefined ? undefined : `${JSON.stringify(text)} is no token here and ${id} there`;
}

function ends(name: string, ours: Tokenizer, theirs: Tokenizer): string | undefined {
  const list = ({ specialTokens }: Tokenizer) => [...specialTokens].sort().join(" ");
  if (list(ours) !== list(theirs)) return `special tokens are ${list(ours)} here and ${list(theirs)} there`;
  if (ours.eosToken !== theirs.eosToken)
    return `an answer ends with ${ours.eosToken} here and ${theirs.eosToken} there`;
  const probe = [...PROBES, name].find((text) => ours.encode(text).join() !== theirs.encode(text).join());
  return probe === undefined
    ? undefined
    : `${JSON.stringify(probe.slice(0, 40))} is ${ours.encode(probe).length} tokens here and ${theirs.encode(probe).length} there`;
}

/**
 * Throws `RLVR_TOKENIZERS_DIFFER` unless two model folders mean the same by every token id and split text alike: one
 * model's probabilities of the other's tokens mean nothing otherwise.
 *
 * @param sample a text that will be trained on
 */
export function checkSameTokenizer(student: string, teacher: string, sample = ""): void {
  const found =
    difference(vocabulary(student), vocabulary(teacher)) ??
    ends(sample, loadTokenizer(student), loadTokenizer(teacher));
  if (found === undefined) return;
  throw new RlvrError(
    "RLVR_TOKENIZERS_DIFFER",
    `distill: expected a teacher with the tokenizer of ${student}, got another in ${teacher}: ${found}`,
    { next: "choose a teacher of the same family, or distill.method responses, where text goes over and not tokens" },
  );
}
