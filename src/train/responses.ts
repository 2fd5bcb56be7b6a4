/**
 * The answers of a teacher, as they are kept in a run: `responses/part-000000.jsonl.gz`, … with every answer, and
 * `responses.json` with the counts. A run that is interrupted while they are written keeps the finished parts.
 */
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { gunzipSync, gzipSync } from "node:zlib";
import { errorMessage, RlvrError } from "../base/errors.ts";
import type { RlvrConfig } from "../config/index.ts";
import type { Policy } from "../policy/policy.ts";
import type { RunFolder } from "../runs/index.ts";
import type { Demonstration } from "../tasks/demonstration.ts";
import type { Task } from "../tasks/task.ts";
import type { Verdict, Verifier } from "../verifiers/verifier.ts";
import { digest, type LoopOptions } from "./setup.ts";
import type { Teacher, TeacherAnswer } from "./teachers.ts";

/** Why an answer is not trained on. */
export type Dropped = "truncated" | "empty" | "duplicate" | "too-long" | "failed" | "error";

/** One line of a part. */
export interface ResponseRecord {
  taskId: string;
  /** Index among the task's answers, from 0. */
  sample: number;
  completion: string;
  finish: TeacherAnswer["finish"];
  /** The verifier's, where it was asked. */
  outcome?: string;
  score?: number;
  /** Absent for answers that are trained on. */
  dropped?: Dropped;
}

interface Part {
  records: ResponseRecord[];
  tokens: number;
  seconds: number;
}

/** `responses.json` */
export interface ResponseSummary {
  sampled: number;
  kept: number;
  /** Share of the answers that are trained on. */
  acceptance: number;
  dropped: Partial<Record<Dropped, number>>;
  /** Tasks with at least one answer that is trained on. */
  tasksWithAnswers: number;
  tasks: number;
  teacherTokens: number;
  seconds: number;
  /** Of all records. */
  hash: string;
}

/** Tasks in one part: also what an interruption costs at most. */
const PART_TASKS = 64;

const partName = (part: number) => join("responses", `part-${String(part).padStart(6, "0")}.jsonl.gz`);

/** Answers to all tasks, of this run's files or newly asked for; null when interrupted. */
export async function collectResponses(
  run: RunFolder,
  teacher: Teacher,
  verifier: Verifier,
  student: Policy,
  tasks: readonly Task[],
  config: RlvrConfig,
  options: LoopOptions,
): Promise<{ summary: ResponseSummary; demonstrations: Demonstration[] } | null> {
  mkdirSync(join(run.path, "responses"), { recursive: true });
  const parts: Part[] = [];
  for (let from = 0; from < tasks.length; from += PART_TASKS) {
    options.onEvent({ event: "progress", phase: "teacher responses", done: from, total: tasks.length });
    if (options.signal.aborted) return null;
    const name = partName(parts.length);
    if (existsSync(join(run.path, name))) {
      parts.push(readPart(join(run.path, name)));
      continue;
    }
    const part = await onePart(teacher, verifier, student, tasks.slice(from, from + PART_TASKS), config);
    if (part === null) return null;
    writePart(run, name, part);
    parts.push(part);
  }
  options.onEvent({ event: "progress", phase: "teacher responses", done: tasks.length, total: tasks.length });
  const records = parts.flatMap((part) => part.records);
  const summary = summarise(parts, records, tasks.length);
  run.writeFile("responses.json", `${JSON.stringify(summary, null, 2)}\n`);
  const byId = new Map(tasks.map((task) => [task.id, task]));
  const kept = records.filter(({ dropped }) => dropped === undefined);
  const demonstrations = kept.map(({ taskId, completion }) => ({
    prompt: (byId.get(taskId) as Task).prompt,
    completion,
  }));
  return { summary, demonstrations };
}

async function onePart(
  teacher: Teacher,
  verifier: Verifier,
  student: Policy,
  tasks: readonly Task[],
  config: RlvrConfig,
): Promise<Part | null> {
  const started = performance.now();
  const answered = await teacher.answer(tasks);
  if (answered === null) return null;
  const limit = Math.min(student.model.maxPositions, config.sft.maxTokens ?? student.model.maxPositions);
  const found: { task: Task; record: ResponseRecord }[] = tasks.flatMap((task, i) => {
    const seen = new Set<string>();
    const prompt = student.encode(task.prompt).length;
    return answered.answers[i].map(({ text, finish }, sample) => {
      const dropped = unusable(text, finish, seen, () => prompt + student.tokenizer.encode(text).length + 1 > limit);
      seen.add(text);
      const record = { taskId: task.id, sample, completion: text, finish, ...(dropped ? { dropped } : {}) };
      return { task, record };
    });
  });
  if (config.distill.filter === "verified") await judge(verifier, found);
  const records = found.map(({ record }) => record);
  return { records, tokens: answered.tokens, seconds: (performance.now() - started) / 1000 };
}

/** An answer that was cut off must not be learned as one that ends there. */
function unusable(
  text: string,
  finish: TeacherAnswer["finish"],
  seen: ReadonlySet<string>,
  tooLong: () => boolean,
): Dropped | undefined {
  if (finish !== "stop") return "truncated";
  if (text.trim() === "") return "empty";
  if (seen.has(text)) return "duplicate";
  return tooLong() ? "too-long" : undefined;
}

/** Has the usable answers judged, those that the verifier failed at a second time, and drops what does not pass. */
async function judge(verifier: Verifier, found: readonly { task: Task; record: ResponseRecord }[]): Promise<void> {
  let open = found.filter(({ record }) => record.dropped === undefined);
  for (let attempt = 0; attempt < 2 && open.length > 0; attempt++) {
    const verdicts = await verdictsOf(verifier, open);
    for (const [i, { record }] of open.entries()) {
      const { outcome, score } = verdicts[i] ?? { outcome: "error", score: 0 };
      Object.assign(record, { outcome, score });
      delete record.dropped;
      if (outcome !== "pass") record.dropped = outcome === "error" ? "error" : "failed";
    }
    open = open.filter(({ record }) => record.outcome === "error");
  }
}

async function verdictsOf(
  verifier: Verifier,
  items: readonly { task: Task; record: ResponseRecord }[],
): Promise<(Verdict | undefined)[]> {
  try {
    const asked = items.map(({ task, record }) => ({ task, completion: record.completion }));
    const verdicts: unknown = await verifier.verify(asked, "reward");
    // One too few, and all of them may be somebody else's.
    return Array.isArray(verdicts) && verdicts.length === items.length ? verdicts : [];
  } catch {
    return []; // a verifier that throws has judged nothing: its own failure, counted as `error`
  }
}

function summarise(parts: readonly Part[], records: readonly ResponseRecord[], tasks: number): ResponseSummary {
  const kept = records.filter(({ dropped }) => dropped === undefined);
  const dropped: ResponseSummary["dropped"] = {};
  for (const { dropped: reason } of records) if (reason) dropped[reason] = (dropped[reason] ?? 0) + 1;
  return {
    sampled: records.length,
    kept: kept.length,
    acceptance: kept.length / Math.max(1, records.length),
    dropped,
    tasksWithAnswers: new Set(kept.map(({ taskId }) => taskId)).size,
    tasks,
    teacherTokens: parts.reduce((sum, { tokens }) => sum + tokens, 0),
    seconds: parts.reduce((sum, { seconds }) => sum + seconds, 0),
    hash: digest(records),
  };
}

/** The first line of a part is its account, the others are its records. */
function writePart(run: RunFolder, name: string, { records, tokens, seconds }: Part): void {
  const lines = [{ tokens, seconds }, ...records].map((line) => `${JSON.stringify(line)}\n`);
  run.writeFile(name, gzipSync(lines.join("")));
}

function readPart(path: string): Part {
  try {
    const lines = gunzipSync(readFileSync(path)).toString("utf8").trimEnd().split("\n");
    const [{ tokens, seconds }, ...records] = lines.map((line) => JSON.parse(line));
    return { records, tokens, seconds };
  } catch (cause) {
    throw new RlvrError("RLVR_RUN_DAMAGED", `run: expected responses in ${path}, got ${errorMessage(cause)}`, {
      next: "remove the file: its tasks are asked again",
      cause,
    });
  }
}
