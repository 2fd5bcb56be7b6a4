import { RandomStream } from "rlvr";
import { describe, expect, it } from "vitest";
import { familyOf, randomComposition, splitOf } from "./compositions.ts";
import { shortened } from "./inputs.ts";
import { randomProblem } from "./problem.ts";
import { renderProgram, runSteps, STEP_KINDS, STEPS } from "./steps.ts";
import { transformsTasks } from "./tasks.ts";

const sizes = { train: 150, validation: 30, test: 60 };
const set = transformsTasks(1, sizes);
const all = [...set.train, ...set.validation, ...set.test];

/** -0 and 0 are one value, as for the verifier. */
const plain = (value: unknown): string => JSON.stringify(value);

/** Runs text that this recipe itself rendered; text of a model never comes here. */
const runText = (code: string, xs: unknown): unknown => new Function("xs", `return (${code})`)(structuredClone(xs));

describe("transformsTasks", () => {
  it("has the sizes asked for, unique ids and unique prompts", () => {
    expect([set.train.length, set.validation.length, set.test.length]).toEqual([150, 30, 60]);
    expect(new Set(all.map((task) => task.id)).size).toBe(240);
    expect(new Set(all.map((task) => task.prompt)).size).toBe(240);
  });

  it("is the same for the same seed, different for another, and a small set starts the large one", () => {
    expect(transformsTasks(1, sizes)).toEqual(set);
    expect(transformsTasks(1, { train: 5, validation: 1, test: 2 }).train).toEqual(set.train.slice(0, 5));
    expect(transformsTasks(2, { train: 5, validation: 1, test: 2 }).train).not.toEqual(set.train.slice(0, 5));
  });

  it("never has a family on two sides, even under different seeds", () => {
    const other = transformsTasks(7, sizes);
    const families = (tasks: { source: string }[]) => new Set(tasks.map((task) => task.source));
    const train = families([...set.train, ...other.train]);
    const validation = families([...set.validation, ...other.validation]);
    const test = families([...set.test, ...other.test]);
    expect([...test].filter((family) => train.has(family) || validation.has(family))).toEqual([]);
    expect([...validation].filter((family) => train.has(family))).toEqual([]);
  });

  it("has five hidden and five held-out tests and one visible, all with different inputs", () => {
    for (const { reference } of all) {
      expect([reference.visible.length, reference.hidden.length, reference.heldOut.length]).toEqual([1, 5, 5]);
      const inputs = [...reference.visible, ...reference.hidden, ...reference.heldOut].map((test) => plain(test.args));
      expect(new Set(inputs).size).toBe(11);
    }
  });

  it("covers every kind, every length, and inputs people forget", () => {
    expect(new Set(all.flatMap((task) => task.tags)).size).toBe(STEP_KINDS.length);
    expect(new Set(all.map((task) => task.difficulty))).toEqual(new Set([2, 3, 4]));
    const lists = all.flatMap((task) => task.reference.hidden.map((test) => test.args[0] as number[]));
    expect(lists.some((list) => list.length === 0)).toBe(true);
    expect(lists.some((list) => list.length === 1)).toBe(true);
    expect(lists.some((list) => list.length > 1 && list.every((x) => x === list[0]))).toBe(true);
    expect(lists.some((list) => list.length > 1 && list.every((x) => x < 0))).toBe(true);
  });

  it("fails every program that returns the visible result, on the hidden and on the held-out tests", () => {
    for (const { reference } of all) {
      const answer = plain(reference.visible[0].expected);
      for (const tests of [reference.hidden, reference.heldOut])
        expect(tests.filter((test) => plain(test.expected) === answer).length).toBeLessThanOrEqual(1);
    }
  });

  it("shows the visible example and nothing of the other sets", () => {
    for (const { prompt, reference } of all) {
      const [{ args, expected }] = reference.visible;
      expect(prompt.toString().endsWith(`\n${plain(args[0])}->${plain(expected)}\n`)).toBe(true);
      for (const test of [...reference.hidden, ...reference.heldOut]) {
        expect(prompt).not.toContain(`${plain(test.args[0])}->`);
        expect(plain(test.args[0])).not.toBe(plain(args[0]));
      }
      expect(prompt.length).toBeLessThan(120);
    }
  });
});

describe("problems", () => {
  const problems = Array.from({ length: 200 }, (_, i) => randomProblem(new RandomStream(3, "test", i), "train"));

  it("have a program whose text gives the expected values when run", () => {
    for (const { steps, reference } of problems) {
      for (const { args, expected } of [...reference.visible, ...reference.hidden, ...reference.heldOut])
        expect(plain(runText(renderProgram(steps), args[0])), renderProgram(steps)).toBe(plain(expected));
    }
  });

  it("need each of their steps: leaving any out fails a hidden and a held-out test", () => {
    for (const { steps, reference } of problems) {
      for (const tests of [reference.hidden, reference.heldOut]) {
        for (const shorter of shortened(steps)) {
          const passes = tests.every(
            (test) => plain(runSteps(shorter, test.args[0] as number[])) === plain(test.expected),
          );
          expect(passes, renderProgram(steps)).toBe(false);
        }
      }
    }
  });
});

describe("families", () => {
  const random = new RandomStream(5, "families");
  const lists = Array.from({ length: 40 }, () =>
    Array.from({ length: random.integer(8) }, () => random.integer(25) - 12),
  );

  it("join compositions only when they are the same function", () => {
    // One number for each kind, so that a family has one function.
    const numbers: Partial<Record<string, number>> = { slice: 2, map: 3, filter: 3 };
    const functionOf = new Map<string, string>();
    let joined = 0;
    for (let i = 0; i < 6000; i++) {
      const steps = randomComposition(random, 2 + (i % 3)).map(({ kind, k }) => ({
        kind,
        k: k === undefined ? k : numbers[STEPS[kind].group],
      }));
      const family = familyOf(steps);
      const results = plain(lists.map((list) => runSteps(steps, list) ?? "none"));
      const known = functionOf.get(family);
      if (known === undefined) functionOf.set(family, results);
      else {
        joined++;
        expect(results, `${renderProgram(steps)} ${family}`).toBe(known);
      }
    }
    expect(joined).toBeGreaterThan(500);
  });

  it("ignore numbers, moves of steps that may move, and mirrored slices", () => {
    expect(familyOf([{ kind: "add", k: 2 }, { kind: "even" }])).toBe(
      familyOf([{ kind: "add", k: 9 }, { kind: "even" }]),
    );
    expect(familyOf([{ kind: "reverse" }, { kind: "takeFirst", k: 2 }, { kind: "square" }])).toBe(
      familyOf([{ kind: "square" }, { kind: "takeLast", k: 2 }, { kind: "reverse" }]),
    );
    expect(familyOf([{ kind: "sortDown" }, { kind: "takeFirst", k: 2 }])).toBe(
      familyOf([{ kind: "sortUp" }, { kind: "takeLast", k: 2 }, { kind: "reverse" }]),
    );
    expect(familyOf([{ kind: "negate" }, { kind: "sortUp" }])).toBe(
      familyOf([{ kind: "sortDown" }, { kind: "negate" }]),
    );
    expect(familyOf([{ kind: "over", k: 2 }, { kind: "square" }])).not.toBe(
      familyOf([{ kind: "square" }, { kind: "over", k: 2 }]),
    );
  });

  it("are spread over the sides as documented", () => {
    const sides = { train: 0, validation: 0, test: 0 };
    for (let i = 0; i < 2000; i++) sides[splitOf(familyOf(randomComposition(random, 3)))]++;
    expect(sides.train / 2000).toBeCloseTo(0.7, 1);
    expect(sides.test / 2000).toBeCloseTo(0.2, 1);
  });
});
