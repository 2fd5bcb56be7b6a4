/** Settings of one AdamW update. */
export interface AdamSettings {
  learningRate: number;
  beta1: number;
  beta2: number;
  epsilon: number;
  /** Decoupled: a parameter loses learningRate · weightDecay of itself (Loshchilov and Hutter, 2019). */
  weightDecay: number;
  /** Gradients are scaled so that their global norm is at most this. */
  maxGradNorm: number;
}

export interface AdamState {
  /** First moments, parallel to the parameters. */
  m: Float32Array;
  /** Second moments. */
  v: Float32Array;
  /** Updates applied so far. */
  updates: number;
}

/** Euclidean norm of all gradients; NaN or Infinity where one is not finite. */
export function globalNorm(gradients: Float32Array): number {
  // Four sums: the additions of one would wait for each other.
  let a = 0;
  let b = 0;
  let c = 0;
  let d = 0;
  const n = gradients.length;
  let i = 0;
  for (; i + 3 < n; i += 4) {
    a += gradients[i] * gradients[i];
    b += gradients[i + 1] * gradients[i + 1];
    c += gradients[i + 2] * gradients[i + 2];
    d += gradients[i + 3] * gradients[i + 3];
  }
  for (; i < n; i++) a += gradients[i] * gradients[i];
  return Math.sqrt(a + b + c + d);
}

/**
 * One AdamW update in place: clipping, moments, bias correction, decoupled decay, step; and `gradients` become 0.
 * `decayed` marks where decay applies as [from, to) pairs of indices (matrices; not norms or biases), in order.
 * `norm` is the global norm of the gradients before clipping.
 */
export function adamwUpdate(
  parameters: Float32Array,
  gradients: Float32Array,
  state: AdamState,
  decayed: readonly (readonly [number, number])[],
  norm: number,
  settings: AdamSettings,
): void {
  const { learningRate, beta1, beta2, epsilon, weightDecay, maxGradNorm } = settings;
  state.updates++;
  // As torch.nn.utils.clip_grad_norm_: the 1e-6 keeps a zero norm harmless.
  const clip = Math.min(1, maxGradNorm / (norm + 1e-6));
  const rootCorrection2 = Math.sqrt(1 - beta2 ** state.updates);
  const stepSize = learningRate / (1 - beta1 ** state.updates);
  const { m, v } = state;
  if (weightDecay !== 0) {
    const keep = 1 - learningRate * weightDecay;
    for (const [from, to] of decayed) {
      for (let i = from; i < to; i++) parameters[i] *= keep;
    }
  }
  const rest1 = 1 - beta1;
  const rest2 = 1 - beta2;
  for (let i = 0; i < parameters.length; i++) {
    const g = gradients[i] * clip;
    const mi = beta1 * m[i] + rest1 * g;
    const vi = beta2 * v[i] + rest2 * g * g;
    m[i] = mi;
    v[i] = vi;
    parameters[i] -= (stepSize * mi) / (Math.sqrt(vi) / rootCorrection2 + epsilon);
    gradients[i] = 0;
  }
}

/** Learning rate of a step (from 0) under linear warm-up and a schedule over `steps`. */
export function scheduledRate(
  settings: {
    learningRate: number;
    warmupSteps: number;
    schedule: "constant" | "linear" | "cosine";
    finalLearningRateShare: number;
  },
  step: number,
  steps: number,
): number {
  const { learningRate, warmupSteps, schedule, finalLearningRateShare: final } = settings;
  if (step < warmupSteps) return (learningRate * (step + 1)) / warmupSteps;
  if (schedule === "constant") return learningRate;
  const progress = Math.min(1, (step - warmupSteps) / Math.max(1, steps - 1 - warmupSteps));
  const shape = schedule === "linear" ? 1 - progress : (1 + Math.cos(Math.PI * progress)) / 2;
  return learningRate * (final + (1 - final) * shape);
}
