import type { SandboxLimits } from "./limits.ts";
import { MemoryError, type QuickJS } from "./quickjs.ts";
import type { Handle } from "./quickjs-exports.ts";
import { encodeNumber, MAX_DEPTH, type TaggedValue } from "./values.ts";

/** A candidate returned something that is not plain data; the message names it. */
export class UnencodableError extends Error {}
/** A candidate returned more than the output limit allows. */
export class OutputError extends Error {}

/** Makes a value inside the engine. Meant for a freshly restored engine, where no candidate code has run yet. */
export function writeValue(engine: QuickJS, tagged: TaggedValue): Handle {
  switch (typeof tagged) {
    case "number":
      return engine.newNumber(tagged);
    case "string":
      return engine.newString(tagged);
    case "boolean":
      return tagged ? engine.values.true : engine.values.false;
  }
  if (tagged === null) return engine.values.null;
  const [tag, first] = tagged;
  switch (tag) {
    case "a":
      return engine.newArray(tagged.slice(1).map((item) => writeValue(engine, item)));
    case "o": {
      const entries: [string, Handle][] = [];
      for (let i = 1; i < tagged.length; i += 2) entries.push([tagged[i] as string, writeValue(engine, tagged[i + 1])]);
      return engine.newObject(entries);
    }
    case "n":
      return engine.newNumber(Number(first));
    case "b":
      return engine.newBigInt(first as string);
    default:
      return engine.values.undefined;
  }
}

/**
 * Reads a value out of the engine without running candidate code: no getter, no proxy trap, no conversion method, and
 * nothing that a candidate can replace. Only exact plain data is taken: arrays and objects whose prototype is the
 * original one (or, for objects, null), without accessors and holes. Named properties of an array are left out.
 * Throws `UnencodableError`, `OutputError` or `MemoryError`.
 */
export class ValueReader {
  readonly #engine: QuickJS;
  readonly #limits: SandboxLimits;
  #bytes = 0;
  #values = 0;
  /** Identities of the containers around the value being read. */
  #path: number[] = [];

  constructor(engine: QuickJS, limits: SandboxLimits) {
    this.#engine = engine;
    this.#limits = limits;
  }

  /** Bytes of everything read so far, counted as `outputBytes` says. */
  get bytes(): number {
    return this.#bytes;
  }

  read(value: Handle): TaggedValue {
    this.#bytes = 0;
    this.#values = 0;
    this.#path = [];
    return this.#read(value);
  }

  #read(value: Handle): TaggedValue {
    const engine = this.#engine;
    this.#count(8, 1);
    if (engine.isNumber(value)) return encodeNumber(engine.number(value));
    if (engine.isString(value)) return this.#text(value);
    if (engine.isBoolean(value)) return engine.boolean(value);
    if (engine.isNull(value)) return null;
    if (engine.isUndefined(value)) return ["u"];
    if (engine.isBigInt(value)) {
      const digits = engine.text(value);
      this.#count(digits.length, 0);
      return ["b", digits];
    }
    if (engine.isSymbol(value)) throw new UnencodableError("a symbol");
    if (engine.isProxy(value)) throw new UnencodableError("a proxy");
    if (engine.isFunction(value)) throw new UnencodableError("a function");
    return this.#readContainer(value);
  }

  #readContainer(value: Handle): TaggedValue {
    const engine = this.#engine;
    const identity = engine.identity(value);
    if (this.#path.includes(identity)) throw new UnencodableError("a value that contains itself");
    if (this.#path.length >= MAX_DEPTH) throw new UnencodableError(`more than ${MAX_DEPTH} nested levels`);
    this.#path.push(identity);
    const result = engine.isArray(value) ? this.#readArray(value) : this.#readObject(value);
    this.#path.pop();
    return result;
  }

  #readArray(array: Handle): TaggedValue {
    const engine = this.#engine;
    if (engine.identity(engine.prototypeOf(array)) !== engine.prototypes.array) {
      throw new UnencodableError("an array with a prototype of its own");
    }
    const length = engine.length(array);
    // Every element counts, so a length beyond the limit need not be tried.
    if (length > this.#limits.outputValues) throw new OutputError();
    const out: TaggedValue[] = ["a"];
    for (let index = 0; index < length; index++) {
      const item = engine.ownValue(array, engine.newNumber(index));
      if (item === undefined) throw new UnencodableError("an array with holes");
      if (item === "accessor") throw new UnencodableError("an array with a getter");
      out.push(this.#read(item));
    }
    return out;
  }

  #readObject(object: Handle): TaggedValue {
    const engine = this.#engine;
    const name = engine.className(object);
    if (name !== "Object") throw new UnencodableError(`an object of class ${name}`);
    const prototype = engine.prototypeOf(object);
    if (!engine.isNull(prototype) && engine.identity(prototype) !== engine.prototypes.object) {
      throw new UnencodableError("an object with a prototype of its own");
    }
    const { list, count } = engine.ownKeys(object);
    if (count > this.#limits.outputValues) throw new OutputError();
    const out: TaggedValue[] = ["o"];
    for (let index = 0; index < count; index++) {
      const key = engine.element(list, index);
      if (!engine.isString(key)) throw new UnencodableError("an object with a symbol as key");
      const item = engine.ownValue(object, key);
      if (item === undefined || item === "accessor") throw new UnencodableError("an object with a getter");
      out.push(this.#text(key), this.#read(item));
    }
    return out;
  }

  #text(value: Handle): string {
    // UTF-16 length first: it is free, and never more than the UTF-8 length.
    if (this.#engine.length(value) > this.#limits.outputBytes) throw new OutputError();
    const text = this.#engine.text(value);
    this.#count(Buffer.byteLength(text), 0);
    return text;
  }

  #count(bytes: number, values: number): void {
    this.#bytes += bytes;
    this.#values += values;
    if (this.#bytes > this.#limits.outputBytes || this.#values > this.#limits.outputValues) throw new OutputError();
  }
}

const TEXT_CAP = 200;

/**
 * Name and message of something that was thrown, without running candidate code: own data properties only, looked up
 * along at most eight prototypes, texts cut at 200 characters.
 */
export function describeThrown(engine: QuickJS, value: Handle): { name: string; message: string } {
  if (engine.isNull(value)) return { name: "null", message: "null" };
  if (engine.isUndefined(value)) return { name: "undefined", message: "undefined" };
  if (engine.isString(value)) return { name: "string", message: shortText(engine, value) };
  if (engine.isNumber(value)) return { name: "number", message: String(engine.number(value)) };
  if (engine.isBoolean(value)) return { name: "boolean", message: String(engine.boolean(value)) };
  if (engine.isSymbol(value)) return { name: "symbol", message: "" };
  if (engine.isBigInt(value)) return { name: "bigint", message: "" };
  if (engine.isProxy(value)) return { name: "proxy", message: "" };
  return {
    name: dataText(engine, value, engine.keys.name) ?? engine.className(value),
    message: dataText(engine, value, engine.keys.message) ?? "",
  };
}

function dataText(engine: QuickJS, value: Handle, key: Handle): string | undefined {
  let object = value;
  for (let level = 0; level < 8 && !engine.isNull(object) && !engine.isProxy(object); level++) {
    const found = engine.ownValue(object, key);
    if (found !== undefined)
      return found === "accessor" || !engine.isString(found) ? undefined : shortText(engine, found);
    object = engine.prototypeOf(object);
  }
  return undefined;
}

function shortText(engine: QuickJS, value: Handle): string {
  // A long text would be copied whole, so it is not copied at all.
  if (engine.length(value) > 16 * 1024) return "(a long text)";
  try {
    return engine.text(value).slice(0, TEXT_CAP);
  } catch (error) {
    if (error instanceof MemoryError) return "";
    throw error;
  }
}

/** One word or two for a value that should have been a function. */
export function describeKind(engine: QuickJS, value: Handle): string {
  if (engine.isUndefined(value)) return "undefined";
  if (engine.isNull(value)) return "null";
  if (engine.isNumber(value)) return "a number";
  if (engine.isString(value)) return "a string";
  if (engine.isBoolean(value)) return "a boolean";
  if (engine.isBigInt(value)) return "a bigint";
  if (engine.isSymbol(value)) return "a symbol";
  return engine.isArray(value) ? "an array" : "an object";
}
