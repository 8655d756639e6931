/**
 * Steps on one axis of time. Pure.
 *
 * Times in which nothing ran (a question that waited for a day) are cut out, so that the work
 * stays visible; the axis says where, and how long they were.
 */

// A wait is cut out if it is longer than this share of all work, and not too short to be one.
const SHARE_OF_GAP = 0.1;
const SHORTEST_GAP = 0.5;
const SHOWN_GAP = 0.04;

/**
 * @typedef {{kind: "model"|"tool"|"other", name: string, from: number, to: number,
 *   lane: number, outcome: string}} Bar - times in seconds
 * @typedef {{number: number, from: number, to: number, bars: Bar[], lanes: number,
 *   model: number, tools: number}} Row
 */

const at = (text) => Date.parse(text ?? "") / 1000;

/** A step with its bars: the model until the first tool, then the tools, each in a free lane. */
export const rowOf = (step) => {
  const from = at(step.started_at);
  const ran = (step.tool_executions ?? [])
    .map((tool) => ({ tool, from: at(tool.started_at), to: at(tool.completed_at) }))
    .filter((each) => Number.isFinite(each.from))
    .map((each) => ({ ...each, to: Number.isFinite(each.to) ? Math.max(each.to, each.from) : each.from }))
    .sort((one, other) => one.from - other.from);
  const end = at(step.completed_at);
  const last = ran.reduce((latest, each) => Math.max(latest, each.to), from);
  const to = Number.isFinite(end) ? Math.max(end, from) : last;
  const thought = ran.length === 0 ? to : Math.min(Math.max(ran[0].from, from), to);
  const bars = [{ kind: "model", name: step.model ?? "model", from, to: thought, lane: 0, outcome: "" }];
  const free = [];
  for (const { tool, ...span } of ran) {
    const open = free.findIndex((until) => until <= span.from);
    const lane = open < 0 ? free.length : open;
    free[lane] = span.to;
    bars.push({ kind: "tool", name: tool.name, ...span, lane, outcome: tool.outcome });
  }
  const lanes = Math.max(1, free.length);
  return { number: step.number, from, to, bars, lanes, model: thought - from, tools: covered(ran) };
};

/** Seconds in which at least one of the spans ran; they are sorted by their start. */
const covered = (spans) => {
  let [sum, until] = [0, -Infinity];
  for (const { from, to } of spans) {
    sum += Math.max(0, to - Math.max(from, until));
    until = Math.max(until, to);
  }
  return sum;
};

/**
 * The axis of some rows: `place(second)` is 0..1 on it, `gaps` are the waits that were cut out.
 * @param {Row[]} rows
 */
export const axisOf = (rows) => {
  const known = rows.filter((row) => Number.isFinite(row.from)).sort((a, b) => a.from - b.from);
  if (known.length === 0) return { seconds: 0, worked: 0, gaps: [], place: () => 0 };
  const worked = covered(known);
  const most = Math.max(worked * SHARE_OF_GAP, Math.min(SHORTEST_GAP, worked), 0.001);
  const cuts = [];
  let until = known[0].to;
  for (const row of known.slice(1)) {
    if (row.from - until > most) cuts.push({ from: until, to: row.from, seconds: row.from - until });
    until = Math.max(until, row.to);
  }
  const start = known[0].from;
  const hidden = cuts.reduce((sum, cut) => sum + cut.seconds, 0);
  const gapWidth = Math.max((until - start - hidden) * SHOWN_GAP, 1e-6);
  const length = Math.max(until - start - hidden + cuts.length * gapWidth, 1e-6);
  const place = (second) => {
    let shown = second - start;
    for (const cut of cuts) {
      if (second <= cut.from) break;
      const part = Math.min(1, (second - cut.from) / cut.seconds);
      shown -= part * (cut.seconds - gapWidth);
    }
    return Math.min(1, Math.max(0, shown / length));
  };
  const gaps = cuts.map((cut) => ({ seconds: cut.seconds, left: place(cut.from), right: place(cut.to) }));
  return { seconds: until - start, worked, gaps, place };
};
