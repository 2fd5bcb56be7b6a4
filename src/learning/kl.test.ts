import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { klPenalty, klTerm, nextKlCoefficient } from "./kl.ts";

const P = [0.5, 0.3, 0.2];
const Q = [0.4, 0.4, 0.2];

describe("KL estimators", () => {
  it("k1 and k3 average to the divergence of two known distributions, and k3 is never negative", () => {
    const exact = P.reduce((sum, x, i) => sum + x * Math.log(x / Q[i]), 0);
    for (const estimator of ["k1", "k3", "k1+", "k3+"] as const) {
      const expected = P.reduce((sum, x, i) => sum + x * klTerm(estimator, Math.log(x / Q[i])).value, 0);
      expect(expected).toBeCloseTo(exact, 12);
    }
    fc.assert(fc.property(fc.double({ min: -30, max: 30, noNaN: true }), (d) => klTerm("k3", d).value >= 0));
  });

  it("on samples of the policy, k2's gradient averages to that of the divergence, k1's to 0", () => {
    // Softmax logits z: ∂KL(p‖q)/∂z_j = p_j·(d_j − KL), and ∂log p_i/∂z_j = [i = j] − p_j.
    const d = P.map((x, i) => Math.log(x / Q[i]));
    const kl = P.reduce((sum, x, i) => sum + x * d[i], 0);
    const gradient = (estimator: "k1" | "k2" | "k1+" | "k3+", j: number) =>
      P.reduce((sum, x, i) => sum + x * klTerm(estimator, d[i]).derivative * (Number(i === j) - P[j]), 0);
    for (const j of [0, 1, 2]) {
      for (const estimator of ["k2", "k1+", "k3+"] as const) {
        expect(gradient(estimator, j)).toBeCloseTo(P[j] * (d[j] - kl), 12);
      }
      expect(gradient("k1", j)).toBeCloseTo(0, 12);
    }
  });

  it("derivatives are those of the values, for the estimators without a +", () => {
    for (const estimator of ["k1", "k2", "k3"] as const) {
      for (const d of [-25, -2, 0.3, 4]) {
        const slope = (klTerm(estimator, d + 1e-6).value - klTerm(estimator, d - 1e-6).value) / 2e-6;
        expect(klTerm(estimator, d).derivative).toBeCloseTo(slope, 5);
      }
    }
  });
});

describe("KL in the reward", () => {
  const batch = {
    rolloutLogprobs: Float64Array.of(-1, -2, Number.NaN, -1),
    referenceLogprobs: Float64Array.of(-2, -2, -1, -1.5),
    mask: Float64Array.of(1, 1, 0, 1),
  };

  it("costs −β·k at each token that counts", () => {
    const penalty = klPenalty(batch, { coefficient: 0.1, estimator: "k1", center: false });
    expect(Array.from(penalty)).toEqual([-0.1, -0, 0, -0.05].map((x) => expect.closeTo(x, 12)));
  });

  it("centred, it does not move the mean", () => {
    const penalty = klPenalty(batch, { coefficient: 0.1, estimator: "k3", center: true });
    expect(penalty[2]).toBe(0);
    expect(penalty.reduce((x, y) => x + y, 0)).toBeCloseTo(0, 12);
    expect(penalty[0]).toBeLessThan(penalty[1]);
  });
});

describe("adaptive KL coefficient", () => {
  const options = { target: 0.1, horizon: 10 };

  it("rises above the target, falls below it, by at most the limit", () => {
    expect(nextKlCoefficient(1, 0.11, options)).toBeCloseTo(1.01, 12);
    expect(nextKlCoefficient(1, 0.1, options)).toBe(1);
    expect(nextKlCoefficient(1, 5, options)).toBeCloseTo(1.02, 12);
    expect(nextKlCoefficient(1, 0, options, 5)).toBeCloseTo(0.9, 12);
    expect(nextKlCoefficient(1, 0, { ...options, limit: 1 }, 50)).toBe(0);
  });

  it("ignores what is not finite, and refuses a target of 0", () => {
    expect(nextKlCoefficient(0.3, Number.NaN, options)).toBe(0.3);
    expect(() => nextKlCoefficient(1, 1, { target: 0, horizon: 1 })).toThrow("expected target and horizon above 0");
  });
});
