/** The built command line in processes of its own, with what they say on standard output as they say it. */
import { type ChildProcess, spawn } from "node:child_process";
import { constants } from "node:os";
import { join, resolve } from "node:path";

export const repository = resolve(import.meta.dirname, "../..");
export const toy = join(repository, "test/fixtures/toy");
const main = join(repository, "dist/cli/main.js");

/** A line of `--json`. */
// biome-ignore lint/suspicious/noExplicitAny: tests look into events of every kind.
export type Line = Record<string, any>;

export interface Ended {
  /** Exit code as a shell gives it: 128 and the number of the signal where one ended it. */
  status: number;
  stdout: string;
  stderr: string;
  /** Standard output, parsed line by line; throws where a line is not JSON. */
  lines(): Line[];
}

/** A process of `rlvr` that is under way. */
export class Running {
  readonly ended: Promise<Ended>;
  readonly #child: ChildProcess;
  readonly #listeners = new Set<() => void>();
  stdout = "";
  stderr = "";

  /** @param fileKilobytes no file can grow beyond this, as on a disk that is full */
  constructor(words: string[], cwd: string, fileKilobytes?: number) {
    const program = [process.execPath, main, ...words];
    const limited = ["bash", "-c", 'ulimit -f "$0" && exec "$@"', `${fileKilobytes}`, ...program];
    const [command, ...rest] = fileKilobytes === undefined ? program : limited;
    this.#child = spawn(command, rest, {
      cwd,
      env: { ...process.env, NO_COLOR: "1" },
      stdio: ["ignore", "pipe", "pipe"],
    });
    this.#child.stdout?.setEncoding("utf8").on("data", (text) => {
      this.stdout += text;
      this.#tell();
    });
    this.#child.stderr?.setEncoding("utf8").on("data", (text) => {
      this.stderr += text;
      this.#tell();
    });
    this.ended = new Promise((done) => {
      this.#child.on("close", (code, signal) => {
        const { stdout, stderr } = this;
        const status = code ?? 128 + constants.signals[signal as NodeJS.Signals];
        done({ status, stdout, stderr, lines: () => parse(stdout) });
      });
    });
  }

  get pid(): number {
    return this.#child.pid as number;
  }

  #tell(): void {
    for (const listener of this.#listeners) listener();
  }

  /** True once `condition` holds; false when the process ended without it. */
  async until(condition: (running: Running) => boolean): Promise<boolean> {
    let heard = () => {};
    const seen = new Promise<true>((done) => {
      heard = () => condition(this) && done(true);
      this.#listeners.add(heard);
      heard();
    });
    const result = await Promise.race([seen, this.ended.then(() => condition(this))]);
    this.#listeners.delete(heard);
    return result;
  }

  /** Complete lines of standard output so far. */
  lineCount(): number {
    return this.stdout.split("\n").length - 1;
  }

  kill(signal: NodeJS.Signals): void {
    this.#child.kill(signal);
  }
}

function parse(stdout: string): Line[] {
  if (stdout !== "" && !stdout.endsWith("\n")) throw new Error(`the last line has no end: ${stdout.slice(-80)}`);
  return stdout
    .split("\n")
    .slice(0, -1)
    .map((line) => JSON.parse(line));
}

/** Runs `rlvr` to its end. */
export function rlvr(words: string[], cwd: string): Promise<Ended> {
  return new Running(words, cwd).ended;
}

/** Runs `rlvr --json` to its end; throws unless it went well. */
export async function json(words: string[], cwd: string): Promise<Line[]> {
  const ended = await rlvr([...words, "--json"], cwd);
  if (ended.status !== 0) throw new Error(`rlvr ${words.join(" ")}: exit ${ended.status}\n${ended.stderr}`);
  return ended.lines();
}
