import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { toyDemonstrations } from "../../test/fixtures/toy/parts.ts";
import { toyPolicy } from "../../test/fixtures/toy/policy.ts";
import { RandomStream } from "../base/random.ts";
import type { TokenSequence } from "../engine/index.ts";
import type { LocalPolicy } from "../policy/local.ts";
import { EpochOrder, encodeDemonstrations, holdOut, MixOrder, nextBatch } from "./batches.ts";

const sequence = (length: number): TokenSequence => ({ tokens: new Array(length).fill(1), scoreFrom: 1 });
const examples = Array.from({ length: 7 }, (_, i) => sequence(i + 2));

describe("order", () => {
  it("is a shuffled epoch at a time, from the seed and the position alone", () => {
    const order = new EpochOrder(examples, 3, "demonstrations");
    const epochs = [0, 1].flatMap((epoch) => new RandomStream(3, "demonstrations", epoch).shuffle(examples));
    expect(epochs.map((_, i) => order.at(i))).toEqual(epochs);
    expect(new EpochOrder(examples, 3, "demonstrations").at(9)).toBe(epochs[9]);
    expect(new Set(epochs.slice(7))).toEqual(new Set(examples));
  });

  it("fills a batch with what fits, and takes at least one", () => {
    const order = new EpochOrder(examples, 3, "demonstrations");
    fc.assert(
      fc.property(fc.nat(40), fc.integer({ min: 1, max: 40 }), (cursor, budget) => {
        const batch = nextBatch(order, cursor, budget);
        const size = batch.reduce((sum, { tokens }) => sum + tokens.length, 0);
        expect(batch).toEqual(batch.map((_, i) => order.at(cursor + i)));
        expect(batch.length === 1 || size <= budget).toBe(true);
        expect(size + order.at(cursor + batch.length).tokens.length > budget).toBe(true);
      }),
    );
  });

  it("keeps the shares of a mix in tokens over every stretch, whatever the lengths", () => {
    const parts = [
      { name: "short", share: 3, examples: [sequence(3), sequence(5)] },
      { name: "long", share: 1, examples: [sequence(40), sequence(30), sequence(50)] },
    ];
    const order = new MixOrder(parts, 1);
    const long = new Set(parts[1].examples);
    const counts = { long: 0, all: 0 };
    const sequences = Array.from({ length: 400 }, (_, i) => order.at(i));
    for (const item of sequences) {
      counts.all += item.tokens.length;
      if (long.has(item)) counts.long += item.tokens.length;
      expect(Math.abs(counts.long - counts.all / 4)).toBeLessThanOrEqual(50);
    }
    expect(counts.long / counts.all).toBeCloseTo(0.25, 1);
    // A resumed run asks for a late position first.
    expect(new MixOrder(parts, 1).at(399)).toBe(sequences[399]);
    expect(sequences).not.toEqual(Array.from({ length: 400 }, (_, i) => new MixOrder(parts, 2).at(i)));
  });
});

describe("holdOut", () => {
  const demonstrations = toyDemonstrations(1).flatMap(({ prompt }) =>
    ["a", "b"].map((completion) => ({ prompt, completion })),
  );

  it("takes a share of the prompts, with all of their answers", () => {
    const { train, heldOut } = holdOut(demonstrations, 0.25, 1);
    expect(heldOut).toHaveLength(demonstrations.length / 4);
    expect([...train, ...heldOut].sort((a, b) => a - b)).toEqual(demonstrations.map((_, i) => i));
    const prompts = new Set(heldOut.map((i) => demonstrations[i].prompt));
    for (const i of train) expect(prompts.has(demonstrations[i].prompt)).toBe(false);
    const reversed = holdOut([...demonstrations].reverse(), 0.25, 1);
    expect(new Set(reversed.heldOut.map((i) => demonstrations.at(-1 - i)?.prompt))).toEqual(prompts);
  });

  it("takes nothing at 0, and leaves a prompt on each side", () => {
    expect(holdOut(demonstrations, 0, 1)).toEqual({ train: demonstrations.map((_, i) => i), heldOut: [] });
    const two = demonstrations.slice(0, 4);
    for (const share of [0.01, 0.99]) {
      const { train, heldOut } = holdOut(two, share, 1);
      expect([train.length, heldOut.length]).toEqual([2, 2]);
    }
    expect(() => holdOut(demonstrations.slice(0, 2), 0.5, 1)).toThrow("two different prompts");
  });
});

describe("encodeDemonstrations", () => {
  let policy: LocalPolicy;
  beforeAll(async () => {
    policy = await toyPolicy();
  });
  afterAll(() => policy.close());

  it("scores the answer with its end, and the prompt where that is asked for", () => {
    const [eos] = policy.tokenizer.eosIds;
    const one = [{ prompt: "ab", completion: "c" }];
    const tokens = [...policy.encode("ab"), ...policy.tokenizer.encode("c"), eos];
    expect(encodeDemonstrations(policy, one, { promptLoss: false })).toEqual([{ tokens, scoreFrom: 2 }]);
    expect(encodeDemonstrations(policy, one, { promptLoss: true })).toEqual([{ tokens, scoreFrom: 1 }]);
  });

  it("takes plain text without a prompt only where all of it counts", () => {
    const text = [{ prompt: "", completion: "abc" }];
    expect(encodeDemonstrations(policy, text, { promptLoss: true })[0]).toMatchObject({ scoreFrom: 1 });
    expect(() => encodeDemonstrations(policy, text, { promptLoss: false })).toThrow(
      "demonstration 0: expected a prompt",
    );
    const long = [{ prompt: "a", completion: "b".repeat(20) }];
    expect(() => encodeDemonstrations(policy, long, { promptLoss: true })).toThrow("at most 16 tokens");
    expect(() => encodeDemonstrations(policy, [], { promptLoss: true })).toThrow("at least one demonstration");
  });
});
