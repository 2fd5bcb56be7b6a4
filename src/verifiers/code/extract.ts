/** Where the code is in a completion: all of it, or the last closed block between lines of three backticks. */
export type Extraction = "completion" | "last-fence";

/** The code in a completion, trimmed; empty when there is none. */
export function extractCode(completion: string, extraction: Extraction): string {
  if (extraction === "completion") return completion.trim();
  let last = "";
  let open: string[] | undefined;
  for (const line of completion.split("\n")) {
    if (open === undefined) {
      if (line.trimStart().startsWith("```")) open = [];
    } else if (line.trim() === "```") {
      last = open.join("\n");
      open = undefined;
    } else {
      open.push(line);
    }
  }
  return last.trim();
}
