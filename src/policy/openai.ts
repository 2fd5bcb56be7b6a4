/**
 * Completions from an OpenAI-compatible server (vLLM, llama.cpp, a hosted service): text in, text out. It is a teacher
 * or a model to evaluate, not a policy to train: there are no token ids and no gradients.
 */
import { errorMessage, RlvrError } from "../base/errors.ts";
import { RandomStream } from "../base/random.ts";
import type { ChatMessage } from "../tasks/task.ts";

export interface ServerOptions {
  /** Base address, for example `http://127.0.0.1:8000/v1`. */
  url: string;
  /** Name of the model on the server. */
  model: string;
  /** Environment variable with the key. Sent as a bearer token; never written anywhere. */
  apiKeyVariable?: string;
  /** Send a prompt of plain text as a user's message. */
  chat?: boolean;
  /** Deadline of one attempt. */
  timeoutSeconds: number;
  /** Attempts after the first, where the server is busy (429, 5xx), slow or unreachable. */
  retries: number;
  /** Wait before the first of them; it doubles each time, up to 30 s. A server's Retry-After of up to 60 s wins. */
  backoffSeconds?: number;
  /** Where the key's variable is read; `process.env` when absent. */
  environment?: Record<string, string | undefined>;
}

export interface ServerRequest {
  prompt: string | ChatMessage[];
  /** Completions wanted. A server may give fewer. */
  count: number;
  maxTokens: number;
  temperature: number;
  topP?: number;
  seed?: number;
}

export interface ServerChoice {
  text: string;
  /** `stop`: ended by itself. `length`: cut off. `other`: filtered, or ended for a reason that is not known. */
  finish: "stop" | "length" | "other";
}

export interface ServerAnswer {
  choices: ServerChoice[];
  /** As the server counts them; null where it does not say. */
  promptTokens: number | null;
  completionTokens: number | null;
}

type Json = Record<string, unknown>;
const isObject = (value: unknown): value is Json => typeof value === "object" && value !== null;

/** A failure, and whether another attempt may go better. */
interface Failure {
  error: RlvrError;
  again: boolean;
  waitSeconds?: number;
}

export class ServerClient {
  readonly #options: ServerOptions;
  readonly #base: string;
  readonly #key: string | undefined;
  #requests = 0;

  /** Throws `RLVR_SERVER_URL` for an address that is none, `RLVR_SERVER_KEY` where the key's variable is not set. */
  constructor(options: ServerOptions) {
    this.#options = options;
    this.#base = baseAddress(options.url);
    const { apiKeyVariable: variable, environment = process.env } = options;
    this.#key = variable === undefined ? undefined : environment[variable];
    if (variable !== undefined && !this.#key) {
      throw new RlvrError(
        "RLVR_SERVER_KEY",
        `server: expected a key in the environment variable ${variable}, got none`,
        {
          next: `set ${variable}, or leave apiKeyVariable out for a server without keys`,
        },
      );
    }
  }

  /**
   * Asks for completions. Throws `RLVR_SERVER_STATUS`, `RLVR_SERVER_KEY` (refused), `RLVR_SERVER_TIMEOUT`,
   * `RLVR_SERVER_UNREACHABLE`, `RLVR_SERVER_ANSWER` (no completions in it), each after the retries that make sense; the
   * signal's reason where that aborts.
   */
  async complete(request: ServerRequest, signal?: AbortSignal): Promise<ServerAnswer> {
    const { model, chat = false, retries, backoffSeconds = 0.5 } = this.#options;
    const messages = typeof request.prompt === "string" ? [{ role: "user", content: request.prompt }] : request.prompt;
    const asChat = chat || typeof request.prompt !== "string";
    const body = {
      model,
      ...(asChat ? { messages } : { prompt: request.prompt }),
      n: request.count,
      max_tokens: request.maxTokens,
      temperature: request.temperature,
      ...(request.topP === undefined ? {} : { top_p: request.topP }),
      ...(request.seed === undefined ? {} : { seed: request.seed }),
    };
    const number = this.#requests++;
    for (let attempt = 0; ; attempt++) {
      const result = await this.#attempt(asChat ? "chat/completions" : "completions", body, signal);
      if (!("error" in result)) return result;
      if (!result.again || attempt >= retries) throw result.error;
      // Some spread, so that requests that failed together do not come back together.
      const spread = 1 + 0.25 * new RandomStream(0, "retry", number, attempt).uniform();
      await sleep(result.waitSeconds ?? Math.min(30, backoffSeconds * 2 ** attempt) * spread, signal);
    }
  }

  async #attempt(path: string, body: Json, signal: AbortSignal | undefined): Promise<ServerAnswer | Failure> {
    const url = `${this.#base}/${path}`;
    const deadline = AbortSignal.timeout(this.#options.timeoutSeconds * 1000);
    let status: number;
    let text: string;
    let retryAfter: string | null;
    try {
      const response = await fetch(url, {
        method: "POST",
        headers: {
          "content-type": "application/json",
          ...(this.#key === undefined ? {} : { authorization: `Bearer ${this.#key}` }),
        },
        body: JSON.stringify(body),
        // A redirect could carry prompts and key elsewhere.
        redirect: "error",
        signal: signal ? AbortSignal.any([signal, deadline]) : deadline,
      });
      status = response.status;
      retryAfter = response.headers.get("retry-after");
      text = await response.text();
    } catch (cause) {
      if (signal?.aborted) throw signal.reason;
      if (deadline.aborted) {
        const message = `server: expected an answer from ${url} within ${this.#options.timeoutSeconds} s, got none`;
        const next = "raise timeoutSeconds, or ask for fewer or shorter completions at once";
        return { error: new RlvrError("RLVR_SERVER_TIMEOUT", message, { next }), again: true };
      }
      return { error: unreachable(url, cause), again: true };
    }
    if (status >= 200 && status < 300) return readAnswer(url, text);
    return this.#refused(url, status, text, retryAfter);
  }

  #refused(url: string, status: number, text: string, retryAfter: string | null): Failure {
    // A server may quote the request: the key must not get into logs that way.
    const said = this.#key ? errorText(text).replaceAll(this.#key, "…") : errorText(text);
    const message = `server: expected completions from ${url}, got status ${status}${said ? `: ${said}` : ""}`;
    if (status === 401 || status === 403) {
      const { apiKeyVariable: variable } = this.#options;
      const next = variable ? `check the key in ${variable}` : "name the key's environment variable in apiKeyVariable";
      return { error: new RlvrError("RLVR_SERVER_KEY", message, { next }), again: false };
    }
    const busy = status === 408 || status === 429 || status >= 500;
    const next = busy
      ? "wait and try again, with fewer requests at once"
      : "check url, model and limits; a server with chat/completions only needs chat: true";
    const seconds = retryAfter === null ? undefined : waitOf(retryAfter);
    return {
      error: new RlvrError("RLVR_SERVER_STATUS", message, { next }),
      again: busy,
      ...(seconds === undefined ? {} : { waitSeconds: seconds }),
    };
  }
}

function baseAddress(url: string): string {
  const parsed = URL.canParse(url) ? new URL(url) : undefined;
  if (parsed === undefined || !["http:", "https:"].includes(parsed.protocol)) {
    throw new RlvrError("RLVR_SERVER_URL", `server: expected an http or https address, got ${JSON.stringify(url)}`, {
      next: "give the base address, for example http://127.0.0.1:8000/v1",
    });
  }
  if (parsed.username !== "" || parsed.password !== "") {
    throw new RlvrError(
      "RLVR_SERVER_URL",
      `server: expected an address without a password, got one for ${parsed.host}`,
      {
        next: "put the key into an environment variable and name that in apiKeyVariable",
      },
    );
  }
  return url.replace(/\/+$/, "");
}

function unreachable(url: string, cause: unknown): RlvrError {
  const inner = cause instanceof Error && cause.cause !== undefined ? cause.cause : cause;
  const message = `server: expected to reach ${url}, got ${errorMessage(inner) || "a broken connection"}`;
  return new RlvrError("RLVR_SERVER_UNREACHABLE", message, {
    next: "check that the server runs at this address",
    cause,
  });
}

/** The server's own words about a failure, at most 200 characters. */
function errorText(text: string): string {
  let said = text;
  try {
    const body: unknown = JSON.parse(text);
    const error = isObject(body) ? (body.error ?? body.message ?? body.detail) : undefined;
    said = isObject(error) ? String(error.message ?? JSON.stringify(error)) : String(error ?? text);
  } catch {
    // Not JSON: quoted as it is.
  }
  return said.replaceAll(/\s+/g, " ").trim().slice(0, 200);
}

/** Seconds of a Retry-After header, at most 60; undefined where it says nothing. */
function waitOf(header: string): number | undefined {
  const seconds = /^\s*\d/.test(header) ? Number.parseFloat(header) : (Date.parse(header) - Date.now()) / 1000;
  return Number.isFinite(seconds) ? Math.min(60, Math.max(0, seconds)) : undefined;
}

function readAnswer(url: string, text: string): ServerAnswer | Failure {
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch {
    body = undefined;
  }
  const choices = isObject(body) && Array.isArray(body.choices) ? body.choices.map(readChoice) : [];
  const known = choices.filter((choice) => choice !== undefined);
  if (known.length === 0 || known.length !== choices.length) {
    const got = text.replaceAll(/\s+/g, " ").slice(0, 120);
    const message = `server: expected choices with text in the answer of ${url}, got ${got || "an empty one"}`;
    const next = "check that the address is that of an OpenAI-compatible server, with its /v1";
    return { error: new RlvrError("RLVR_SERVER_ANSWER", message, { next }), again: false };
  }
  const usage = isObject(body) && isObject(body.usage) ? body.usage : {};
  const tokens = (value: unknown) => (typeof value === "number" && Number.isFinite(value) ? value : null);
  return {
    choices: known,
    promptTokens: tokens(usage.prompt_tokens),
    completionTokens: tokens(usage.completion_tokens),
  };
}

function readChoice(choice: unknown): ServerChoice | undefined {
  if (!isObject(choice)) return undefined;
  const message = isObject(choice.message) ? choice.message : {};
  const text = choice.text ?? message.content ?? (choice.finish_reason === "content_filter" ? "" : undefined);
  if (typeof text !== "string") return undefined;
  const { finish_reason: reason } = choice;
  return { text, finish: reason === "stop" || reason === "length" ? reason : "other" };
}

function sleep(seconds: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, seconds * 1000);
    if (signal?.aborted) stop();
    else signal?.addEventListener("abort", stop, { once: true });
  });
}
