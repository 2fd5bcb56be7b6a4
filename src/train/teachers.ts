/** Who writes the answers that a student imitates: a model folder, or a server. */
import { RlvrError } from "../base/errors.ts";
import { RandomStream } from "../base/random.ts";
import type { RlvrConfig } from "../config/index.ts";
import { checkPrompts, engineOptions, LocalPolicy } from "../policy/local.ts";
import { ServerClient } from "../policy/openai.ts";
import type { Policy } from "../policy/policy.ts";
import type { Task } from "../tasks/task.ts";
import { fromConfig, type LoopOptions } from "./setup.ts";

export interface TeacherAnswer {
  text: string;
  finish: "stop" | "length" | "other";
}

export interface Teacher {
  /** For the manifest. */
  details: Record<string, unknown>;
  /** Null where it is not known. */
  parameters: number | null;
  /** `distill.samplesPerTask` answers to each task, and the tokens that took; null when interrupted. */
  answer(tasks: readonly Task[]): Promise<{ answers: TeacherAnswer[][]; tokens: number } | null>;
  close(): Promise<void>;
}

/** The teacher that the config names. Throws `RLVR_CONFIG_MISSING` unless it names one, and one only. */
export async function openTeacher(config: RlvrConfig, options: LoopOptions, student: Policy): Promise<Teacher> {
  const { teacher, server } = config.distill;
  if ((teacher === undefined) === (server.url === undefined)) {
    const got = teacher === undefined ? "neither" : "both";
    throw new RlvrError("RLVR_CONFIG_MISSING", `distill: expected distill.teacher or distill.server.url, got ${got}`, {
      next: "name a model folder or a server to answer the tasks",
    });
  }
  return teacher === undefined
    ? serverTeacher(config, options, student)
    : folderTeacher(config, fromConfig(options.configPath, teacher));
}

async function folderTeacher(config: RlvrConfig, folder: string): Promise<Teacher> {
  const policy = await LocalPolicy.load(folder, engineOptions(config.engine));
  const { samplesPerTask, temperature } = config.distill;
  const maxTokens = config.distill.maxTokens ?? config.rollouts.maxTokens;
  return {
    details: { teacherHash: (await policy.version()).hash, teacherParameters: policy.parameters },
    parameters: policy.parameters,
    async answer(tasks) {
      checkPrompts(policy, tasks);
      const prompts = tasks.map((task) => policy.encode(task.prompt));
      const samples = tasks.flatMap((task, prompt) =>
        Array.from({ length: samplesPerTask }, (_, sample) => ({
          prompt,
          key: [config.seed, "responses", task.id, sample] as const,
        })),
      );
      const sampler = { temperature, topP: 1, topK: 0 };
      const generated = await policy.sample({ prompts, samples, maxTokens, sampler });
      const answers = generated.map(({ tokens, finish }) => ({ text: policy.decode(tokens), finish }));
      const asked = prompts.reduce((sum, prompt) => sum + prompt.length, 0);
      return {
        answers: tasks.map((_, i) => answers.slice(i * samplesPerTask, (i + 1) * samplesPerTask)),
        tokens: asked + generated.reduce((sum, { tokens }) => sum + tokens.length, 0),
      };
    },
    close: () => policy.close(),
  };
}

function serverTeacher(config: RlvrConfig, { signal }: LoopOptions, student: Policy): Teacher {
  const { samplesPerTask, temperature, server } = config.distill;
  const { url = "", model, concurrency, parameters, ...rest } = server;
  const maxTokens = config.distill.maxTokens ?? config.rollouts.maxTokens;
  if (model === undefined) {
    throw new RlvrError("RLVR_CONFIG_MISSING", "distill: expected the model's name in distill.server.model, got none", {
      next: "name the model as the server lists it under /v1/models",
    });
  }
  const client = new ServerClient({ url, model, ...rest });

  /** All answers to one task: a server may give fewer at a time than it was asked for. */
  const ask = async (task: Task): Promise<{ answers: TeacherAnswer[]; tokens: number }> => {
    const answers: TeacherAnswer[] = [];
    let tokens = 0;
    for (let request = 0; answers.length < samplesPerTask; request++) {
      const seed = new RandomStream(config.seed, "responses", task.id, request).uint32() >>> 1;
      const count = samplesPerTask - answers.length;
      const answer = await client.complete({ prompt: task.prompt, count, maxTokens, temperature, seed }, signal);
      const fresh = answer.choices.slice(0, count);
      answers.push(...fresh);
      // Where the server does not count, the student's tokens stand in.
      tokens += answer.promptTokens ?? student.encode(task.prompt).length;
      tokens +=
        answer.completionTokens ?? fresh.reduce((sum, { text }) => sum + student.tokenizer.encode(text).length, 0);
    }
    return { answers, tokens };
  };
  return {
    details: { teacherServer: { url, model } },
    parameters: parameters ?? null,
    async answer(tasks) {
      const results: { answers: TeacherAnswer[]; tokens: number }[] = new Array(tasks.length);
      let next = 0;
      const worker = async () => {
        while (next < tasks.length) {
          const i = next++;
          results[i] = await ask(tasks[i]);
        }
      };
      const workers = Array.from({ length: Math.min(concurrency, tasks.length) }, worker);
      // All of them come to an end before an error is told: none may work on behind it.
      const ended = await Promise.allSettled(workers);
      if (signal.aborted) return null;
      const failed = ended.find((result) => result.status === "rejected");
      if (failed) throw failed.reason;
      return {
        answers: results.map(({ answers }) => answers),
        tokens: results.reduce((sum, { tokens }) => sum + tokens, 0),
      };
    },
    close: async () => {},
  };
}
