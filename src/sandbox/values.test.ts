import { deepStrictEqual } from "node:assert";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { CandidateRunner } from "./candidate.ts";
import { DEFAULT_LIMITS } from "./limits.ts";
import { WebAssembly } from "./quickjs-exports.ts";
import { decodeValue, encodeValue, MAX_DEPTH, type PlainValue, ValueError } from "./values.ts";

/** Any UTF-16 text, lone surrogates and zeros included. */
const text = fc.oneof(
  fc.string({ maxLength: 8 }),
  fc.array(fc.integer({ min: 0, max: 0xffff }), { maxLength: 8 }).map((units) => String.fromCharCode(...units)),
);

const key = fc.oneof(text, fc.constantFrom("__proto__", "constructor", "toString", "length", "0", "then", "value"));

/** Plain values of every kind, a few levels deep. */
const plainValues: fc.Arbitrary<PlainValue> = fc.letrec<{ value: PlainValue }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 4 },
    fc.double(),
    fc.integer(),
    fc.constantFrom(Number.NaN, -0, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY),
    fc.bigInt({ min: -(2n ** 80n), max: 2n ** 80n }),
    text,
    fc.boolean(),
    fc.constantFrom(null, undefined),
    fc.array(tie("value"), { maxLength: 5 }),
    fc.dictionary(key, tie("value"), { maxKeys: 5, noNullPrototype: true }),
  ),
})).value;

describe("encodeValue and decodeValue", () => {
  it("give back every plain value, through JSON", () => {
    fc.assert(
      fc.property(plainValues, (value) => {
        deepStrictEqual(decodeValue(JSON.parse(JSON.stringify(encodeValue(value)))), value);
      }),
      { numRuns: 300 },
    );
  });

  it("give back every plain value, through the engine", () => {
    const wasm = readFileSync(createRequire(import.meta.url).resolve("quickjs-wasi/quickjs.wasm"));
    const runner = new CandidateRunner(new WebAssembly.Module(wasm), DEFAULT_LIMITS);
    fc.assert(
      fc.property(plainValues, (value) => {
        const calls = [[encodeValue(value)]];
        const result = runner.run({ id: 0, source: "x => x", form: { kind: "function" }, calls });
        const call = result.kind === "ran" ? result.calls[0] : result;
        deepStrictEqual(call.kind === "value" ? decodeValue(call.value) : call, value);
      }),
      { numRuns: 200 },
    );
  });

  it("refuse what is not plain data", () => {
    const cycle: unknown[] = [];
    cycle.push(cycle);
    class Point {}
    const refused = [() => 1, Symbol.iterator, new Date(0), new Map(), new Point(), cycle, new Array(2), [[new Set()]]];
    for (const value of refused) expect(() => encodeValue(value)).toThrow(ValueError);
  });

  it("refuse text that is not this encoding", () => {
    const deep = Array.from({ length: MAX_DEPTH + 2 }).reduce<unknown>((inner) => ["a", inner], 1);
    const refused = [
      {},
      [],
      ["x"],
      ["o", "key"],
      ["o", 1, 2],
      ["n", "12"],
      ["b", "0x1"],
      ["u", 1],
      ["b", 1],
      deep,
      undefined,
    ];
    for (const value of refused) expect(() => decodeValue(value)).toThrow(ValueError);
  });

  it("keep a key named __proto__ an ordinary key", () => {
    const value = decodeValue(["o", "__proto__", ["o", "polluted", true]]) as Record<string, unknown>;
    expect(Object.keys(value)).toEqual(["__proto__"]);
    expect(value.polluted).toBeUndefined();
  });
});
