// Runs the pure parts of the execution page; prints one JSON document. The argument names the
// part, what it is given comes on standard input.
import { readFileSync } from "node:fs";

import { differences, isSame, summary } from "../../../src/stepwell/ui/page/execution/differences.js";
import * as formats from "../../../src/stepwell/ui/page/execution/formats.js";
import * as words from "../../../src/stepwell/ui/page/words.js";
import { newParser } from "../../../src/stepwell/ui/page/sse.js";
import { axisOf, rowOf } from "../../../src/stepwell/ui/page/execution/time_axis.js";

const given = JSON.parse(readFileSync(0, "utf8"));

/** What a difference says, done to the value before: it must become the value after. */
const applied = (before, found) => {
  const value = { all: structuredClone(before) };
  // From the end, so that places in lists stay what they are.
  const inOrder = [...found].sort((one, other) => Number(one.kind === "removed") - Number(other.kind === "removed"));
  const removed = inOrder.filter((one) => one.kind === "removed").reverse();
  for (const one of [...inOrder.filter((each) => each.kind !== "removed"), ...removed]) {
    const names = one.path === "(all)" ? [] : pathNames(one.path);
    let [place, name] = [value, "all"];
    for (const next of names) [place, name] = [place[name], next];
    if (one.kind !== "removed") place[name] = structuredClone(one.after);
    else if (Array.isArray(place)) place.splice(Number(name), 1);
    else delete place[name];
  }
  return value.all;
};

const pathNames = (path) => {
  const names = [];
  for (const [, bare, quoted, place] of path.matchAll(/([A-Za-z_][\w-]*)|\[("(?:[^"\\]|\\.)*")\]|\[(\d+)\]/g)) {
    names.push(bare ?? (quoted === undefined ? Number(place) : JSON.parse(quoted)));
  }
  return names;
};

const parts = {
  formats: () => given.map(([name, ...values]) => ({ ...words, ...formats })[name](...values)),
  axis: () => given.map((steps) => {
    const rows = steps.map(rowOf);
    const axis = axisOf(rows);
    return {
      rows, seconds: axis.seconds, worked: axis.worked, gaps: axis.gaps,
      places: rows.map((row) => [axis.place(row.from), axis.place(row.to)]),
    };
  }),
  differences: () => given.map(([before, after]) => differences(before, after)),
  summary: () => given.map(([before, after]) => summary(differences(before, after).found)),
  applied: () => given.map(([before, after]) => {
    const { found } = differences(before, after);
    return { isRight: isSame(applied(before, found), after), count: found.length };
  }),
  large: () => {
    const list = (from) => Array.from({ length: 50_000 }, (_, place) => ({ id: place + from }));
    let deep = 1;
    for (let depth = 0; depth < 1_000; depth += 1) deep = [deep];
    const start = process.cpuUsage(); // whatever else runs on the machine
    const told = [
      differences(list(0), list(0)), differences(list(0), list(1)), differences(deep, [deep]),
    ].map(({ found, isCut }) => [found.length, isCut]);
    const { user, system } = process.cpuUsage(start);
    return { told, seconds: (user + system) / 1e6 };
  },
  events: () => given.map((pieces) => {
    const heard = [];
    pieces.forEach(newParser((event) => heard.push(event)));
    return heard;
  }),
};

console.log(JSON.stringify(parts[process.argv[2]]()));
