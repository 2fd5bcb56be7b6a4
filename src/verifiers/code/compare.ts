import type { PlainValue } from "../../sandbox/values.ts";

/**
 * Equality by type and structure. 1 is not "1" and not 1n; NaN equals NaN; -0 equals 0. Arrays: same length, equal
 * elements in order. Objects: same keys in any order, equal values; a key with the value undefined is a key.
 */
export function sameValue(a: PlainValue, b: PlainValue): boolean {
  if (a === b) return true;
  if (typeof a === "number" && typeof b === "number") return Number.isNaN(a) && Number.isNaN(b);
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
  if (Array.isArray(a) || Array.isArray(b)) {
    if (!Array.isArray(a) || !Array.isArray(b) || a.length !== b.length) return false;
    return a.every((item, index) => sameValue(item, b[index]));
  }
  const keys = Object.keys(a);
  return (
    keys.length === Object.keys(b).length && keys.every((key) => Object.hasOwn(b, key) && sameValue(a[key], b[key]))
  );
}

/** A value as text, much like its JavaScript literal, cut at `cap` characters. For evidence, which is stored as JSON. */
export function showValue(value: PlainValue, cap = 300): string {
  const text = literal(value);
  return text.length <= cap ? text : `${text.slice(0, cap)}…`;
}

function literal(value: PlainValue): string {
  if (typeof value === "string") return JSON.stringify(value);
  if (typeof value === "bigint") return `${value}n`;
  if (typeof value === "number") return Object.is(value, -0) ? "-0" : String(value);
  if (typeof value !== "object" || value === null) return String(value);
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  return `{${Object.entries(value)
    .map(([key, item]) => `${JSON.stringify(key)}: ${literal(item)}`)
    .join(", ")}}`;
}
