import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { describe, expect, it } from "vitest";
import { CandidateRunner } from "./candidate.ts";
import type { CandidateForm } from "./javascript-job.ts";
import { DEFAULT_LIMITS } from "./limits.ts";
import { WebAssembly } from "./quickjs-exports.ts";
import { decodeValue, encodeValue, type PlainValue } from "./values.ts";

const wasm = readFileSync(createRequire(import.meta.url).resolve("quickjs-wasi/quickjs.wasm"));
const runner = new CandidateRunner(new WebAssembly.Module(wasm), { ...DEFAULT_LIMITS, wallMs: 500 });

const FUNCTION: CandidateForm = { kind: "function" };
const PROGRAM: CandidateForm = { kind: "program", entry: "f" };
const OVER_XS: CandidateForm = { kind: "expression", parameters: ["xs"] };

function run(source: string, form: CandidateForm = FUNCTION, calls: PlainValue[][] = [[]]): unknown {
  const wire = calls.map((args) => args.map((value) => encodeValue(value)));
  const result = runner.run({ id: 0, source, form, calls: wire });
  if (result.kind !== "ran") return result;
  return result.calls.map((call) => (call.kind === "value" ? decodeValue(call.value) : call));
}

describe("forms", () => {
  it("take an expression that is a function", () => {
    for (const source of [
      "xs => xs.length",
      "function (xs) { return xs.length }",
      "xs => xs.length;",
      "xs => xs.length // n",
    ]) {
      expect(run(source, FUNCTION, [[[1, 2]]])).toEqual([2]);
    }
  });

  it("take an expression over parameters, and a function in its place", () => {
    for (const source of ["xs.map(x => x * 2)", "xs => xs.map(x => x * 2)", "[...xs].map((x) => 2 * x);"]) {
      expect(run(source, OVER_XS, [[[1, 2]], [[]]])).toEqual([[2, 4], []]);
    }
  });

  it("take a program with a named function, however it is declared", () => {
    for (const declared of [
      "function f(n) { return n + 1 }",
      "const f = (n) => n + 1;",
      "let one = 1; var f = n => n + one",
    ]) {
      expect(run(declared, PROGRAM, [[1]])).toEqual([2]);
    }
  });

  it("refuse text that closes its brackets early or is not one expression", () => {
    const refused = [
      "x => x); evil(",
      "}); evil(",
      "x=>x) => (x=>x",
      "a) => (b",
      "a].x, [b",
      "x => x /*",
      "",
      "...x",
      "x => x; 1",
      "return 1",
    ];
    for (const source of [...refused, "(".repeat(50), "xs =>", "let x = 1"]) {
      expect(run(source)).toMatchObject({ kind: "syntax" });
      expect(run(source, OVER_XS)).toMatchObject({ kind: "syntax" });
    }
    expect(run("function f( {", PROGRAM)).toMatchObject({ kind: "syntax" });
  });

  it("report what is not a function", () => {
    expect(run("3")).toEqual({ kind: "not-a-function", got: "a number" });
    expect(run("[x => x]")).toEqual({ kind: "not-a-function", got: "an array" });
    expect(run("const g = 1", PROGRAM)).toMatchObject({ kind: "not-a-function" });
    expect(run("throw new TypeError('early')", PROGRAM)).toEqual({
      kind: "thrown",
      name: "TypeError",
      message: "early",
    });
  });
});

describe("values", () => {
  it("that are not plain data are named, and no candidate code runs to find out", () => {
    const cases: [string, string][] = [
      ["() => new Proxy([1], { get() { for (;;); } })", "a proxy"],
      ["() => ({ get a() { for (;;); } })", "an object with a getter"],
      ["() => Object.defineProperty([1], 0, { get() { for (;;); } })", "an array with a getter"],
      ["() => new (class Point { x = 1 })", "an object with a prototype of its own"],
      ["() => new (class extends Array {})", "an array with a prototype of its own"],
      ["() => { const a = {}; a.a = [a]; return a }", "a value that contains itself"],
      ["() => { let a = 1; for (let i = 0; i < 99; i++) a = [a]; return a }", "more than 64 nested levels"],
      ["() => [1, , 2]", "an array with holes"],
      ["async () => 1", "an object of class Promise"],
      ["() => new Map([[1, 2]])", "an object of class Map"],
      ["() => new Number(1)", "an object of class Number"],
      ["() => [Symbol.iterator]", "a symbol"],
      ["() => ({ [Symbol.iterator]: 1 })", "an object with a symbol as key"],
      ["() => () => 1", "a function"],
    ];
    for (const [source, what] of cases) expect(run(source)).toEqual([{ kind: "unencodable", what }]);
  });

  it("may share parts, and may have no prototype", () => {
    expect(run("() => { const a = [1]; return { a, b: a, c: Object.assign(Object.create(null), { d: a }) } }")).toEqual(
      [{ a: [1], b: [1], c: { d: [1] } }],
    );
  });

  it("are fresh arguments in every call, whatever the candidate did to them", () => {
    expect(run("xs => { xs.push(0); return xs }", FUNCTION, [[[1]], [[1]]])).toEqual([
      [1, 0],
      [1, 0],
    ]);
  });
});

describe("exceptions", () => {
  it("are described without running candidate code", () => {
    const cases: [string, string, string][] = [
      ["null", "null", "null"],
      ["undefined", "undefined", "undefined"],
      ["'text'", "string", "text"],
      ["new RangeError('far')", "RangeError", "far"],
      ["{ get message() { for (;;); }, get name() { for (;;); }, toString() { for (;;); } }", "Object", ""],
      ["new Proxy(function () {}, { get() { for (;;); }, getPrototypeOf() { for (;;); } })", "proxy", ""],
      ["Object.assign(new Error(), { message: { toString() { for (;;); } } })", "Error", ""],
      ["'x'.repeat(1e6)", "string", "(a long text)"],
    ];
    for (const [thrown, name, message] of cases) {
      expect(run(`() => { throw ${thrown} }`)).toEqual([{ kind: "thrown", name, message }]);
    }
  });
});

describe("limits", () => {
  const limit = (name: string) => ({ kind: "limit", limit: name });

  it("stop loops, catching or not, and say so for the calls that are left", () => {
    expect(run("() => { for (;;); }", FUNCTION, [[], []])).toEqual([limit("time"), limit("time")]);
    expect(run("() => { for (;;) try { for (;;); } catch {} finally { for (;;); } }")).toEqual([limit("time")]);
    expect(run("for (;;);", PROGRAM)).toEqual(limit("time"));
    expect(run("() => /(a+)+b/.test('a'.repeat(40))")).toEqual([limit("time")]);
  });

  it("stop recursion, in candidate code and in the engine's own", () => {
    expect(run("function f() { return f() }")).toEqual([limit("stack")]);
    expect(run("() => JSON.parse('['.repeat(1e5))")).toEqual([limit("stack")]);
    expect(run("(".repeat(1e5))).toEqual(limit("stack"));
  });

  it("stop allocation", () => {
    for (const source of [
      "() => new ArrayBuffer(1e9)",
      "() => { let s = 'xxxxxxxx'; for (;;) s += s; }",
      "() => 'x'.repeat(5e8)",
    ]) {
      expect(run(source)).toEqual([limit("memory")]);
    }
  });

  it("stop floods", () => {
    const floods = [
      "() => 'x'.repeat(70000)",
      "() => new Array(70000).fill(0)",
      "() => new Array(4e9)",
      "() => Array(9).fill('x'.repeat(9000))",
      "() => { throw 1 }",
    ];
    expect(floods.map((source) => (run(source) as unknown[])[0])).toEqual([
      ...Array.from({ length: 4 }, () => limit("output")),
      { kind: "thrown", name: "number", message: "1" },
    ]);
    expect(run(`() => 1 //${"x".repeat(300_000)}`)).toMatchObject({ kind: "syntax" });
  });

  it("bound all values of a candidate together", () => {
    const results = run(
      "() => 'x'.repeat(60000)",
      FUNCTION,
      Array.from({ length: 50 }, () => []),
    ) as unknown[];
    expect(results.at(0)).toHaveLength(60000);
    expect(results.at(-1)).toEqual(limit("output"));
  });
});

describe("state", () => {
  it("of one candidate does not reach the next", () => {
    run("globalThis.leak = 1; Array.prototype.leak = 1; Math.max = () => 7; var f = () => 1", PROGRAM);
    run("() => { globalThis.leak = 1; for (;;); }");
    run("() => { globalThis.leak = 1; return new ArrayBuffer(1e9) }");
    run("() => { globalThis.leak = []; for (let i = 0; i < 2e4; i++) leak.push({ i }); return 1 }");
    expect(run("() => [typeof leak, [].leak, Math.max(1, 2), typeof f]")).toEqual([
      ["undefined", undefined, 2, "undefined"],
    ]);
  });

  it("is the same every time: clock, random numbers and time zone are pinned", () => {
    const source =
      "() => [Date.now(), Math.random(), performance.now(), new Date(0).getHours(), new Date().getTimezoneOffset()]";
    expect(run(source)).toEqual(run(source));
    expect(run(source)).toEqual([[1577836800000, expect.any(Number), 0, 0, 0]]);
  });

  it("holds no way out", () => {
    const names = [
      "process",
      "require",
      "module",
      "fetch",
      "setTimeout",
      "WebAssembly",
      "Atomics",
      "Worker",
      "Deno",
      "std",
      "os",
    ];
    expect(run(`() => [${names.map((name) => `typeof ${name}`).join()}]`)).toEqual([names.map(() => "undefined")]);
    expect(run("() => (function () {}).constructor('return typeof process')()")).toEqual(["undefined"]);
    expect(
      run("let out = 'pending'; import('fs').then(() => { out = 'in' }, () => {}); var f = () => out", PROGRAM),
    ).toEqual(["pending"]);
    expect(run("() => { console.log('noise'); return 1 }")).toEqual([1]);
  });

  it("patched by the candidate does not reach the reader of its values", () => {
    const patches = [
      "Array.prototype.map = JSON.stringify = Object.keys = () => 'forged'",
      "Object.defineProperty(Array.prototype, 0, { get() { return 7 }, set() {} })",
      "for (const k of ['value', 'get', 'length', 'kind']) Object.defineProperty(Object.prototype, k, { __proto__: null, get() { return 9 }, set() {} })",
      "Array.prototype[Symbol.iterator] = Object.prototype.toString = () => { for (;;); }",
      "Object.setPrototypeOf(Array.prototype, new Proxy({}, { get() { for (;;); }, has() { for (;;); } }))",
    ];
    for (const patch of patches) {
      expect(run(`${patch}; var f = xs => [xs[0], [xs[1]]]`, PROGRAM, [[[1, 2]]])).toEqual([[1, [2]]]);
    }
  });
});
