/**
 * Prints `N passed, N failed, N skipped` of a vitest JSON report. A test file that did not load counts as one failure.
 * Exit code 1 when anything failed, when nothing passed, or when there is no report.
 *
 *   node scripts/ci-counts.mjs report.json
 */
import { readFileSync } from "node:fs";

function counts(path) {
  const result = { passed: 0, failed: 0, skipped: 0 };
  try {
    for (const file of JSON.parse(readFileSync(path, "utf8")).testResults) {
      const tests = file.assertionResults.map(({ status }) => status);
      result.passed += tests.filter((status) => status === "passed").length;
      result.failed += tests.filter((status) => status === "failed").length;
      result.skipped += tests.filter((status) => status !== "passed" && status !== "failed").length;
      if (file.status === "failed" && !tests.includes("failed")) result.failed++;
    }
  } catch (error) {
    console.error(`no report of the tests: ${error.message}`);
  }
  return result;
}

const { passed, failed, skipped } = counts(process.argv[2]);
console.log(`${passed} passed, ${failed} failed, ${skipped} skipped`);
process.exitCode = failed > 0 || passed === 0 ? 1 : 0;
