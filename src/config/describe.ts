import { configFields } from "./fields.ts";
import type { PlainSetting } from "./overrides.ts";
import type { RlvrConfig } from "./schema.ts";

function describeValue(value: unknown): unknown {
  if (typeof value === "function") return `function ${value.name || "(anonymous)"}`;
  if (Array.isArray(value)) return `${value.length} items`;
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, describeValue(inner)]));
}

/**
 * A resolved config as plain data, to print and to keep with a run: functions become their names, a task set the
 * number of its tasks by split.
 */
export function describeConfig(config: RlvrConfig): Record<string, unknown> {
  return describeValue(config) as Record<string, unknown>;
}

/** The plain values of a described config by dotted path: what `loadConfig` takes as `recorded`. */
export function plainValues(described: Record<string, unknown>): Record<string, PlainSetting> {
  const values: Record<string, PlainSetting> = {};
  for (const { path, kind } of configFields()) {
    const value = path
      .split(".")
      .reduce<unknown>((node, key) => (node as Record<string, unknown> | undefined)?.[key], described);
    if (kind === "numbers" && typeof value === "object" && value !== null) values[path] = value as PlainSetting;
    if (typeof value === "string" || typeof value === "number" || typeof value === "boolean") values[path] = value;
  }
  return values;
}
