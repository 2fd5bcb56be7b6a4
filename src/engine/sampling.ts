import { RandomStream } from "../base/random.ts";

/** How a token is drawn from the model's distribution. */
export interface SamplerSettings {
  /** 0 takes the most likely token. */
  temperature: number;
  /** Nucleus: the fewest most likely tokens with at least this total probability. 1: all. */
  topP: number;
  /** The k most likely tokens. 0: all. */
  topK: number;
}

/** Names of a sample's stream of random numbers, so that it does not depend on what is sampled beside it. */
export type SampleKey = readonly [seed: number, ...names: (string | number)[]];

export interface Draw {
  token: number;
  /** Under the distribution that was sampled: after temperature and truncation. */
  logprob: number;
}

export function sampleStream(key: SampleKey): RandomStream {
  const [seed, ...names] = key;
  return new RandomStream(seed, "sample", ...names);
}

/**
 * Draws from `probabilities[from … from + size)` (already at the wanted temperature) by inverting the cumulative
 * distribution at `uniform`. Scanning is cheaper than sorting, so truncation sorts only where it is asked for.
 */
export function draw(
  probabilities: Float32Array,
  from: number,
  size: number,
  settings: SamplerSettings,
  uniform: number,
): Draw {
  if (settings.temperature === 0) {
    let best = from;
    for (let i = from + 1; i < from + size; i++) if (probabilities[i] > probabilities[best]) best = i;
    return { token: best - from, logprob: 0 };
  }
  if (settings.topK > 0 || settings.topP < 1) return drawTruncated(probabilities, from, size, settings, uniform);
  let total = 0;
  for (let i = from; i < from + size; i++) total += probabilities[i];
  return scan(uniform * total, size, (i) => probabilities[from + i], 0);
}

function drawTruncated(
  probabilities: Float32Array,
  from: number,
  size: number,
  settings: SamplerSettings,
  uniform: number,
): Draw {
  const order = Int32Array.from({ length: size }, (_, i) => i).sort(
    (a, b) => probabilities[from + b] - probabilities[from + a] || a - b,
  );
  let kept = settings.topK > 0 ? Math.min(settings.topK, size) : size;
  let total = 0;
  let nucleus = 0;
  while (nucleus < kept && (nucleus === 0 || total < settings.topP)) total += probabilities[from + order[nucleus++]];
  kept = nucleus;
  const drawn = scan(uniform * total, kept, (i) => probabilities[from + order[i]], Math.log(total));
  return { token: order[drawn.token], logprob: drawn.logprob };
}

/** First index whose cumulative probability exceeds `threshold`; a token of probability 0 is never drawn. */
function scan(threshold: number, size: number, probability: (i: number) => number, logTotal: number): Draw {
  let cumulative = 0;
  let last = 0;
  for (let i = 0; i < size; i++) {
    const p = probability(i);
    if (p <= 0) continue;
    cumulative += p;
    last = i;
    if (cumulative > threshold) break;
  }
  return { token: last, logprob: Math.log(probability(last)) - logTotal };
}
