/** A line for each arm, the mean over seeds, with the range of the seeds around it: one SVG file. */
export interface Line {
  name: string;
  /** Values by seed and step. */
  curves: readonly (readonly number[])[];
}

const WIDTH = 640;
const HEIGHT = 300;
const LEFT = 56;
const BOTTOM = 34;
const COLORS = ["#2563eb", "#d97706", "#059669", "#9333ea", "#dc2626"];

export function picture(title: string, lines: readonly Line[]): string {
  const values = lines.flatMap(({ curves }) => curves.flat()).filter(Number.isFinite);
  const low = Math.min(...values);
  const high = Math.max(...values);
  const steps = Math.max(...lines.flatMap(({ curves }) => curves.map((curve) => curve.length)));
  const x = (step: number) => LEFT + ((WIDTH - LEFT - 12) * (step - 1)) / Math.max(1, steps - 1);
  const y = (value: number) => 40 + ((HEIGHT - BOTTOM - 40) * (high - value)) / (high - low || 1);
  const point = (step: number, value: number) => `${x(step).toFixed(1)},${y(value).toFixed(1)}`;
  const parts: string[] = [];
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    const value = low + share * (high - low);
    parts.push(`<line x1="${LEFT}" x2="${WIDTH - 12}" y1="${y(value)}" y2="${y(value)}" stroke="#8884"/>`);
    parts.push(`<text x="${LEFT - 6}" y="${y(value) + 4}" text-anchor="end">${Number(value.toPrecision(3))}</text>`);
  }
  for (const step of [1, Math.round(steps / 2), steps]) {
    const anchor = step === 1 ? "start" : step === steps ? "end" : "middle";
    parts.push(`<text x="${x(step)}" y="${HEIGHT - 12}" text-anchor="${anchor}">step ${step}</text>`);
  }
  lines.forEach(({ name, curves }, i) => {
    const at = (step: number) => curves.map((curve) => curve[step]).filter(Number.isFinite);
    const known = Array.from({ length: steps }, (_, step) => step).filter((step) => at(step).length > 0);
    const mean = (step: number) => at(step).reduce((sum, value) => sum + value, 0) / at(step).length;
    const upper = known.map((step) => point(step + 1, Math.max(...at(step))));
    const lower = known.map((step) => point(step + 1, Math.min(...at(step)))).reverse();
    parts.push(`<polygon points="${[...upper, ...lower].join(" ")}" fill="${COLORS[i]}" opacity="0.15"/>`);
    const path = known.map((step) => point(step + 1, mean(step))).join(" ");
    parts.push(`<polyline points="${path}" fill="none" stroke="${COLORS[i]}" stroke-width="2"/>`);
    parts.push(`<rect x="${LEFT + i * 150}" y="22" width="10" height="10" fill="${COLORS[i]}"/>`);
    parts.push(`<text x="${LEFT + 14 + i * 150}" y="31">${name}</text>`);
  });
  return svg(title, parts);
}

/** Points of each arm, one a seed: cost from 0 to the right, what came of it upwards; one SVG file. */
export function scatter(title: string, arms: readonly { name: string; points: readonly [number, number][] }[]): string {
  const all = arms.flatMap(({ points }) => points);
  const right = 1.05 * Math.max(...all.map(([x]) => x));
  const low = Math.min(...all.map(([, y]) => y)) - 0.02;
  const high = Math.max(...all.map(([, y]) => y)) + 0.02;
  const width = WIDTH - LEFT - 170;
  const x = (value: number) => LEFT + (width * value) / right;
  const y = (value: number) => 40 + ((HEIGHT - BOTTOM - 40) * (high - value)) / (high - low);
  const parts: string[] = [];
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    const [up, along] = [low + share * (high - low), share * right];
    parts.push(`<line x1="${LEFT}" x2="${LEFT + width}" y1="${y(up)}" y2="${y(up)}" stroke="#8884"/>`);
    parts.push(`<text x="${LEFT - 6}" y="${y(up) + 4}" text-anchor="end">${up.toFixed(2)}</text>`);
    parts.push(`<text x="${x(along)}" y="${HEIGHT - 12}" text-anchor="middle">${along.toFixed(1)}</text>`);
  }
  arms.forEach(({ name, points }, i) => {
    const color = COLORS[i % COLORS.length];
    for (const [at, value] of points) {
      parts.push(`<circle cx="${x(at).toFixed(1)}" cy="${y(value).toFixed(1)}" r="5" fill="${color}" opacity="0.7"/>`);
    }
    parts.push(`<circle cx="${LEFT + width + 20}" cy="${52 + 20 * i}" r="5" fill="${color}"/>`);
    parts.push(`<text x="${LEFT + width + 30}" y="${56 + 20 * i}">${name}</text>`);
  });
  return svg(title, parts);
}

function svg(title: string, parts: readonly string[]): string {
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" font-family="sans-serif" font-size="11">` +
    `<title>${title}</title><rect width="100%" height="100%" fill="#fff"/><text x="${LEFT}" y="14" font-weight="bold">${title}</text>` +
    `${parts.join("")}</svg>\n`
  );
}
