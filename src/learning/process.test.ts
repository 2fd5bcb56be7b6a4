import { describe, expect, it } from "vitest";
import { processAdvantages } from "./process.ts";

const OPTIONS = { scale: "group", ddof: 0, epsilon: 0, credit: "step" } as const;
/** Scores 1, 0, 1, 0: mean 0.5 and deviation 0.5, so 1 becomes 1 and 0 becomes −1. */
const GROUP = [
  {
    length: 6,
    spans: [
      { start: 0, end: 2, score: 1 },
      { start: 3, end: 5, score: 0 },
    ],
  },
  {
    length: 3,
    spans: [
      { start: 0, end: 1, score: 1 },
      { start: 1, end: 3, score: 0 },
    ],
  },
];
const plain = (advantages: Float64Array[][]) => advantages.map((group) => group.map((tokens) => Array.from(tokens)));

describe("process rewards", () => {
  it("give a token the normalised score of its step", () => {
    expect(plain(processAdvantages([GROUP], OPTIONS))).toEqual([
      [
        [1, 1, 0, -1, -1, 0],
        [1, -1, -1],
      ],
    ]);
  });

  it("give a token the return from its step on, discounted", () => {
    expect(plain(processAdvantages([GROUP], { ...OPTIONS, credit: "return" }))).toEqual([
      [
        [0, 0, -1, -1, -1, 0],
        [0, -1, -1],
      ],
    ]);
    const [[first]] = processAdvantages([GROUP], { ...OPTIONS, credit: "return", gamma: 0.5 });
    expect(Array.from(first)).toEqual([0.5, 0.5, -1, -1, -1, 0]);
    const late = [1, 0].map((score) => ({ length: 3, spans: [{ start: 1, end: 2, score }] }));
    expect(plain(processAdvantages([late], { ...OPTIONS, credit: "return" }))[0][0]).toEqual([1, 1, 0]);
    expect(plain(processAdvantages([late], OPTIONS))[0][0]).toEqual([0, 1, 0]);
  });

  it("with one step over everything is the outcome's advantage", () => {
    const outcome = (score: number) => ({ length: 2, spans: [{ start: 0, end: 2, score }] });
    for (const credit of ["step", "return"] as const) {
      expect(plain(processAdvantages([[outcome(1), outcome(0)]], { ...OPTIONS, credit }))).toEqual([
        [
          [1, 1],
          [-1, -1],
        ],
      ]);
    }
  });

  it("are 0 where all steps are equally good, or there are none", () => {
    const group = [
      { length: 2, spans: [{ start: 0, end: 1, score: 0.3 }] },
      { length: 1, spans: [] },
    ];
    expect(plain(processAdvantages([group], OPTIONS))).toEqual([[[0, 0], [0]]]);
  });

  it.each([
    [[{ start: 0, end: 3, score: 1 }], "expected a span from 0 to at most 2 with a finite score, got 0 to 3 with 1"],
    [
      [
        { start: 1, end: 2, score: 1 },
        { start: 0, end: 1, score: 1 },
      ],
      "expected a span from 2",
    ],
    [[{ start: 0, end: 1, score: Number.NaN }], "with NaN"],
  ])("refuses spans that do not fit: %#", (spans, message) => {
    expect(() => processAdvantages([[{ length: 2, spans }]], OPTIONS)).toThrow(message);
  });
});
