/**
 * Rates of the engine on this machine: training against the machine's own matrix-product rate, and decoding.
 * The machine may be shared and noisy: every ratio is taken from rounds that alternate in one run, and the median of the
 * rounds is printed with their range.
 */
import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";
import { Engine } from "../src/engine/engine.ts";
import { compileGraph, input } from "../src/engine/graph.ts";
import { matmul } from "../src/engine/ops.ts";
import { floatTensor, runtimeClock, Session } from "../src/engine/session.ts";
import type { ModelConfig } from "../src/model/config.ts";
import { loadModelConfig } from "../src/model/folder.ts";
import { countParameters } from "../src/model/parameters.ts";
import { median, row } from "./print.ts";

const THREADS = availableParallelism();
const OPTIONS = { threads: THREADS, microBatchTokens: 4096, activationBytes: 512 * 2 ** 20, decodeSlots: 256 };
const ADAM = { learningRate: 1e-4, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weightDecay: 0, maxGradNorm: 1 };

export const WIDTH_256: ModelConfig = {
  family: "llama",
  vocabularySize: 576,
  hiddenSize: 256,
  intermediateSize: 688,
  layers: 6,
  heads: 8,
  keyValueHeads: 8,
  headDim: 32,
  maxPositions: 256,
  ropeTheta: 10000,
  ropeScaling: null,
  rmsNormEpsilon: 1e-6,
  tieEmbeddings: true,
  attentionBias: false,
  outputBias: false,
  mlpBias: false,
  queryKeyNorm: false,
  slidingWindow: null,
  initializerRange: 0.02,
  bosId: null,
  eosIds: [],
  padId: null,
};

/** Milliseconds of one 1024³ product, the smallest of a few. */
async function productTimer(): Promise<() => Promise<number>> {
  const n = 1024;
  const session = await Session.create(compileGraph({ y: matmul(input("a", [n, n]), input("b", [n, n])) }), THREADS);
  const matrix = () =>
    floatTensor(
      Float32Array.from({ length: n * n }, (_, i) => Math.sin(i)),
      [n, n],
    );
  const feeds = { a: matrix(), b: matrix() };
  const y = floatTensor(new Float32Array(n * n), [n, n]);
  return async () => {
    const started = performance.now();
    for (let i = 0; i < 20; i++) await session.run({ y }, feeds);
    return (performance.now() - started) / 20;
  };
}

/** Forward, backward and update of `tokens` tokens in sequences of `length`, as a share of the product rate. */
async function training(config: ModelConfig, tokens: number, length: number): Promise<number> {
  const engine = await Engine.create({ config, seed: 1 }, OPTIONS);
  const product = await productTimer();
  const sequences = Array.from({ length: tokens / length }, (_, s) => ({
    tokens: Array.from({ length }, (_, t) => (s * 31 + t * 17) % config.vocabularySize),
    scoreFrom: 1,
  }));
  // 6 operations a parameter and token; attention 12 · layers · width · length a token.
  const flops = (6 * countParameters(config) + 12 * config.layers * config.heads * config.headDim * length) * tokens;
  const rates: number[] = [];
  const times: number[] = [];
  const shares: number[] = [];
  const outside: number[] = [];
  for (let round = -1; round < 9; round++) {
    const before = await product();
    const inside = runtimeClock.wallMs;
    const started = performance.now();
    const { logprobs } = await engine.logprobs(sequences, { temperature: 1, keep: true });
    await engine.backward(new Float32Array(logprobs.length).fill(-1 / logprobs.length));
    engine.update(ADAM);
    const wallMs = performance.now() - started;
    const insideMs = runtimeClock.wallMs - inside;
    if (round < 0) continue;
    const productRate = (2 * 1024 ** 3) / ((before + (await product())) / 2) / 1e6;
    times.push(wallMs);
    rates.push(flops / wallMs / 1e6);
    shares.push(rates[rates.length - 1] / productRate);
    outside.push(1 - insideMs / wallMs);
  }
  const range = `${(100 * Math.min(...shares)).toFixed(0)} to ${(100 * Math.max(...shares)).toFixed(0)} %`;
  row(
    `training, width ${config.hiddenSize} × ${config.layers} layers, ${tokens} tokens (${tokens / length} × ${length})`,
    `${median(rates).toFixed(0)} GFLOP/s, ${(100 * median(shares)).toFixed(0)} % of the 1024³ product rate (${range})`,
    `${(100 * median(outside)).toFixed(1)} % outside ONNX Runtime`,
  );
  row("  memory of the process", `${(process.memoryUsage().rss / 2 ** 20).toFixed(0)} MiB resident`);
  await engine.close();
  return median(times);
}

async function decoding(name: string, config: ModelConfig, batch: number): Promise<void> {
  const engine = await Engine.create({ config, seed: 1 }, { ...OPTIONS, decodeSlots: batch });
  const prompts = Array.from({ length: batch / 8 }, (_, p) =>
    Array.from({ length: 28 }, (_, t) => (p * 7 + t * 3) % config.vocabularySize),
  );
  const request = {
    prompts,
    samples: Array.from({ length: batch }, (_, i) => ({ prompt: Math.floor(i / 8), key: [1, i] as const })),
    maxTokens: 64,
    sampler: { temperature: 1, topP: 1, topK: 0 },
    eosIds: [],
  };
  const rates: number[] = [];
  const outside: number[] = [];
  for (let round = -1; round < 5; round++) {
    const inside = runtimeClock.wallMs;
    const started = performance.now();
    await engine.generate(request);
    const wallMs = performance.now() - started;
    if (round < 0) continue;
    rates.push((batch * 64 * 1000) / wallMs);
    outside.push(1 - (runtimeClock.wallMs - inside) / wallMs);
  }
  row(
    `decoding, ${name}, batch ${batch}`,
    `${Math.round(median(rates)).toLocaleString("en")} tokens/s`,
    `${(100 * median(outside)).toFixed(1)} % outside ONNX Runtime`,
  );
  await engine.close();
}

function shippedModel(): ModelConfig {
  return loadModelConfig(fileURLToPath(new URL("../recipes/transforms/model", import.meta.url)));
}

/** Milliseconds of forward, backward and update of 16,384 tokens with the shipped model. */
export function shippedUpdate(): Promise<number> {
  return training(shippedModel(), 16_384, 128);
}

export async function benchEngine(): Promise<void> {
  const shipped = shippedModel();
  await training(WIDTH_256, 4096, 64);
  await training(WIDTH_256, 4096, 128);
  await training(shipped, 4096, 64);
  for (const batch of [64, 256]) {
    await decoding("shipped model", shipped, batch);
    await decoding("width 256 × 6 layers", WIDTH_256, batch);
  }
}
