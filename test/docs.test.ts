/** The documentation against the code: tables are complete, names exist, links lead somewhere, examples print what is quoted. */
import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { withKeys } from "../scripts/make-config-docs.ts";
import { configFields } from "../src/config/fields.ts";
import { loadConfig } from "../src/config/load.ts";
import * as rlvr from "../src/index.ts";
import { createObjective } from "../src/learning/objectives.ts";
import { rolloutMetrics } from "../src/rollouts/metrics.ts";
import { metricNames } from "../src/runs/metrics.ts";

const root = fileURLToPath(new URL("..", import.meta.url));
const read = (path: string) => readFileSync(join(root, path), "utf8");
const pages = readdirSync(join(root, "docs"))
  .filter((name) => name.endsWith(".md"))
  .map((name) => `docs/${name}`);

/** All text of a folder's TypeScript sources, tests left out. */
function sources(folder: string): string {
  return readdirSync(join(root, folder), { withFileTypes: true })
    .map((entry) => {
      const path = `${folder}/${entry.name}`;
      if (entry.isDirectory()) return sources(path);
      return entry.name.endsWith(".ts") && !entry.name.endsWith(".test.ts") ? read(path) : "";
    })
    .join("\n");
}

/** Anchor of a heading, as GitHub makes it. */
const anchor = (heading: string) =>
  heading
    .toLowerCase()
    .replace(/[^\p{L}\p{N} _-]/gu, "")
    .replaceAll(" ", "-");

describe.each(pages)("%s", (page) => {
  const text = read(page);

  it("has links that lead somewhere", () => {
    for (const [, target, hash] of text.matchAll(/\]\(([^)#\s]*)(?:#([^)\s]*))?\)/g)) {
      const path = target === "" ? page : join(dirname(page), target);
      expect(existsSync(join(root, path)), target).toBe(true);
      if (hash === undefined) continue;
      const headings = [...read(path).matchAll(/^#+ (.*)$/gm)].map(([, heading]) => anchor(heading));
      expect(headings, `${target}#${hash}`).toContain(hash);
    }
  });

  it("names no error, alert or variable that does not exist", () => {
    const variables = configFields().map(({ variable }) => variable);
    const code = sources("src");
    for (const [name] of text.matchAll(/RLVR_[A-Z_]*[A-Z]/g)) {
      if (variables.includes(name) || name === "RLVR_OPTIMIZER_LERNING_RATE") continue;
      expect(code, name).toContain(`"${name}"`.replace('"RLVR_DEBUG"', "RLVR_DEBUG"));
    }
  });
});

it("docs/config.md has the keys of the schema", () => {
  const page = read("docs/config.md");
  // After a change of the schema: node --import jiti/register scripts/make-config-docs.ts
  expect(page).toBe(withKeys(page));
});

it("docs/grpo.md explains every metric", () => {
  const { stats } = createObjective("grpo")({
    logprobs: new Float32Array(1),
    rolloutLogprobs: new Float32Array(1),
    referenceLogprobs: new Float32Array(1),
    advantages: new Float32Array(1),
    mask: Float32Array.of(1),
    offsets: [0, 1],
  });
  const loop = read("src/train/rlvr.ts").matchAll(/"((?:groups|verdicts|kl|time|speed)\/[\w-]+)"/g);
  const logged = [...Object.keys(stats), ...Object.keys(rolloutMetrics([])), ...[...loop].map(([, name]) => name)];
  const page = read("docs/grpo.md");
  for (const name of [...Object.keys(metricNames), ...logged]) expect(page).toContain(`\`${name}\``);
});

describe("examples", () => {
  it.each(["judge-code", "judge-sums"])("%s prints what the page quotes", (name) => {
    const printed = execFileSync(process.execPath, ["--import", "jiti/register", `docs/examples/${name}.ts`], {
      cwd: root,
      encoding: "utf8",
    });
    expect(read("docs/checker.md")).toContain(`\`\`\`\n${printed}\`\`\``);
  });

  it("sums.config.ts is a valid config, and the page shows its verifier", async () => {
    const { config } = await loadConfig(join(root, "docs/examples/sums.config.ts"), { modules: { rlvr } });
    const tasks = typeof config.tasks === "function" ? await config.tasks(config.seed) : config.tasks;
    rlvr.validateTasks(tasks, ["train", "validation", "test"]);
    const verifier = await config.verifier();
    const [task] = tasks.test;
    const verdicts = await verifier.verify([
      { task, completion: `${task.reference}` },
      { task, completion: "-1" },
    ]);
    expect(verdicts.map(({ outcome }) => outcome)).toEqual(["pass", "fail"]);
    const shown = /^ {4}async verify[\s\S]*?^ {4}\},$/m.exec(read("docs/examples/sums.config.ts"))?.[0] ?? "missing";
    expect(read("docs/checker.md")).toContain(shown.replaceAll(/^ {4}/gm, ""));
  });
});
