/** Judges a few completions with the JavaScript verifier: `npx jiti docs/examples/judge-code.ts`. */
import { type CodeReference, javascriptVerifier, type Task } from "rlvr";

const task: Task<CodeReference> = {
  id: "double-and-sort",
  prompt: "double each, sort up\n[3,-1]->[-2,6]\n",
  reference: {
    visible: [{ args: [[3, -1]], expected: [-2, 6] }],
    hidden: [
      { args: [[10, 9, 1]], expected: [2, 18, 20] },
      { args: [[]], expected: [] },
    ],
    heldOut: [{ args: [[-5, -20]], expected: [-40, -10] }],
  },
  source: "double>sortUp",
  tags: [],
};

const completions = [
  "xs.map(x => x * 2).sort((a, b) => a - b)",
  "xs => xs.map(x => x * 2).sort()",
  "[-2, 6]",
  "xs.map(x => x * 2).toSorted((a, b) => a - b",
  "xs => { for (;;); }",
];

const verifier = javascriptVerifier({ form: { kind: "expression", parameters: ["xs"] }, workers: 1 });
const verdicts = await verifier.verify(completions.map((completion) => ({ task, completion })));
for (const [i, { outcome, score, components, evidence, limit }] of verdicts.entries()) {
  console.log(completions[i]);
  console.log(`  ${outcome}, score ${score}, ${JSON.stringify(components)}${limit ? `, ${limit} limit` : ""}`);
  if (evidence.firstFailure) console.log(`  ${JSON.stringify(evidence.firstFailure)}`);
  if (evidence.hardcodedSuspect) console.log("  hard-coding suspect");
  if (evidence.reason) console.log(`  ${evidence.reason}`);
}
await verifier.close();
