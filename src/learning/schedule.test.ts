import { describe, expect, it } from "vitest";
import { maskTruncated, overlongPenalty, referenceAction, splitByStaleness } from "./schedule.ts";

describe("reference policy", () => {
  it("is mixed and reset when due, the reset first", () => {
    const options = { syncEvery: 2, syncRate: 0.6, resetEvery: 6, resetOptimizer: true };
    const kinds = Array.from({ length: 7 }, (_, step) => referenceAction(step, options).kind);
    expect(kinds).toEqual(["keep", "keep", "sync", "keep", "sync", "keep", "reset"]);
    expect(referenceAction(2, options)).toEqual({ kind: "sync", rate: 0.6 });
    expect(referenceAction(6, options)).toEqual({ kind: "reset", resetOptimizer: true });
  });

  it("stays where nothing is scheduled", () => {
    const never = { syncEvery: null, syncRate: 1, resetEvery: null, resetOptimizer: false };
    expect(referenceAction(10, never)).toEqual({ kind: "keep" });
  });
});

describe("length and age", () => {
  it("the overlong penalty is 0, then falls to −1 at the limit", () => {
    const at = (length: number) => overlongPenalty(length, { limit: 20, buffer: 4 });
    expect([0, 16, 17, 18, 20, 30].map(at)).toEqual([0, 0, -0.25, -0.5, -1, -1]);
    expect(() => overlongPenalty(1, { limit: 20, buffer: 0 })).toThrow("expected a buffer within 0 and 20, got 0");
  });

  it("truncated sequences lose their tokens, and the mask given stays as it was", () => {
    const mask = Float32Array.of(1, 1, 1, 0, 1);
    expect(Array.from(maskTruncated(mask, [0, 2, 5], [true, false]))).toEqual([0, 0, 1, 0, 1]);
    expect(mask[0]).toBe(1);
  });

  it("rollouts past the bound are told apart from fresh ones", () => {
    const sampled = [{ at: 9 }, { at: 6 }, { at: 7 }];
    expect(splitByStaleness(sampled, ({ at }) => at, { step: 9, bound: 2 })).toEqual({
      fresh: [{ at: 9 }, { at: 7 }],
      stale: [{ at: 6 }],
    });
  });
});
