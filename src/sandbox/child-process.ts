import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { realpathSync } from "node:fs";
import { dirname, join } from "node:path";
import { scriptPath } from "../base/files.ts";
import type { SandboxLimits } from "./limits.ts";

/** CPU seconds after which a child asks to be replaced. */
export const RETIRE_AFTER_CPU_SECONDS = 20;

/** The layers around a candidate on this machine, from the inside out; every verdict can name them. */
export function isolationLayers(): string[] {
  const layers = ["wasm engine without host functions", "own process, empty environment", "node permission model"];
  return process.platform === "win32" ? layers : [...layers, "rlimits"];
}

/**
 * Starts a JavaScript child in a process group of its own, so that the whole group can be killed. The engine inside is
 * the boundary; the flags and limits around it are a second net for the day when the engine leaks: no file but the
 * child's own code can be read, none written, no process or thread started, no text compiled, CPU time and data bounded.
 */
export function spawnJavaScriptChild(nodePath: string, limits: SandboxLimits): ChildProcessWithoutNullStreams {
  const script = realpathSync(scriptPath(import.meta.url, "javascript-child"));
  const folder = dirname(script);
  const node = [
    "--no-warnings",
    "--experimental-permission",
    `--allow-fs-read=${join(folder, "*")}`,
    "--disallow-code-generation-from-strings",
    "--max-old-space-size=96",
    // The engine's own stack limit must be met before V8's.
    "--stack-size=3600",
    script,
  ];
  const options = { env: {}, cwd: folder, detached: true, windowsHide: true } as const;
  if (process.platform === "win32") return spawn(nodePath, node, options);
  return spawn(
    "/bin/sh",
    ["-c", `${ulimits(limits)}; unset PWD OLDPWD SHLVL _; exec "$@"`, "sh", nodePath, ...node],
    options,
  );
}

/** A limit that the system refuses is already lower there, or missing; the child starts either way. */
function ulimits(limits: SandboxLimits): string {
  const dataKilobytes = 384 * 1024 + Math.ceil((2 * limits.memoryBytes) / 1024);
  const cpuSeconds = RETIRE_AFTER_CPU_SECONDS + Math.ceil((limits.wallMs + limits.killGraceMs) / 1000) + 10;
  return ["-c 0", "-f 0", `-d ${dataKilobytes}`, `-t ${cpuSeconds}`].map((l) => `ulimit ${l} 2>/dev/null`).join("; ");
}

/** Ends a child and everything in its group at once. */
export function killGroup(child: ChildProcessWithoutNullStreams): void {
  if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
  try {
    if (process.platform === "win32") child.kill("SIGKILL");
    else process.kill(-child.pid, "SIGKILL");
  } catch {
    // It ended in the meantime.
  }
}
