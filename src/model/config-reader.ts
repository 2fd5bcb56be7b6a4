import { RlvrError } from "../base/errors.ts";

/** JSON value as short text for a message. */
function show(value: unknown): string {
  if (value === undefined) return "nothing";
  const text = JSON.stringify(value);
  return text.length > 120 ? `${text.slice(0, 117)}…` : text;
}

/** Typed access to the keys of a `config.json`; every error names the key, what was expected and what came. */
export class ConfigReader {
  readonly #values: Record<string, unknown>;
  readonly #where: string;

  constructor(json: unknown, where: string) {
    if (typeof json !== "object" || json === null || Array.isArray(json)) {
      throw new RlvrError("RLVR_MODEL_CONFIG", `${where}: expected a JSON object, got ${show(json)}`, {
        next: "give the folder of a Hugging Face model",
      });
    }
    this.#values = json as Record<string, unknown>;
    this.#where = where;
  }

  /** A wrong or missing value. */
  error(key: string, expected: string, got: unknown): RlvrError {
    return new RlvrError("RLVR_MODEL_CONFIG", `${this.#where}: ${key}: expected ${expected}, got ${show(got)}`, {
      next: `correct ${key}`,
    });
  }

  /** A proper value that is not implemented here. */
  unsupported(key: string, expected: string, got: unknown): RlvrError {
    return new RlvrError("RLVR_MODEL_UNSUPPORTED", `${this.#where}: ${key}: expected ${expected}, got ${show(got)}`, {
      next: "use a Llama, Qwen2 or Qwen3 causal language model without this setting",
    });
  }

  /** A reader of the object at `key`, or null where it is missing or null. */
  object(key: string): ConfigReader | null {
    const value = this.value(key);
    if (value === undefined || value === null) return null;
    if (typeof value !== "object" || Array.isArray(value)) throw this.error(key, "an object or null", value);
    return new ConfigReader(value, `${this.#where}: ${key}`);
  }

  get keys(): string[] {
    return Object.keys(this.#values);
  }

  value(key: string): unknown {
    return Object.hasOwn(this.#values, key) ? this.#values[key] : undefined;
  }

  isNull(key: string): boolean {
    return this.value(key) === null;
  }

  missing(key: string): boolean {
    return this.value(key) === undefined || this.isNull(key);
  }

  integer(key: string, fallback?: number, least = 1): number {
    const value = this.missing(key) ? fallback : this.value(key);
    if (!Number.isSafeInteger(value) || (value as number) < least) {
      throw this.error(key, `an integer of at least ${least}`, this.value(key));
    }
    return value as number;
  }

  positive(key: string, fallback?: number): number {
    const value = this.missing(key) ? fallback : this.value(key);
    if (typeof value !== "number" || !Number.isFinite(value) || value <= 0) {
      throw this.error(key, "a number above 0", this.value(key));
    }
    return value;
  }

  boolean(key: string, fallback: boolean): boolean {
    const value = this.missing(key) ? fallback : this.value(key);
    if (typeof value !== "boolean") throw this.error(key, "true or false", value);
    return value;
  }

  /** One token id or a list of them; missing, null and the -1 of older folders are none. */
  tokenIds(key: string, vocabularySize: number): number[] {
    if (this.missing(key)) return [];
    const value = this.value(key);
    const ids = (Array.isArray(value) ? value : [value]).filter((id) => id !== -1);
    for (const id of ids) {
      if (!Number.isSafeInteger(id) || id < 0 || id >= vocabularySize) {
        throw this.error(key, `token ids from 0 to ${vocabularySize - 1}`, value);
      }
    }
    return [...new Set(ids)];
  }
}
