/** The loops, loaded when a command needs one: the engine behind them takes time to start. */

export const loops = {
  trainRlvr: async () => (await import("../train/rlvr.ts")).trainRlvr,
  trainDistill: async () => (await import("../train/distill.ts")).trainDistill,
  trainSft: async () => (await import("../train/sft.ts")).trainSft,
  evaluateModel: async () => (await import("../evaluate/evaluate.ts")).evaluateModel,
};
