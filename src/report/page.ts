/** The frame of a report: one HTML file with its own style, nothing loaded from anywhere. */

const entities: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };

/** Text made safe inside HTML and quoted attributes. */
export function escapeHtml(text: unknown): string {
  return String(text).replaceAll(/[&<>"']/g, (character) => entities[character]);
}

const style = `
:root { color-scheme: light dark;
  --page: #f7f7f5; --card: #ffffff; --text: #1d2126; --soft: #5d6672; --line: #dfe2e6; --grid: #eceef0;
  --c0: #2563c9; --c1: #d9730d; --c2: #14866d; --c3: #8a919c; --warn: #a65b00; --bad: #b3261e; --good: #14704f; --band: #2563c922; }
@media (prefers-color-scheme: dark) { :root {
  --page: #14171b; --card: #1c2026; --text: #e7e9ec; --soft: #9aa4b1; --line: #30363e; --grid: #282d34;
  --c0: #7aa9ff; --c1: #f2a65a; --c2: #5cc9a7; --c3: #7d8794; --warn: #f2b866; --bad: #ff8a80; --good: #6fd3a8; --band: #7aa9ff2a; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text);
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
main { max-width: 1120px; margin: 0 auto; padding: 40px 24px 64px; }
h1 { font-size: 26px; line-height: 1.2; margin: 0; letter-spacing: -0.01em; }
h2 { font-size: 18px; margin: 44px 0 14px; letter-spacing: -0.005em; }
p { margin: 0 0 10px; }
.soft { color: var(--soft); } .small { font-size: 13px; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 20px 22px; }
.headline { display: grid; grid-template-columns: minmax(300px, 1fr) minmax(300px, 1.1fr); gap: 28px; align-items: center; margin-top: 24px; }
.big { font-size: 44px; font-weight: 650; line-height: 1.1; letter-spacing: -0.02em; font-variant-numeric: tabular-nums; }
.big .arrow { color: var(--soft); font-weight: 400; padding: 0 4px; }
.gain { font-size: 17px; margin: 8px 0 12px; font-variant-numeric: tabular-nums; } .gain b.up { color: var(--good); } .gain b.down { color: var(--bad); }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(320px, 1fr)); gap: 14px; }
figure { margin: 0; } figure.card { padding: 14px 16px 12px; }
.figure-title { font-weight: 600; } figcaption { font-size: 12.5px; line-height: 1.45; color: var(--soft); margin-top: 6px; }
svg { display: block; width: 100%; height: auto; overflow: visible; }
svg text { font: 11px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: var(--soft); font-variant-numeric: tabular-nums; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 14px; font-size: 12.5px; color: var(--soft); margin: 2px 0 4px; min-height: 19px; }
.key { display: inline-block; width: 11px; height: 11px; border-radius: 3px; margin-right: 5px; vertical-align: -1px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: 14px; }
th, td { text-align: left; padding: 6px 14px 6px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
tr:last-child th, tr:last-child td { border-bottom: 0; }
thead th { color: var(--soft); font-weight: 500; font-size: 13px; } tbody th { font-weight: 500; } td.number, th.number { text-align: right; }
.scroll { overflow-x: auto; max-height: 480px; }
pre, code { font: 13px/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
pre { margin: 6px 0 0; padding: 10px 12px; background: var(--page); border: 1px solid var(--line); border-radius: 7px; white-space: pre-wrap; overflow-wrap: anywhere; }
.examples { display: grid; grid-template-columns: repeat(auto-fit, minmax(330px, 1fr)); gap: 14px; }
.tag { display: inline-block; padding: 0 8px; border-radius: 99px; border: 1px solid currentColor; font-size: 12px; line-height: 19px; }
.tag.good { color: var(--good); } .tag.warn { color: var(--warn); } .tag.bad { color: var(--bad); } .tag.plain { color: var(--soft); }
.example-head { display: flex; flex-wrap: wrap; gap: 4px 10px; align-items: baseline; margin-bottom: 6px; }
.label { font-size: 12.5px; color: var(--soft); margin-top: 10px; }
details > summary { cursor: pointer; color: var(--soft); padding: 4px 0; } details[open] > summary { margin-bottom: 8px; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(330px, 1fr)); gap: 14px; }
@media (max-width: 760px) { .headline { grid-template-columns: 1fr; } main { padding: 24px 14px 48px; } }
@media print { body { background: #fff; } .card, figure { break-inside: avoid; } }
`;

/** A whole page around its body. */
export function page(title: string, body: string): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escapeHtml(title)}</title>
<style>${style}</style>
</head>
<body>
<main>
${body}
</main>
</body>
</html>
`;
}

/** A table of names and values. */
export function definitionTable(rows: [name: string, value: string][]): string {
  const lines = rows.map(
    ([name, value]) => `<tr><th scope="row">${escapeHtml(name)}</th><td>${escapeHtml(value)}</td></tr>`,
  );
  return `<table><tbody>${lines.join("")}</tbody></table>`;
}

/** A table with a header; cells are text, numbers are set to the right. */
export function dataTable(header: string[], rows: (string | number)[][], caption = ""): string {
  const numeric = header.map((_, column) => rows.every((row) => typeof row[column] === "number" || row[column] === ""));
  const attribute = (column: number) => (numeric[column] ? ' class="number"' : "");
  const head = header.map((cell, column) => `<th scope="col"${attribute(column)}>${escapeHtml(cell)}</th>`).join("");
  const body = rows
    .map((row) => `<tr>${row.map((cell, column) => `<td${attribute(column)}>${escapeHtml(cell)}</td>`).join("")}</tr>`)
    .join("");
  const title = caption ? `<caption class="soft small">${escapeHtml(caption)}</caption>` : "";
  return `<table>${title}<thead><tr>${head}</tr></thead><tbody>${body}</tbody></table>`;
}
