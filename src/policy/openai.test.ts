/** Against a real HTTP server on this machine. */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { RlvrError } from "../base/errors.ts";
import { ServerClient, type ServerOptions } from "./openai.ts";

interface Seen {
  path: string;
  authorization: string | undefined;
  // biome-ignore lint/suspicious/noExplicitAny: what came over the wire.
  body: any;
}
type Reply = (response: ServerResponse, request: IncomingMessage) => void;

let server: Server;
let url: string;
let seen: Seen[] = [];
let replies: Reply[] = [];

const send =
  (status: number, body: unknown, headers: Record<string, string> = {}): Reply =>
  (response) => {
    response.writeHead(status, headers).end(typeof body === "string" ? body : JSON.stringify(body));
  };
const completion = (...texts: string[]) => ({
  choices: texts.map((text, index) => ({ index, text, finish_reason: "stop" })),
  usage: { prompt_tokens: 3, completion_tokens: 5 },
});

beforeAll(async () => {
  server = createServer((request, response) => {
    let text = "";
    request.on("data", (part) => {
      text += part;
    });
    request.on("end", () => {
      seen.push({ path: request.url ?? "", authorization: request.headers.authorization, body: JSON.parse(text) });
      (replies.shift() ?? send(500, "no reply prepared"))(response, request);
    });
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`;
});
afterAll(() => new Promise((done) => server.close(done)));
beforeEach(() => {
  seen = [];
  replies = [];
});

const client = (options: Partial<ServerOptions> = {}) =>
  new ServerClient({ url, model: "m", timeoutSeconds: 5, retries: 2, backoffSeconds: 0.01, ...options });
const request = { prompt: "1+1=", count: 2, maxTokens: 8, temperature: 0.7, seed: 4 };

async function failure(promise: Promise<unknown>): Promise<RlvrError> {
  const error = await promise.then(
    () => new Error("it went well"),
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(RlvrError);
  expect((error as RlvrError).message).toMatch(/expected .*, got /);
  expect((error as RlvrError).next).toBeTruthy();
  return error as RlvrError;
}

describe("ServerClient", () => {
  it("asks /completions for text and reads every choice", async () => {
    replies = [
      send(200, {
        ...completion("2", "3"),
        choices: [
          { text: "2", finish_reason: "stop" },
          { text: "3", finish_reason: "length" },
        ],
      }),
    ];
    expect(await client().complete(request)).toEqual({
      choices: [
        { text: "2", finish: "stop" },
        { text: "3", finish: "length" },
      ],
      promptTokens: 3,
      completionTokens: 5,
    });
    expect(seen[0]).toEqual({
      path: "/v1/completions",
      authorization: undefined,
      body: { model: "m", prompt: "1+1=", n: 2, max_tokens: 8, temperature: 0.7, seed: 4 },
    });
  });

  it("asks /chat/completions for messages, and for text where chat is set", async () => {
    const answer = { choices: [{ message: { role: "assistant", content: "hi" }, finish_reason: "tool_calls" }] };
    replies = [send(200, answer), send(200, answer)];
    const messages = [{ role: "system" as const, content: "be short" }];
    expect(await client().complete({ ...request, prompt: messages })).toEqual({
      choices: [{ text: "hi", finish: "other" }],
      promptTokens: null,
      completionTokens: null,
    });
    await client({ chat: true, url: `${url}/` }).complete(request);
    expect(seen.map(({ path, body }) => [path, body.messages])).toEqual([
      ["/v1/chat/completions", messages],
      ["/v1/chat/completions", [{ role: "user", content: "1+1=" }]],
    ]);
  });

  it("sends the key of the named variable, and says so where there is none", async () => {
    replies = [send(200, completion("2"))];
    const environment = { SOME_KEY: "secret-1" };
    await client({ apiKeyVariable: "SOME_KEY", environment }).complete(request);
    expect(seen[0].authorization).toBe("Bearer secret-1");
    const missing = await failure((async () => client({ apiKeyVariable: "OTHER_KEY", environment }))());
    expect([missing.code, missing.next]).toEqual(["RLVR_SERVER_KEY", expect.stringContaining("OTHER_KEY")]);
  });

  it("tries again when the server is busy or breaks off, and not longer than told", async () => {
    const breakOff: Reply = (response) => response.socket?.destroy();
    replies = [send(503, "busy"), breakOff, send(200, completion("2"))];
    expect((await client().complete(request)).choices).toHaveLength(1);
    expect(seen).toHaveLength(3);
    expect(seen[2]).toEqual(seen[0]);

    replies = Array.from({ length: 4 }, () => send(429, { error: { message: "slow\n down" } }, { "retry-after": "0" }));
    const error = await failure(client().complete(request));
    expect(error.code).toBe("RLVR_SERVER_STATUS");
    expect(error.message).toContain("status 429: slow down");
    expect(seen).toHaveLength(6);
  });

  it("does not repeat what was refused, and never shows the key", async () => {
    const environment = { SOME_KEY: "secret-1" };
    replies = [send(401, { error: "bad key secret-1" }), send(404, { detail: "no such model" })];
    const refused = await failure(client({ apiKeyVariable: "SOME_KEY", environment }).complete(request));
    expect(refused.code).toBe("RLVR_SERVER_KEY");
    expect(refused.message).toContain("bad key …");
    const unknown = await failure(client().complete(request));
    expect([unknown.code, unknown.message]).toEqual(["RLVR_SERVER_STATUS", expect.stringContaining("no such model")]);
    expect(seen).toHaveLength(2);
  });

  it("gives up on a slow server, and follows no redirect", async () => {
    replies = [() => {}, () => {}];
    const slow = await failure(client({ timeoutSeconds: 0.05, retries: 1 }).complete(request));
    expect(slow.code).toBe("RLVR_SERVER_TIMEOUT");
    expect(seen).toHaveLength(2);
    replies = [send(307, "", { location: `${url}/elsewhere` })];
    expect((await failure(client({ retries: 0 }).complete(request))).code).toBe("RLVR_SERVER_UNREACHABLE");
    expect(seen).toHaveLength(3);
    server.closeAllConnections();
  });

  it.each([
    ["no JSON", "<html>"],
    ["no choices", {}],
    ["an empty list", { choices: [] }],
    ["a choice without text", { choices: [{ text: "a" }, { index: 1 }] }],
    ["nothing", ""],
  ])("says what came where the answer has %s", async (_, body) => {
    replies = [send(200, body)];
    expect((await failure(client().complete(request))).code).toBe("RLVR_SERVER_ANSWER");
    expect(seen).toHaveLength(1);
  });

  it("says that nobody answers, and what is no address", async () => {
    const closed = client({ url: "http://127.0.0.1:1/v1", retries: 1 });
    expect((await failure(closed.complete(request))).code).toBe("RLVR_SERVER_UNREACHABLE");
    for (const bad of ["", "localhost:8000", "file:///etc/passwd", "http://me:secret@127.0.0.1/v1"]) {
      const error = await failure((async () => client({ url: bad }))());
      expect(error.code).toBe("RLVR_SERVER_URL");
      expect(error.message).not.toContain("secret");
    }
  });

  it("ends at once when it is aborted, while it waits and while it asks", async () => {
    for (const reply of [send(429, "", { "retry-after": "30" }), (() => {}) as Reply]) {
      replies = [reply];
      const controller = new AbortController();
      const pending = client().complete(request, controller.signal);
      setTimeout(() => controller.abort(new Error("enough")), 50);
      await expect(pending).rejects.toThrow("enough");
    }
    server.closeAllConnections();
  });
});
