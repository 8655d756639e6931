/**
 * What is different between two JSON values, by path. Pure.
 */

import { kindOf, stringify } from "../exact_json.js";

const MOST_DEPTH = 100;

/**
 * @typedef {{path: string, kind: "added"|"removed"|"changed", before?: any, after?: any}} Difference
 * @param {any} before @param {any} after
 * @param {number} most - differences to report; `isCut` says that there were more
 * @returns {{found: Difference[], isCut: boolean}}
 */
export const differences = (before, after, most = 1_000) => {
  const found = [];
  const report = (one) => {
    if (found.length <= most) found.push(one);
  };
  compare(before, after, "", 0, report, () => found.length > most);
  const isCut = found.length > most;
  return { found: isCut ? found.slice(0, most) : found, isCut };
};

const compare = (before, after, path, depth, report, isEnough) => {
  if (before === after || isEnough()) return;
  const isPair = depth < MOST_DEPTH && kindOf(before) === kindOf(after);
  if (isPair && Array.isArray(before)) {
    compareLists(before, after, path, depth, report, isEnough);
  } else if (isPair && kindOf(before) === "object") {
    compareObjects(before, after, path, depth, report, isEnough);
  } else if (!isSame(before, after)) {
    report({ path: path || "(all)", kind: "changed", before, after });
  }
};

const compareObjects = (before, after, path, depth, report, isEnough) => {
  for (const name of Object.keys(before)) {
    const inner = joined(path, name);
    if (!Object.hasOwn(after, name)) report({ path: inner, kind: "removed", before: before[name] });
    else compare(before[name], after[name], inner, depth + 1, report, isEnough);
  }
  for (const name of Object.keys(after)) {
    if (!Object.hasOwn(before, name)) {
      report({ path: joined(path, name), kind: "added", after: after[name] });
    }
  }
};

/** Items that are the same at both ends are set aside; the rest are compared by place. */
const compareLists = (before, after, path, depth, report, isEnough) => {
  const shorter = Math.min(before.length, after.length);
  let start = 0;
  while (start < shorter && isSame(before[start], after[start])) start += 1;
  let end = 0;
  while (end < shorter - start && isSame(before.at(-1 - end), after.at(-1 - end))) end += 1;
  const [lastBefore, lastAfter] = [before.length - end, after.length - end];
  for (let place = start; place < Math.max(lastBefore, lastAfter) && !isEnough(); place += 1) {
    const inner = `${path}[${place}]`;
    if (place >= lastBefore) report({ path: inner, kind: "added", after: after[place] });
    else if (place >= lastAfter) report({ path: inner, kind: "removed", before: before[place] });
    else compare(before[place], after[place], inner, depth + 1, report, isEnough);
  }
};

const joined = (path, name) => {
  if (!/^[A-Za-z_][\w-]*$/.test(name)) return `${path}[${stringify(name)}]`;
  return path === "" ? name : `${path}.${name}`;
};

/** Whether two JSON values are equal; the order of an object's names does not matter. */
export const isSame = (one, other, depth = 0) => {
  if (one === other) return true;
  const kind = kindOf(one);
  if (kind !== kindOf(other)) return false;
  if (kind === "number") return String(one) === String(other);
  if (kind !== "object" && kind !== "list") return false;
  if (depth > MOST_DEPTH) return stringify(one) === stringify(other);
  const names = Object.keys(one);
  return names.length === Object.keys(other).length
    && names.every((name) => Object.hasOwn(other, name) && isSame(one[name], other[name], depth + 1));
};

/** "2 added, 1 changed"; "no difference" */
export const summary = (found) => {
  const words = ["added", "changed", "removed"]
    .map((kind) => [found.filter((one) => one.kind === kind).length, kind])
    .filter(([number]) => number > 0)
    .map(([number, kind]) => `${number} ${kind}`);
  return words.length === 0 ? "no difference" : words.join(", ");
};
