/** The engine's worker thread: answers the calls of `EngineClient`, one after the other. */
import { parentPort, workerData } from "node:worker_threads";
import { errorMessage, RlvrError } from "../base/errors.ts";
import type { CallMessage, ReplyMessage } from "./client.ts";
import { Engine, type EngineOptions, type EngineSource } from "./engine.ts";

const { source, options } = workerData as { source: EngineSource; options: EngineOptions };
const port = parentPort;
if (port === null) throw new Error("engine worker: expected to run in a worker thread");

const engine = Engine.create(source, options);
// The first call reports a failed start; without a handler Node would end the thread before it.
engine.catch(() => {});
let queue: Promise<void> = Promise.resolve();

port.on("message", (message: CallMessage) => {
  queue = queue.then(() => answer(message));
});

async function answer({ id, method, args }: CallMessage): Promise<void> {
  let reply: ReplyMessage;
  try {
    const target = await engine;
    const call = target[method] as (...values: unknown[]) => unknown;
    reply = { id, value: await call.apply(target, args) };
  } catch (error) {
    const known = error instanceof RlvrError ? { code: error.code, next: error.next } : { code: "RLVR_ENGINE" };
    reply = { id, error: { message: errorMessage(error), ...known } };
  }
  port?.postMessage(reply);
  if (method === "close") process.exit(0);
}
