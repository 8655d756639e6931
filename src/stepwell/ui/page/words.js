/** Times, spans, counts and values as people read them. Pure. */

import { kindOf, stringify } from "./exact_json.js";

const STEPS = [[60, "second"], [60, "minute"], [24, "hour"], [7, "day"], [4.35, "week"], [12, "month"], [Infinity, "year"]];
const relative = new Intl.RelativeTimeFormat("en", { numeric: "always", style: "narrow" });

/** "3 min. ago" */
export function ago(text, now = Date.now()) {
  let span = (new Date(text).getTime() - now) / 1000;
  if (!Number.isFinite(span)) return "";
  if (span > -45) return "now";
  for (const [size, unit] of STEPS) {
    if (Math.abs(span) < size) return relative.format(Math.round(span), unit);
    span /= size;
  }
  return "";
}

/** "12 ms", "3.4 s", "2.1 min" */
export function span(milliseconds) {
  if (milliseconds === null || milliseconds === undefined) return "";
  if (milliseconds < 1) return "<1 ms";
  if (milliseconds < 1000) return `${Math.round(milliseconds)} ms`;
  if (milliseconds < 60_000) return `${(milliseconds / 1000).toFixed(1)} s`;
  return `${(milliseconds / 60_000).toFixed(1)} min`;
}

/** "12,345" */
export const count = (number) => (typeof number === "number" ? number.toLocaleString("en-US") : "–");

/** "1 step", "3 steps" */
export const counted = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

export const clipped = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

/** Whether a script answers instead of a model. @param {string | null | undefined} model */
export const isScripted = (model) => (model ?? "").startsWith("scripted");

/** JSON for people; text as it is. */
export const shownValue = (value) => (typeof value === "string" ? value : stringify(value, 2) ?? "");

/** Arguments of a call, all of them. JSON, but texts of several lines line by line: each begins with a
 * bar, so that no text can pass for another argument. */
export function shownArguments(args) {
  const isLong = (value) => typeof value === "string" && value.includes("\n");
  if (kindOf(args) !== "object" || !Object.values(args).some(isLong)) return shownValue(args);
  const lines = (text) => text.split("\n").map((line) => `│ ${line}`).join("\n");
  const shown = (value) => (isLong(value) ? `\n${lines(value)}` : ` ${stringify(value)}`);
  return Object.entries(args).map(([name, value]) => `${stringify(name)}:${shown(value)}`).join("\n");
}
