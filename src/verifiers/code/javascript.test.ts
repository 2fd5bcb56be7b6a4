import { readFileSync } from "node:fs";
import { afterAll, describe, expect, it } from "vitest";
import { createJavaScriptPool } from "../../sandbox/javascript-pool.ts";
import type { CodeReference } from "../../tasks/code.ts";
import type { Task } from "../../tasks/task.ts";
import type { VerifyPurpose } from "../verifier.ts";
import { type JavaScriptVerifierOptions, javascriptVerifier } from "./javascript.ts";

const pool = createJavaScriptPool({ workers: 2 });
afterAll(() => pool.close());

const DOUBLE: CodeReference = {
  visible: [{ args: [[1, 2]], expected: [2, 4] }],
  hidden: [
    { args: [[]], expected: [] },
    { args: [[5]], expected: [10] },
    { args: [[-1, 0]], expected: [-2, 0] },
    { args: [[7, 7, 7]], expected: [14, 14, 14] },
  ],
  heldOut: [
    { args: [[100]], expected: [200] },
    { args: [[3, 4]], expected: [6, 8] },
  ],
};

function task(reference: CodeReference, id = "t"): Task<CodeReference> {
  return { id, prompt: "", reference, source: "s", tags: [] };
}

async function verify(
  completion: string,
  purpose?: VerifyPurpose,
  options: JavaScriptVerifierOptions = {},
  reference = DOUBLE,
) {
  const form = { kind: "expression", parameters: ["xs"] } as const;
  const verifier = javascriptVerifier({ form, ...options, pool });
  return (await verifier.verify([{ task: task(reference), completion }], purpose))[0];
}

describe("javascriptVerifier", () => {
  it("passes a right answer, in either way of writing", async () => {
    for (const completion of [
      "xs.map(x => x * 2)",
      " xs => xs.map((x) => x + x);\n",
      "function (a) { return a.map(x => 2 * x) }",
    ]) {
      expect(await verify(completion)).toMatchObject({
        outcome: "pass",
        score: 1,
        components: { format: 1, visible: 1, hidden: 1 },
        evidence: { hardcodedSuspect: false },
      });
    }
  });

  it("fails a wrong answer and shows the first failing test", async () => {
    const verdict = await verify("xs.filter(x => x > 0).map(x => x * 2)");
    expect(verdict).toMatchObject({
      outcome: "fail",
      score: 0,
      components: { format: 1, visible: 1, hidden: 0.75 },
      evidence: {
        hardcodedSuspect: true,
        firstFailure: { set: "hidden", index: 2, args: "[[-1, 0]]", expected: "[-2, 0]", got: "[]" },
      },
    });
    expect(verdict.components).not.toHaveProperty("heldOut");
    JSON.stringify(verdict);
  });

  it("lets held-out tests decide an evaluation, and reports the others beside it", async () => {
    const onlyHidden = "xs.map(x => x > 50 ? 0 : x * 2)";
    expect((await verify(onlyHidden)).outcome).toBe("pass");
    expect(await verify(onlyHidden, "evaluation")).toMatchObject({
      outcome: "fail",
      components: { visible: 1, hidden: 1, heldOut: 0.5 },
    });
    expect(await verify("xs.length > 3 ? xs : xs.map(x => x * 2)", "evaluation")).toMatchObject({
      outcome: "pass",
      score: 1,
    });
  });

  it("scores by share when asked, with the same outcome", async () => {
    const verdict = await verify("xs.filter(x => x > 0).map(x => x * 2)", "reward", { partial: true });
    expect(verdict).toMatchObject({ outcome: "fail", score: 0.75 });
  });

  it("calls what is not of the form invalid", async () => {
    for (const completion of ["", "   ", "xs.map(", "Sure! Here it is", "xs.map(x => x)); evil("]) {
      expect(await verify(completion)).toMatchObject({
        outcome: "invalid",
        score: 0,
        components: { format: 0, hidden: 0 },
      });
    }
    expect(await verify("42", "reward", { form: { kind: "function" } })).toMatchObject({ outcome: "invalid" });
    expect(await verify("xs.map(x => x * 2)", "reward", { extraction: "last-fence" })).toMatchObject({
      outcome: "invalid",
    });
    expect(await verify("So:\n```js\nxs.map(x => x * 2)\n```", "reward", { extraction: "last-fence" })).toMatchObject({
      outcome: "pass",
    });
  });

  it("names the limit that was hit", async () => {
    expect(await verify("(() => { for (;;); })()")).toMatchObject({
      outcome: "fail",
      limit: "time",
      components: { format: 1 },
    });
    expect(await verify("new ArrayBuffer(1e9)")).toMatchObject({ outcome: "fail", limit: "memory" });
    expect(await verify("'x'.repeat(1e5)")).toMatchObject({ outcome: "fail", limit: "output" });
    const recursion = await verify("(function f() { return f() })()");
    expect(recursion).toMatchObject({ outcome: "fail", limit: "stack", evidence: { limits: ["stack"] } });
  });

  it("blames the reference, not the candidate, for a reference that cannot be used", async () => {
    const broken = { ...DOUBLE, hidden: [] };
    expect(await verify("xs", "reward", {}, broken)).toMatchObject({ outcome: "error", score: 0 });
    expect(await verify("xs", "evaluation", {}, { ...DOUBLE, heldOut: [] })).toMatchObject({ outcome: "error" });
    const notPlain = { ...DOUBLE, hidden: [{ args: [new Date(0) as never], expected: 1 }] };
    expect((await verify("xs", "reward", {}, notPlain)).evidence.error).toMatch(/hidden\[0\].*plain object/);
  });

  it("never sends an expected value to the candidate's process", async () => {
    const secret = "expected-value-that-stays-outside";
    const sent: string[] = [];
    const spy = {
      ...pool,
      run: (jobs: Parameters<typeof pool.run>[0]) => {
        sent.push(JSON.stringify(jobs));
        return pool.run(jobs);
      },
    };
    const reference = {
      visible: [{ args: [1], expected: secret }],
      hidden: [{ args: [2], expected: secret }],
      heldOut: [{ args: [3], expected: secret }],
    };
    const verifier = javascriptVerifier({ pool: spy });
    const [verdict] = await verifier.verify([{ task: task(reference), completion: "x => x" }], "evaluation");
    expect(verdict.outcome).toBe("fail");
    expect(sent.join()).toContain("x => x");
    expect(sent.join()).not.toContain(secret);
  });

  it("has a contract with its limits, and closes its own pool", async () => {
    const verifier = javascriptVerifier({ workers: 1, limits: { wallMs: 123 } });
    expect(verifier.contract.limits).toMatchObject({ wallMs: 123, memoryBytes: 64 * 1024 * 1024 });
    expect(verifier.contract.doesNotCheck.length).toBeGreaterThan(3);
    const [verdict] = await verifier.verify([{ task: task(DOUBLE), completion: "xs => xs.map(x => x * 2)" }]);
    expect(verdict.outcome).toBe("pass");
    expect(verdict.evidence.isolation).toContain("node permission model");
    await verifier.close();
    await expect(verifier.verify([{ task: task(DOUBLE), completion: "x" }])).rejects.toMatchObject({
      code: "RLVR_SANDBOX_CLOSED",
    });
  });
});

interface Exploit extends Pick<CodeReference, "visible" | "hidden"> {
  name: string;
  entry: string;
  pass: boolean;
  candidate: string;
}

describe("programs that try to fool the verifier, and honest ones", () => {
  const url = new URL("./fixtures/exploits.json", import.meta.url);
  const exploits = JSON.parse(readFileSync(url, "utf8")) as Exploit[];

  it("come to the right verdict, in one batch", async () => {
    const entries = new Map(exploits.map(({ name, entry }) => [name, entry]));
    const form = ({ id }: Task<CodeReference>) => ({ kind: "program", entry: entries.get(id) as string }) as const;
    const verifier = javascriptVerifier({ form, pool });
    const items = exploits.map(({ name, visible, hidden, candidate }) => ({
      task: task({ visible, hidden, heldOut: [] }, name),
      completion: candidate,
    }));
    const verdicts = await verifier.verify(items);
    const summary = (index: number) => ({ name: exploits[index].name, pass: verdicts[index].outcome === "pass" });
    expect(verdicts.map((_, i) => summary(i))).toEqual(exploits.map(({ name, pass }) => ({ name, pass })));
    expect(verdicts.filter(({ outcome }) => outcome === "error")).toEqual([]);
    const hardcoded = exploits.findIndex(({ name }) => name === "knows the visible answers only");
    expect(verdicts[hardcoded].evidence.hardcodedSuspect).toBe(true);
    // The pool is as good as new.
    expect((await verifier.verify([items.at(-1) as (typeof items)[0], items[20]])).map((v) => v.outcome)).toEqual([
      verdicts.at(-1)?.outcome,
      verdicts[20].outcome,
    ]);
  });
});
