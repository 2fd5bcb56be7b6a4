/**
 * Writes the table of keys in docs/config.md from the config schema:
 * `node --import jiti/register scripts/make-config-docs.ts`.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath, pathToFileURL } from "node:url";
import { configFields, type Field } from "../src/config/fields.ts";

const BEGIN = "<!-- keys: begin (made by scripts/make-config-docs.ts) -->";
const END = "<!-- keys: end -->";

const cell = (text: string) => text.replaceAll("|", "\\|");

function row({ path, expected, description, default: value }: Field): string {
  const shown = value === undefined ? "" : `\`${JSON.stringify(value)}\``;
  return `| \`${path}\` | ${cell(expected)} | ${shown} | ${cell(description)} |`;
}

/** One table for each section of the config. */
function tables(fields: readonly Field[]): string {
  const section = (field: Field) => (field.path.includes(".") ? field.path.split(".")[0] : "");
  const names = [...new Set(fields.map(section))];
  return names
    .map((name) => {
      const rows = fields.filter((field) => section(field) === name).map(row);
      return [`### ${name || "Run"}`, "", "| key | value | default | meaning |", "|---|---|---|---|", ...rows].join(
        "\n",
      );
    })
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
