/** Tries the verifier of `sums.config.ts` before any training: `npx jiti docs/examples/judge-sums.ts`. */
import type { Task } from "rlvr";
import { sumVerifier } from "./sums.config.ts";

const verifier = sumVerifier();
const task: Task<number> = { id: "one", prompt: "17+25=", reference: 42, source: "17", tags: [] };
const broken: Task<number> = { ...task, id: "broken", reference: Number.NaN };
const items = [
  { task, completion: "42" },
  { task, completion: "43\n" },
  { task, completion: "42 is the answer" },
  { task: broken, completion: "42" },
];
for (const [i, { outcome, score, evidence }] of (await verifier.verify(items)).entries()) {
  console.log(`${JSON.stringify(items[i].completion)}: ${outcome}, score ${score}, ${JSON.stringify(evidence)}`);
}
await verifier.close();
