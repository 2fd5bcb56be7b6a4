import { defineConfig, javascriptVerifier } from "rlvr";
import { transformsDemonstrations } from "./demonstrations.ts";
import { transformsTasks } from "./tasks.ts";

export default defineConfig({
  model: "model",
  tasks: transformsTasks,
  verifier: () => javascriptVerifier({ form: { kind: "expression", parameters: ["xs"] } }),
  demonstrations: (seed) => transformsDemonstrations(seed, { wrongShare: 0.6 }),
  steps: 50,
  rollouts: { promptsPerStep: 32, groupSize: 8, maxTokens: 32 },
  optimizer: { learningRate: 1e-4, warmupSteps: 5 },
  evaluation: { tasks: 128, samplesPerTask: 8 },
  // How the shipped base model was made: `rlvr sft recipes/transforms`.
  sft: {
    steps: 400,
    batchTokens: 8192,
    optimizer: { learningRate: 2e-3, warmupSteps: 50, schedule: "cosine", finalLearningRateShare: 0.1 },
    from: { hiddenSize: 128, layers: 4, heads: 4, keyValueHeads: 4, intermediateSize: 384, maxPositions: 128 },
    out: "model",
  },
});
