/** The house: a room never imports from a higher one, and nothing from outside the project. */
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import ts from "typescript";
import { describe, expect, test } from "vitest";

const repository = resolve(import.meta.dirname, "..");

/** From the bottom up. */
const floors: string[][] = [
  ["base"],
  ["sandbox", "learning", "runs", "tasks", "model"],
  ["verifiers", "engine"],
  ["policy", "config"],
  ["rollouts"],
  ["evaluate"],
  ["train", "report"],
  ["cli"],
];

/** Files that hold data rather than code may be longer. */
const tables = new Set<string>([]);

function sources(folder: string): string[] {
  return readdirSync(join(repository, folder), { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) return ["node_modules", "dist"].includes(entry.name) ? [] : sources(path);
    return /\.(ts|mts|js|mjs)$/.test(entry.name) ? [path] : [];
  });
}

const files = ["src", "test", "recipes", "bench", "scripts"].flatMap(sources);
const text = (file: string) => readFileSync(join(repository, file), "utf8");

/** Every module that a file imports, exports from or loads later. */
function imports(file: string): string[] {
  return ts.preProcessFile(text(file)).importedFiles.map(({ fileName }) => fileName);
}

/** Room of a path under src/; undefined for the files at its top, which stand above all. */
const roomOf = (path: string) => /^src\/([^/]+)\//.exec(path)?.[1];
const floorOf = (room: string | undefined) =>
  room === undefined ? floors.length : floors.findIndex((rooms) => rooms.includes(room));

test("every folder under src is a room", () => {
  const rooms = readdirSync(join(repository, "src"), { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map(({ name }) => name);
  for (const room of rooms) expect(floors.flat()).toContain(room);
});

describe("imports", () => {
  const inside = files.filter((file) => file.startsWith("src/"));

  test("are found at all", () => {
    expect(inside.length).toBeGreaterThan(80);
    expect(imports("src/cli/program.ts")).toContain("./train.ts");
    expect(imports("src/index.ts")).toContain("./base/errors.ts");
  });

  test("never go up", () => {
    const upwards: string[] = [];
    for (const file of inside) {
      for (const name of imports(file).filter((specifier) => specifier.startsWith("."))) {
        const target = relative(repository, resolve(repository, dirname(file), name));
        const fixture = file.endsWith(".test.ts") && target.startsWith("test/");
        if (!fixture && (floorOf(roomOf(target)) > floorOf(roomOf(file)) || !target.startsWith("src/"))) {
          upwards.push(`${file} -> ${target}`);
        }
      }
    }
    // The command line binds `import … from "rlvr"` in a config to the running copy of everything.
    const binding = [...new Set(upwards)].filter((edge) => edge !== "src/cli/config.ts -> src/index.ts");
    expect(binding).toEqual([]);
  });

  test("stay inside the project", () => {
    const { dependencies, devDependencies } = JSON.parse(text("package.json"));
    const known = [...Object.keys({ ...dependencies, ...devDependencies }), "rlvr"];
    const outside: string[] = [];
    for (const file of files) {
      for (const name of imports(file)) {
        if (name.startsWith(".")) {
          if (relative(repository, resolve(repository, dirname(file), name)).startsWith(".."))
            outside.push(`${file} -> ${name}`);
        } else if (inside.includes(file) && !name.startsWith("node:")) {
          const bare = name.startsWith("@") ? name.split("/").slice(0, 2).join("/") : name.split("/")[0];
          if (!known.includes(bare)) outside.push(`${file} -> ${name}`);
        }
      }
    }
    expect(outside).toEqual([]);
  });
});

test("no file is over 400 lines, nor names a folder outside the project", () => {
  const long = files.filter((file) => !tables.has(file) && text(file).split("\n").length > 401);
  expect(long).toEqual([]);
  const needle = ["..", "shared"].join("/");
  expect(files.filter((file) => text(file).includes(needle))).toEqual([]);
});
