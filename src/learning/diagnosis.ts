/** What a step's groups can teach: which of them have a difference in reward, and why the others have none. */

export interface DiagnosedRollout {
  /** Null where the verdict was `error`: it left the group. */
  reward: number | null;
  /** Judged right. */
  passed: boolean;
  /** No answer of the required form. */
  invalid: boolean;
}

export interface GroupDiagnosis {
  groups: number;
  /** Different rewards: the groups that teach the task. */
  mixed: number;
  allPass: number;
  allFail: number;
  /** All fail alike in the task, but some have no answer of the required form: they differ in format only. */
  formatOnly: number;
  /** Fewer than two judged completions. */
  unjudged: number;
  /** Share of groups whose advantages are all 0. */
  zeroAdvantageShare: number;
  /** In words, for the log and the report. */
  text: string;
}

/**
 * Sorts groups by what they can teach. `formatOnly` groups count as failed ones too: format-only is a part of all-fail
 * where rewards are equal, and of mixed where the format is rewarded.
 */
export function diagnoseGroups(
  groups: readonly (readonly DiagnosedRollout[])[],
  options: { klCoefficient: number; entropyCoefficient?: number; stepScores?: boolean },
): GroupDiagnosis {
  const result: GroupDiagnosis = {
    groups: groups.length,
    mixed: 0,
    allPass: 0,
    allFail: 0,
    formatOnly: 0,
    unjudged: 0,
    zeroAdvantageShare: 0,
    text: "",
  };
  for (const group of groups) {
    const judged = group.filter(({ reward }) => reward !== null);
    const equal = judged.every(({ reward }) => reward === judged[0].reward);
    if (judged.length < 2) result.unjudged++;
    else if (!equal) result.mixed++;
    else if (judged[0].passed) result.allPass++;
    else result.allFail++;
    const invalid = judged.filter((rollout) => rollout.invalid).length;
    if (judged.length >= 2 && judged.every(({ passed }) => !passed) && invalid > 0 && invalid < judged.length) {
      result.formatOnly++;
    }
  }
  result.zeroAdvantageShare = groups.length > 0 ? 1 - result.mixed / groups.length : 1;
  result.text = describe(result, options);
  return result;
}

function describe(d: GroupDiagnosis, options: Parameters<typeof diagnoseGroups>[1]): string {
  const { klCoefficient, entropyCoefficient = 0, stepScores = false } = options;
  const parts = [`${d.mixed} of ${d.groups} groups are mixed and teach the task`];
  if (d.allPass > 0) parts.push(`${d.allPass} all pass`);
  if (d.allFail > 0) parts.push(`${d.allFail} all fail`);
  if (d.formatOnly > 0) parts.push(`${d.formatOnly} differ in format only`);
  if (d.unjudged > 0) parts.push(`${d.unjudged} could not be judged`);
  if (d.mixed > 0) return parts.join(", ");
  const others = [
    stepScores ? "scores of steps" : "",
    klCoefficient !== 0 ? "the KL term" : "",
    entropyCoefficient !== 0 ? "the entropy bonus" : "",
  ].filter(Boolean);
  const rest =
    others.length > 0
      ? `${others.join(" and ")} still ${others.length > 1 || stepScores ? "give" : "gives"} a gradient`
      : "no other term gives a gradient, so the update is empty";
  return `${stepScores ? "no signal from outcomes" : "no task-learning signal"}: ${parts.join(", ")}; ${rest}`;
}
