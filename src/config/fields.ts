/** The schema as a flat list: one entry for each key that can be set by a flag or an environment variable. */
import { configJsonSchema } from "./schema.ts";

export interface Field {
  /** Dotted path, for example `optimizer.learningRate`: also the flag without its dashes. */
  path: string;
  kind: "number" | "integer" | "string" | "boolean" | "enum" | "numbers";
  /** What is accepted, in words, for example `a number > 0`. */
  expected: string;
  description: string;
  default?: unknown;
  /** Of an enum. */
  choices?: (string | number)[];
  /** The environment variable that sets it. */
  variable: string;
}

interface Node {
  type?: string;
  description?: string;
  default?: unknown;
  properties?: Record<string, Node>;
  additionalProperties?: Node | boolean;
  enum?: (string | number)[];
  anyOf?: { const?: string | number }[];
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: number;
  exclusiveMaximum?: number;
  pattern?: string;
}

/** `optimizer.learningRate` → `RLVR_OPTIMIZER_LEARNING_RATE`. */
export function variableName(path: string): string {
  return `RLVR_${path
    .replace(/([a-z0-9])([A-Z])/g, "$1_$2")
    .replace(/\./g, "_")
    .toUpperCase()}`;
}

function choicesOf(node: Node): (string | number)[] | undefined {
  if (node.enum) return node.enum;
  const constants = node.anyOf?.map((option) => option.const);
  return constants?.every((value) => value !== undefined) ? (constants as (string | number)[]) : undefined;
}

/** A record of numbers by names of the user's own. */
function isNumbers(node: Node): boolean {
  const values = node.additionalProperties;
  return node.type === "object" && typeof values === "object" && values.type === "number";
}

function expectedOf(node: Node, choices: (string | number)[] | undefined): string {
  if (choices) {
    const words = choices.map((choice) => JSON.stringify(choice));
    return words.length === 1 ? words[0] : `${words.slice(0, -1).join(", ")} or ${words.at(-1)}`;
  }
  if (isNumbers(node)) return "names with numbers, as in first=0.7,second=0.3";
  if (node.type === "boolean") return "true or false";
  if (node.type === "string") {
    return node.pattern ? "a name of letters, digits, '.', '_' and '-'" : "a text that is not empty";
  }
  const bounds: string[] = [];
  if (node.exclusiveMinimum !== undefined) bounds.push(`> ${node.exclusiveMinimum}`);
  if (node.minimum !== undefined && node.minimum > Number.MIN_SAFE_INTEGER) bounds.push(`>= ${node.minimum}`);
  if (node.exclusiveMaximum !== undefined) bounds.push(`< ${node.exclusiveMaximum}`);
  else if (node.maximum !== undefined && node.maximum < Number.MAX_SAFE_INTEGER) bounds.push(`<= ${node.maximum}`);
  return [node.type === "integer" ? "an integer" : "a number", bounds.join(" and ")].filter(Boolean).join(" ");
}

function walk(node: Node, path: string, fields: Field[], keys: Map<string, string[]>): void {
  if (node.properties) {
    keys.set(path, Object.keys(node.properties));
    for (const [key, child] of Object.entries(node.properties)) {
      walk(child, path ? `${path}.${key}` : key, fields, keys);
    }
    return;
  }
  const choices = choicesOf(node);
  const plain = ["number", "integer", "string", "boolean"].includes(node.type ?? "");
  if (!choices && !plain && !isNumbers(node)) return; // a function
  fields.push({
    path,
    kind: choices ? "enum" : isNumbers(node) ? "numbers" : (node.type as Field["kind"]),
    expected: expectedOf(node, choices),
    description: node.description ?? "",
    ...(node.default !== undefined && { default: node.default }),
    ...(choices && { choices }),
    variable: variableName(path),
  });
}

let cached: { fields: Field[]; keys: Map<string, string[]> } | undefined;

function read(): { fields: Field[]; keys: Map<string, string[]> } {
  if (!cached) {
    cached = { fields: [], keys: new Map() };
    walk(configJsonSchema() as Node, "", cached.fields, cached.keys);
  }
  return cached;
}

/** Every key that takes a plain value, in the schema's order. */
export function configFields(): Field[] {
  return read().fields;
}

/** The keys of the object at a dotted path (`""` = the config itself). */
export function keysAt(path: string): string[] {
  return read().keys.get(path) ?? [];
}
