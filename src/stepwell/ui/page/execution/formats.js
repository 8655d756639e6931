/** Spans, tokens, money and times as the execution page writes them. Pure. */

import { stringify } from "../exact_json.js";
import { clipped, count, counted } from "../words.js";

/** "840 ms", "3.4 s", "2 min 5 s", "3 h 12 min", "2 d 4 h"; "–" for what is not known. */
export const duration = (seconds) => {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  if (seconds < 0.001) return "0 ms";
  if (seconds < 0.9995) return `${Math.max(1, Math.round(seconds * 1000))} ms`;
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return two(whole, 60, "min", 1, "s");
  if (whole < 86_400) return two(whole, 3600, "h", 60, "min");
  return two(whole, 86_400, "d", 3600, "h");
};

const two = (seconds, large, largeName, small, smallName) => {
  const first = Math.floor(seconds / large);
  const second = Math.floor((seconds - first * large) / small);
  return second === 0 ? `${first} ${largeName}` : `${first} ${largeName} ${second} ${smallName}`;
};

/** "$0.0021", "$1.25"; "free" is not ours to say: 0 is "$0". */
export const money = (cost) => {
  if (typeof cost !== "number") return "–";
  if (cost === 0) return "$0";
  if (cost < 0.0001) return "< $0.0001";
  return `$${cost < 1 ? Number(cost.toPrecision(3)) : cost.toFixed(2)}`;
};

/** The moment in the reader's zone; "–" for none. */
export const moment = (text, zone = undefined) => {
  const at = new Date(text ?? "");
  if (Number.isNaN(at.getTime())) return "–";
  return at.toLocaleString("en-GB", {
    timeZone: zone, year: "numeric", month: "short", day: "numeric",
    hour: "2-digit", minute: "2-digit", second: "2-digit",
  });
};

/** Seconds between two times as text; null if one is not known. */
export const secondsBetween = (from, to) => {
  const span = (Date.parse(to ?? "") - Date.parse(from ?? "")) / 1000;
  return Number.isFinite(span) ? Math.max(0, span) : null;
};

const TOKENS = [
  ["input_tokens", "input"], ["output_tokens", "output"], ["cached_tokens", "cached"],
  ["cache_write_tokens", "cache write"], ["reasoning_tokens", "reasoning"],
  ["input", "input"], ["prompt", "input"], ["output", "output"], ["completion", "output"],
  ["cached", "cached"], ["cache_write", "cache write"], ["reasoning", "reasoning"],
];

/** The kinds of tokens that were used: [["input", 10], ["output", 5]]. */
export const tokenKinds = (usage) =>
  TOKENS.filter(([name]) => (usage?.[name] ?? 0) > 0).map(([name, word]) => [word, usage[name]]);

/** "15 tokens (10 input, 5 output)" */
export const tokens = (total, usage) => {
  const kinds = tokenKinds(usage).map(([word, number]) => `${count(number)} ${word}`);
  const all = counted(total ?? 0, "token");
  return kinds.length === 0 ? all : `${all} (${kinds.join(", ")})`;
};

/** A value as one short line. */
export const shortValue = (value, most = 80) =>
  clipped(typeof value === "string" ? value : (stringify(value) ?? String(value)), most);

const STATUS = {
  pending: ["Waiting for a worker", "info", "…"],
  running: ["Running", "info", "▶"],
  paused: ["Paused", "warn", "❚❚"],
  completed: ["Completed", "ok", "✓"],
  stopped: ["Stopped", "warn", "■"],
  failed: ["Failed", "danger", "✕"],
  cancelled: ["Cancelled", "muted", "⊘"],
};

/** How a status is shown: its word, tone and sign. */
export const statusLook = (status) => {
  const [word, tone, sign] = STATUS[status] ?? [String(status ?? "unknown"), "muted", "?"];
  return { word, tone, sign };
};

/** True while an execution may still go on by itself or by an answer. */
export const isOpen = (status) => ["pending", "running", "paused"].includes(status);
export const isRunning = (status) => status === "running" || status === "pending";

/** Why another worker went on; without a worker's name it gave the execution up itself. */
export const takeover = ({ attempt, step, worker, silent_seconds: seconds }) =>
  `attempt ${attempt} took over at step ${step}: ${worker ? `its worker (${worker}) sent no heartbeat for ${seconds} s` : "its worker released it"}`;
