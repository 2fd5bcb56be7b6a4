/**
 * A value that may cross into and out of a sandbox: data only, no identity, no behaviour. `NaN`, the infinities,
 * `undefined` and big integers are values too, so that they can be told from what was expected.
 */
export type PlainValue =
  | number
  | bigint
  | string
  | boolean
  | null
  | undefined
  | PlainValue[]
  | { [key: string]: PlainValue };

/**
 * JSON that keeps what JSON loses. Finite numbers, strings, booleans and null stand for themselves; everything else is
 * an array that starts with its tag: `a` array, `o` object (keys and values in turn), `n` other numbers, `b` bigint
 * (decimal digits), `u` undefined.
 */
export type TaggedValue = number | string | boolean | null | TaggedValue[];

/** Deepest nesting of arrays and objects that a value may have. */
export const MAX_DEPTH = 64;

/** Thrown for a value or a text that has no place in this encoding; the message says which. */
export class ValueError extends Error {}

const SPECIAL_NUMBERS = new Map<string, number>([
  ["NaN", Number.NaN],
  ["Infinity", Number.POSITIVE_INFINITY],
  ["-Infinity", Number.NEGATIVE_INFINITY],
  ["-0", -0],
]);

/** The tagged form of one number. */
export function encodeNumber(value: number): TaggedValue {
  if (Number.isFinite(value) && !Object.is(value, -0)) return value;
  return ["n", Object.is(value, -0) ? "-0" : String(value)];
}

/** Tagged form of a plain value. Throws `ValueError` for anything else (functions, class instances, cycles, holes). */
export function encodeValue(value: unknown, depth = 0): TaggedValue {
  switch (typeof value) {
    case "number":
      return encodeNumber(value);
    case "string":
    case "boolean":
      return value;
    case "undefined":
      return ["u"];
    case "bigint":
      return ["b", value.toString()];
    case "object":
      return value === null ? null : encodeObject(value, depth);
    default:
      throw new ValueError(`expected a plain value, got a ${typeof value}`);
  }
}

function encodeObject(value: object, depth: number): TaggedValue {
  if (depth >= MAX_DEPTH) throw new ValueError(`expected at most ${MAX_DEPTH} nested levels, got more`);
  if (Array.isArray(value)) {
    const out: TaggedValue[] = ["a"];
    for (let i = 0; i < value.length; i++) {
      if (!Object.hasOwn(value, i)) throw new ValueError(`expected an array without holes, got none at index ${i}`);
      out.push(encodeValue(value[i], depth + 1));
    }
    return out;
  }
  const prototype = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null) {
    throw new ValueError(`expected a plain object, got an instance of ${prototype.constructor?.name ?? "a class"}`);
  }
  const out: TaggedValue[] = ["o"];
  for (const [key, item] of Object.entries(value)) out.push(key, encodeValue(item, depth + 1));
  return out;
}

/** Inverse of `encodeValue`. Throws `ValueError` for anything that `encodeValue` does not produce. */
export function decodeValue(tagged: unknown, depth = 0): PlainValue {
  if (typeof tagged === "number" || typeof tagged === "string" || typeof tagged === "boolean" || tagged === null) {
    return tagged;
  }
  if (!Array.isArray(tagged)) throw new ValueError(`expected a tagged value, got ${typeof tagged}`);
  if (depth > MAX_DEPTH) throw new ValueError(`expected at most ${MAX_DEPTH} nested levels, got more`);
  const [tag, first] = tagged;
  if (tag === "a") return tagged.slice(1).map((item) => decodeValue(item, depth + 1));
  if (tag === "o" && tagged.length % 2 === 1) return decodeObject(tagged, depth);
  if (tag === "u" && tagged.length === 1) return undefined;
  if (tagged.length === 2 && typeof first === "string") {
    const special = tag === "n" ? SPECIAL_NUMBERS.get(first) : undefined;
    if (special !== undefined) return special;
    if (tag === "b" && /^-?\d+$/.test(first)) return BigInt(first);
  }
  throw new ValueError(`expected a tagged value, got an array that starts with ${JSON.stringify(tag)?.slice(0, 40)}`);
}

function decodeObject(tagged: unknown[], depth: number): PlainValue {
  const out: { [key: string]: PlainValue } = {};
  for (let i = 1; i < tagged.length; i += 2) {
    const key = tagged[i];
    if (typeof key !== "string") throw new ValueError(`expected a text key, got ${typeof key}`);
    const value = decodeValue(tagged[i + 1], depth + 1);
    // Assignment would run the setter of a key named __proto__.
    if (key === "__proto__")
      Object.defineProperty(out, key, { value, writable: true, enumerable: true, configurable: true });
    else out[key] = value;
  }
  return out;
}
