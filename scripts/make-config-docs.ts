/**
 * Writes the table of keys in docs/config.md from the config schema:
 * `node --import jiti/register scripts/make-config-docs.ts`.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath, pathToFileURL } from "node:url";
import { configFields, type Field } from "../src/config/fields.ts";

const BEGIN = "<!-- keys: begin (made by scripts/make-config-docs.ts) -->";
const END = "<!-- keys: end -->";

const HEADER = ["key", "value", "default", "meaning"];

function row({ path, expected, description, default: value }: Field): string[] {
  const shown = value === undefined ? "" : `\`${JSON.stringify(value)}\``;
  return [`\`${path}\``, expected, shown, description].map((text) => text.replaceAll("|", "\\|"));
}

/** A Markdown table with its columns aligned, as the formatter leaves it. */
function table(rows: string[][]): string {
  const widths = HEADER.map((_, column) => Math.max(...[HEADER, ...rows].map((cells) => cells[column].length)));
  const line = (cells: string[], fill: string) =>
    `| ${cells.map((text, i) => text.padEnd(widths[i], fill)).join(" | ")} |`;
  return [line(HEADER, " "), line(["", "", "", ""], "-"), ...rows.map((cells) => line(cells, " "))].join("\n");
}

/** One table for each section of the config. */
function tables(fields: readonly Field[]): string {
  const section = (field: Field) => (field.path.includes(".") ? field.path.split(".")[0] : "");
  const names = [...new Set(fields.map(section))];
  return names
    .map((name) => `### ${name || "Run"}\n\n${table(fields.filter((field) => section(field) === name).map(row))}`)
    .join("\n\n");
}

/** The page with its tables made anew. */
export function withKeys(page: string): string {
  const from = page.indexOf(BEGIN);
  const to = page.indexOf(END);
  if (from < 0 || to < from)
    throw new Error(`docs/config.md: expected the lines ${BEGIN} and ${END}, got no such pair`);
  return `${page.slice(0, from)}${BEGIN}\n\n${tables(configFields())}\n\n${page.slice(to)}`;
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  const path = fileURLToPath(new URL("../docs/config.md", import.meta.url));
  writeFileSync(path, withKeys(readFileSync(path, "utf8")));
}
