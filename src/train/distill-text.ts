/**
 * The methods that train on text: a teacher's answers, and continued training on a mix of datasets. Both run the loop of
 * `rlvr sft`, with steps and optimizer of `distill` and all else of `sft`.
 */
import { RlvrError } from "../base/errors.ts";
import type { RunFolder } from "../runs/index.ts";
import type { Demonstration } from "../tasks/demonstration.ts";
import { EpochOrder, encodeDemonstrations, holdOut, MixOrder, type MixPart, type Order } from "./batches.ts";
import { type FlopCounts, stepSeconds } from "./costs.ts";
import type { DistillMethod, DistillSetup } from "./distill-method.ts";
import { collectResponses, type ResponseSummary } from "./responses.ts";
import { digest } from "./setup.ts";
import { runSupervised, type SupervisedPlan, type SupervisedState, startSupervised } from "./supervised.ts";
import { openTeacher } from "./teachers.ts";

/** The loop of `sft` as a method: what it starts from, and what it costs beside the student's training. */
function textMethod(
  setup: DistillSetup,
  parts: Pick<DistillMethod, "details" | "plan"> & {
    /** The data, once the run's folder is there; null when interrupted. */
    data(run: RunFolder): Promise<{ order: Order; heldOut: SupervisedPlan["heldOut"] } | null>;
    teacher?(): { tokens: number; seconds: number; parameters: number | null };
  },
): DistillMethod {
  const { config, options, student } = setup;
  let state: SupervisedState | undefined;
  return {
    details: parts.details,
    plan: { ...parts.plan, "tokens a step": config.sft.batchTokens },
    async start(run) {
      const started = await startSupervised(config, options, student, run);
      state = started.state;
      return started.resumedFrom;
    },
    async train(run) {
      const data = await parts.data(run);
      if (data === null) return false;
      const { steps, optimizer } = config.distill;
      const plan = { name: "distill", steps, optimizer, ...data };
      return runSupervised(config, options, student, run, plan, state as SupervisedState);
    },
    step: () => state?.step ?? 0,
    costs(run) {
      const trainedTokens = state?.trainedTokens ?? 0;
      const { tokens = 0, seconds = 0, parameters = 0 } = parts.teacher?.() ?? {};
      const counts: FlopCounts = {
        student: { parameters: student.parameters, forwardTokens: 0, trainedTokens },
        ...(parts.teacher ? { teacher: { parameters, forwardTokens: tokens } } : {}),
      };
      return {
        teacherTokens: tokens,
        studentTokens: 0,
        trainedTokens,
        updates: state?.step ?? 0,
        seconds: stepSeconds(run) + seconds,
        ...counts,
      };
    },
  };
}

/** Imitates a teacher's answers to the training tasks: all complete ones, or those that pass. */
export async function responsesMethod(setup: DistillSetup): Promise<DistillMethod> {
  const { config, options, student, verifier, tasks } = setup;
  const teacher = await openTeacher(config, options, student);
  let summary: ResponseSummary | undefined;
  const { details, parameters } = teacher;
  const { filter, samplesPerTask, temperature } = config.distill;
  return {
    ...textMethod(setup, {
      details: { ...details, objective: "next token, answers only", filter },
      plan: { "training tasks": tasks.length, "answers of the teacher": tasks.length * samplesPerTask, temperature },
      async data(run) {
        const responses = await collectResponses(run, teacher, verifier, student, tasks, config, options);
        // Two models in memory at once are needed no longer.
        await teacher.close();
        if (responses === null) return null;
        summary = responses.summary;
        if (summary.kept === 0) throw nothingKept(summary);
        return oneDataset(setup, responses.demonstrations);
      },
      teacher: () => ({ tokens: summary?.teacherTokens ?? 0, seconds: summary?.seconds ?? 0, parameters }),
    }),
    close: () => teacher.close(),
  };
}

function nothingKept({ sampled, dropped }: ResponseSummary): RlvrError {
  const reasons = Object.entries(dropped).map(([reason, count]) => `${count} ${reason}`);
  const message = `distill: expected answers to train on, got none of ${sampled} (${reasons.join(", ")})`;
  return new RlvrError("RLVR_RESPONSES_EMPTY", message, {
    next: "look at the answers in the run's responses; raise distill.samplesPerTask or distill.maxTokens, or set distill.filter to none",
  });
}

function oneDataset({ config, student }: DistillSetup, demonstrations: readonly Demonstration[]) {
  const examples = encodeDemonstrations(student, demonstrations, config.sft);
  const { train, heldOut } = holdOut(demonstrations, config.sft.heldOutShare, config.seed);
  const pick = (numbers: readonly number[]) => numbers.map((i) => examples[i]);
  return {
    order: new EpochOrder(pick(train), config.seed, "demonstrations"),
    heldOut: new Map(heldOut.length > 0 ? [["", pick(heldOut)]] : []),
  };
}

/** Goes on training on named datasets of `config.demonstrations`, each with its share of the tokens. */
export async function continueMethod(setup: DistillSetup): Promise<DistillMethod> {
  const { config, student } = setup;
  const { mix } = config.distill;
  if (!config.demonstrations || !mix || Object.keys(mix).length === 0) {
    const missing = config.demonstrations ? "distill.mix" : "demonstrations";
    throw new RlvrError("RLVR_CONFIG_MISSING", `distill: expected ${missing} in the config, got none`, {
      next: 'give demonstrations a dataset name each, and shares to the names: mix: { "code": 0.7, "text": 0.3 }',
    });
  }
  const demonstrations = await config.demonstrations(config.seed);
  const byName = new Map<string, Demonstration[]>();
  for (const demonstration of demonstrations) {
    const { dataset = "default" } = demonstration;
    const own = byName.get(dataset);
    if (own) own.push(demonstration);
    else byName.set(dataset, [demonstration]);
  }
  const heldOut = new Map<string, MixPart["examples"]>();
  const parts = Object.entries(mix).map(([name, share]): MixPart & { hash: string } => {
    const own = byName.get(name);
    if (own === undefined) {
      const names = [...byName.keys()].join(", ") || "none";
      throw new RlvrError("RLVR_MIX", `distill.mix: expected names of datasets, got ${JSON.stringify(name)}`, {
        next: `the demonstrations have ${names}; a demonstration names its dataset with \`dataset\``,
      });
    }
    const examples = encodeDemonstrations(student, own, config.sft);
    const sides = holdOut(own, config.sft.heldOutShare, config.seed);
    const pick = (numbers: readonly number[]) => numbers.map((i) => examples[i]);
    if (sides.heldOut.length > 0) heldOut.set(name, pick(sides.heldOut));
    return { name, share, examples: pick(sides.train), hash: digest(own) };
  });
  const total = parts.reduce((sum, { share }) => sum + share, 0);
  const datasets = parts.map(({ name, share, examples, hash }) => ({
    name,
    share: share / total,
    demonstrations: examples.length,
    tokens: examples.reduce((sum, { tokens }) => sum + tokens.length, 0),
    hash,
  }));
  return textMethod(setup, {
    details: {
      objective: config.sft.promptLoss ? "next token, all tokens" : "next token, answers only",
      datasets,
      demonstrationsHash: digest(datasets.map(({ name, hash }) => [name, hash])),
    },
    plan: Object.fromEntries(
      datasets.map(({ name, share, demonstrations: count }) => [
        `dataset ${name}`,
        `${count} (${(100 * share).toFixed(0)} % of tokens)`,
      ]),
    ),
    data: async () => ({ order: new MixOrder(parts, config.seed), heldOut }),
  });
}
