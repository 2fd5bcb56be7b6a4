/** Small texts for people. */
import { relative } from "node:path";
import pc from "picocolors";
import type { Interval } from "../runs/events.ts";

/** Colours on a terminal, or where they are asked for; `CI` alone must not put codes into a log. */
export function useColor(stream: { isTTY?: boolean }): boolean {
  return pc.isColorSupported && (stream.isTTY === true || Boolean(process.env.FORCE_COLOR));
}

/** A path as one would type it from here. */
export function typed(path: string): string {
  const short = relative(process.cwd(), path) || ".";
  return short.startsWith("..") ? path : short;
}

/** Seconds as `8.3 s`, `2m 05s` or `1h 02m`. */
export function duration(seconds: number): string {
  if (!Number.isFinite(seconds)) return "?";
  if (seconds < 60) return `${seconds < 9.95 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  const whole = Math.round(seconds);
  const two = (value: number) => String(value).padStart(2, "0");
  if (whole < 3600) return `${Math.floor(whole / 60)}m ${two(whole % 60)}s`;
  return `${Math.floor(whole / 3600)}h ${two(Math.floor((whole % 3600) / 60))}m`;
}

/** A number with about three digits that matter. */
export function short(value: number): string {
  if (!Number.isFinite(value)) return String(value);
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e12) return value.toLocaleString("en-US");
  if (size >= 1e5 || size < 1e-3) return value.toExponential(1);
  return size >= 100 ? value.toFixed(0) : size >= 10 ? value.toFixed(1) : value.toFixed(3);
}

/** `0.412 [0.361, 0.463]` */
export function interval({ estimate, low, high }: Interval): string {
  return `${estimate.toFixed(3)} [${low.toFixed(3)}, ${high.toFixed(3)}]`;
}

const blocks = "▁▂▃▄▅▆▇█";

/** The last values as block characters, scaled between their lowest and highest. */
export function sparkline(values: readonly number[], width: number): string {
  const last = values.slice(-width);
  const low = Math.min(...last);
  const high = Math.max(...last);
  const scale = high > low ? (blocks.length - 1) / (high - low) : 0;
  return last.map((value) => blocks[Math.round((value - low) * scale)]).join("");
}

/** A bar of `width` cells. */
export function bar(done: number, total: number, width: number): string {
  const filled = total > 0 ? Math.round((Math.min(done, total) / total) * width) : 0;
  return "█".repeat(filled) + "░".repeat(width - filled);
}

/** Text on one line, cut to a width. */
export function oneLine(text: string, width: number): string {
  const flat = text.replaceAll(/\s+/g, " ").trim();
  return flat.length > width ? `${flat.slice(0, Math.max(0, width - 1))}…` : flat;
}
