import { expect, test } from "vitest";
import { tokenSpans } from "./step-spans.ts";

const pieces = ["1+1", "=2", "\n", "2*2", "=5", ""];
const decode = (tokens: readonly number[]) => tokens.map((token) => pieces[token]).join("");

test("a token is in the step in which its text begins", () => {
  const steps = [
    { start: 0, end: 5, score: 1 },
    { start: 6, end: 11, score: 0 },
  ];
  expect(tokenSpans([0, 1, 2, 3, 4, 5], steps, decode)).toEqual([
    { start: 0, end: 2, score: 1 },
    { start: 3, end: 5, score: 0 },
  ]);
  // "=2" begins inside a step that ends in its middle, and so is in that one alone.
  expect(
    tokenSpans(
      [0, 1, 2],
      [
        { start: 0, end: 4, score: 1 },
        { start: 4, end: 5, score: 0 },
      ],
      decode,
    ),
  ).toEqual([
    { start: 0, end: 2, score: 1 },
    { start: 2, end: 2, score: 0 },
  ]);
});

test("parts of a character, which decode to something else alone, keep their place", () => {
  const bytes = new TextEncoder().encode("é=é");
  const utf8 = (tokens: readonly number[]) => new TextDecoder().decode(Uint8Array.from(tokens));
  const spans = tokenSpans(
    [...bytes],
    [
      { start: 0, end: 1, score: 1 },
      { start: 2, end: 3, score: 0 },
    ],
    utf8,
  );
  // Two bytes each: 0 and 1, then "=", then 3 and 4.
  expect(spans).toEqual([
    { start: 0, end: 2, score: 1 },
    { start: 3, end: 5, score: 0 },
  ]);
});
