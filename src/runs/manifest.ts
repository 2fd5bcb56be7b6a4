import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { arch, availableParallelism, platform, release } from "node:os";

/** Version of this package. */
export function packageVersion(): string {
  const text = readFileSync(new URL("../../package.json", import.meta.url), "utf8");
  return (JSON.parse(text) as { version: string }).version;
}

/**
 * What a run was made with: versions and machine, and whatever the loop adds (contract, hashes, seeds).
 * Nothing in it depends on the clock.
 */
export function makeManifest(details: Record<string, unknown>): Record<string, unknown> {
  const require = createRequire(import.meta.url);
  return {
    format: 1,
    versions: {
      rlvr: packageVersion(),
      node: process.versions.node,
      onnxruntime: (require("onnxruntime-node/package.json") as { version: string }).version,
    },
    platform: { system: platform(), release: release(), architecture: arch(), cores: availableParallelism() },
    ...details,
  };
}
