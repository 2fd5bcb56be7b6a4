import { describe, expect, it } from "vitest";
import { diagnoseGroups } from "./diagnosis.ts";

describe("group diagnosis", () => {
  const rollout = (reward: number | null, invalid = false) => ({ reward, passed: reward === 1, invalid });

  it("sorts groups by what they can teach, without errors", () => {
    const result = diagnoseGroups(
      [
        [rollout(1), rollout(0)],
        [rollout(1), rollout(1), rollout(null)],
        [rollout(0), rollout(0)],
        [rollout(0, true), rollout(0)],
        [rollout(1), rollout(null)],
      ],
      { klCoefficient: 0 },
    );
    expect(result).toMatchObject({ groups: 5, mixed: 1, allPass: 1, allFail: 2, formatOnly: 1, unjudged: 1 });
    expect(result.zeroAdvantageShare).toBeCloseTo(0.8);
    expect(result.text).toBe(
      "1 of 5 groups are mixed and teach the task, 1 all pass, 2 all fail, 1 differ in format only, 1 could not be judged",
    );
  });

  it("says what is left when nothing teaches the task", () => {
    const dead = [[rollout(0), rollout(0)]];
    expect(diagnoseGroups(dead, { klCoefficient: 0 }).text).toContain("so the update is empty");
    expect(diagnoseGroups(dead, { klCoefficient: 0.1 }).text).toContain("; the KL term still gives a gradient");
    const both = diagnoseGroups(dead, { klCoefficient: 0.1, entropyCoefficient: 0.01 });
    expect(both.text).toContain("; the KL term and the entropy bonus still give a gradient");
  });
});
