/**
 * The messages of a session as rows to draw. Pure. A message that looks the same stays the same
 * object, and an object is drawn once.
 */

import { span } from "./words.js";

const FIELDS = ["role", "content", "incomplete", "name", "summary", "error", "state", "folded"];

/** Under which key a message is drawn: the same live and stored. */
export function keyOf({ id, role, execution, step }) {
  if (role === "tool") return `tool ${execution ?? ""} ${step ?? ""} ${id}`;
  if (role === "assistant") return `text ${id.split(":").slice(0, 2).join(":")}`;
  return `${role} ${id}`;
}

export function looksSame(a, b) {
  if (a === b) return true;
  if (FIELDS.some((name) => a[name] !== b[name])) return false;
  if (span(a.duration_ms) !== span(b.duration_ms)) return false;
  const [mine, others] = [a.children ?? [], b.children ?? []];
  return mine.length === others.length && mine.every((one, place) => looksSame(one, others[place]));
}

/** The new messages, with the old objects where nothing changed. What subagents said is not stored,
 * so a block keeps the children that it had. */
export function steady(old, fresh) {
  const byKey = new Map(old.map((one) => [keyOf(one), one]));
  return fresh.map((one) => {
    const before = byKey.get(keyOf(one));
    if (!before) return one;
    const hasLost = one.children?.length === 0 && before.children?.length > 0 && one.state !== "running";
    const whole = hasLost ? { ...one, children: before.children } : one;
    return looksSame(before, whole) ? before : whole;
  });
}

/** The execution that a message belongs to; "" for what belongs to none. */
export function executionOf(message, users) {
  if (message.role === "user") return users.get(message.id) ?? "";
  if (message.role === "tool") return message.execution;
  return message.id.includes(":") ? message.id.slice(0, message.id.indexOf(":")) : "";
}

/** Rows: messages, and behind those of an execution that is over its end with the folded messages.
 * @param {object[]} messages @param {Map<string, string>} users @param {(id: string) => boolean} isOpen */
export function rowsOf(messages, users, isOpen) {
  const [rows, seen] = [[], new Map()];
  let [current, details, hasOutput, hasStatus] = ["", [], false, false];
  const end = () => {
    if (!current || isOpen(current)) return;
    rows.push({ kind: "end", key: `end ${current}`, execution: current, details, hasStatus });
  };
  for (const message of messages) {
    const execution = executionOf(message, users);
    if (execution !== current) {
      if (hasOutput) end();
      [current, details, hasOutput, hasStatus] = [execution, [], false, false];
    }
    if (message.role !== "user") hasOutput = true;
    if (message.role === "status" && message.folded) {
      details.push(message);
      continue;
    }
    if (message.role === "status") hasStatus = true;
    const key = keyOf(message);
    const count = seen.get(key) ?? 0;
    seen.set(key, count + 1);
    rows.push({ kind: message.role, key: count ? `${key} ${count}` : key, message, execution });
  }
  if (hasOutput) end();
  return rows;
}

/** With the row that says where a fork comes from: behind what was copied from there, which belongs to
 * no execution of this session.
 * @param {object[]} rows @param {{execution_id: string, step_number: number} | undefined} origin
 * @param {boolean} isWhole whether nothing is left to be loaded before these rows */
export function withOrigin(rows, origin, isWhole) {
  const found = rows.findIndex(({ execution }) => execution);
  const place = found < 0 ? rows.length : found;
  if (!origin?.execution_id || (place === 0 && !isWhole)) return rows;
  return rows.toSpliced(place, 0, { kind: "origin", key: "origin", origin, execution: "" });
}
