/**
 * Turns the envelopes of a session into the messages that a chat shows. A list is a value: functions
 * return a new one and leave the old one as it was. What is shown depends on which envelopes came,
 * never on their order.
 *
 * @typedef {{id: string, role: "user" | "assistant" | "tool" | "status", content: string,
 *   incomplete?: boolean, name?: string, summary?: string, error?: boolean, folded?: boolean,
 *   state?: "running" | "waiting" | "done" | "failed" | "blocked" | "unknown", execution?: string,
 *   step?: number | null, duration_ms?: number | null, children?: Message[]}} Message
 * @typedef {{ignored: number}} MessageList
 */

const [MOST_AHEAD, LATE_CHUNKS, DEEPEST] = [1_000_000, 32, 50];
const CUT_SHORT = ["failed", "cancelled", "stopped"];
const TERMINAL = ["completed", ...CUT_SHORT];
const STATUSES = ["idle", "processing", "paused", ...TERMINAL];
const [STATUS, CHUNK] = ["agent.status", "agent.stream.chunk"];
const [STEP_STARTED, STEP_COMPLETED] = ["agent.step.started", "agent.step.completed"];
const [TOOL_STARTED, TOOL_COMPLETED] = ["agent.tool.started", "agent.tool.completed"];

const isText = (value) => typeof value === "string";
const isName = (value) => isText(value) && value !== "";
const isCount = (value) => Number.isSafeInteger(value) && value >= 0;
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const isTime = (value) => Number.isFinite(value) && value >= 0 && value <= Number.MAX_SAFE_INTEGER;
const textOf = (value) => (isText(value) ? value : "");
const objectsIn = (value) => (Array.isArray(value) ? value.filter(isObject) : []);
const inOrder = (a, b) => a.seq - b.seq || (a.id < b.id ? -1 : Number(a.id > b.id));
const firstOf = (a, b) => (a && inOrder(a, b) < 0 ? a : b);

/** What a payload must have to be read. */
const FIELDS = new Map([
  [STATUS, { status: (value) => STATUSES.includes(value) }],
  [STEP_STARTED, { step_number: isCount }],
  [STEP_COMPLETED, { step_number: isCount }],
  [TOOL_STARTED, { step_number: isCount, tool_call_id: isName, tool_name: isText }],
  [TOOL_COMPLETED, { tool_call_id: isName, tool_name: isText }],
  [CHUNK, { step_number: isCount, chunk_index: isCount, content: isText }],
  ["agent.continuation", {}],
]);

/** A list for a session of which nothing was missed yet. @returns {MessageList} */
export const emptyList = () => fromHistory([], 0);

/** With an envelope. What can't be read, or has a seq that is a million ahead, is ignored and counted;
 * nothing throws.
 * @param {MessageList} list @param {unknown} envelope @returns {MessageList} */
export function received(list, envelope) {
  if (!isObject(envelope) || !isName(envelope.id) || !isCount(envelope.seq)) {
    return { ...list, ignored: list.ignored + 1 };
  }
  if (envelope.seq <= list.through || list.log.places.get(envelope.id) < list.size) return list;
  const { entries } = list.log;
  const from = list.through >= 0 || !list.size ? list.through : entries[0].seq;
  if (from >= 0 && envelope.seq > from + MOST_AHEAD) return { ...list, ignored: list.ignored + 1 };
  const ignored = list.ignored + !isReadable(envelope);
  // Frameworks that check for purity call this twice; the second time all is done already.
  if (entries[list.size] === envelope) return { ...list, size: list.size + 1, ignored };
  const log = list.size === entries.length ? list.log : newLog(entries.slice(0, list.size));
  log.places.set(envelope.id, log.entries.push(envelope) - 1);
  return { ...list, log, size: list.size + 1, ignored };
}

/** With what the user typed, shown until the stored messages have it.
 * @param {MessageList} list @param {string} text @param {string} id @returns {MessageList} */
export function said(list, text, id) {
  const shown = [{ id, role: "user", content: text }];
  return { ...list, said: [...list.said, { seq: newest(list) + 0.5, shown }] };
}

/** What to show, in order. @param {MessageList} list @returns {Message[]} */
export function messages(list) {
  const fold = folded(list);
  const current = currentOf(fold);
  let word = "paused";
  const runs = childrenOf(fold).map((run) => {
    const seen = view(fold, run, run !== current, list.steps);
    if (run === current) word = seen.word;
    return { seq: run.first.seq, shown: seen.shown };
  });
  const parts = [...runs, ...list.said].sort((a, b) => a.seq - b.seq);
  const live = parts.flatMap((part) => part.shown);
  const goOn = new Set(live.filter(({ role }) => role === "tool").map(({ id }) => id));
  const history = list.history.filter(({ id, state }) => state !== "waiting" || !goOn.has(id));
  const answered = (one) => (one.state === "waiting" ? { ...one, state: "done" } : one);
  return [...(word === "paused" ? history : history.map(answered)), ...live];
}

/** The status of the newest execution. @param {MessageList} list @returns {string} */
export function status(list) {
  const fold = folded(list);
  const run = currentOf(fold);
  return run ? view(fold, run, false, list.steps).word : list.last;
}

/** The newest seq that came. @param {MessageList} list @returns {number} */
export const newest = (list) => Math.max(list.through, folded(list).newest);

/** What never came, as pairs of first and last seq. @param {MessageList} list @returns {number[][]} */
export function missing(list) {
  const { ranges } = folded(list);
  const start = list.through < 0 && ranges.length ? ranges[0][0] - 1 : list.through;
  const ends = [start, ...ranges.map(([, last]) => last)];
  const gaps = ranges.map(([first], place) => [ends[place] + 1, first - 1]);
  return gaps.filter(([first, last]) => first <= last);
}

/** Whether to fetch the stored messages: an execution ended, or what is missing can't be sent again.
 * @param {MessageList} list @param {boolean} canReplay @returns {boolean} */
export function needsHistory(list, canReplay = true) {
  return folded(list).hasEnded || (!canReplay && missing(list).length > 0);
}

/** With the stored messages in place of all up to `through`, which is newest(list) before the fetch.
 * What the user typed stays until it is stored: under its id, or in the same words as a new message.
 * `over` names executions whose stored messages are all there, whatever came after `through`.
 * @param {MessageList} list @param {object[]} stored @param {number} through @param {string[]} over
 * @returns {MessageList} */
export function reconciled(list, stored, through = newest(list), over = []) {
  const point = Number.isSafeInteger(through) ? Math.max(through, list.through) : newest(list);
  const fresh = fromHistory(stored, point);
  const typed = new Set(list.said.map(({ shown }) => shown[0].id));
  const old = new Set(usersIn(list.history).map(({ id }) => id));
  const users = usersIn(fresh.history);
  const ids = new Set(users.map(({ id }) => id));
  const words = users.filter(({ id }) => !old.has(id) && !typed.has(id)).map(({ content }) => content);
  const isStored = ({ id, content }) => {
    const place = ids.has(id) ? -1 : words.indexOf(content);
    if (place >= 0) words.splice(place, 1); // one stored message is one typed message
    return ids.has(id) || place >= 0;
  };
  const said = list.said.filter(({ shown }) => !isStored(shown[0]));
  const later = list.log.entries.slice(0, list.size).filter((entry) => entry.seq > fresh.through)
    .map((one) => (over.includes(one.execution_id) ? { id: one.id, seq: one.seq } : one)); // it came
  const last = status(list) === "processing" ? "idle" : status(list);
  return { ...fresh, log: newLog(later), size: later.length, said, last, ignored: list.ignored };
}

/** A list from stored messages; `through` is the seq up to which they tell all, -1 if that is unknown.
 * @param {object[]} stored @param {number} through @returns {MessageList} */
export function fromHistory(stored, through = -1) {
  const [history, blocks, steps] = [[], new Map(), new Set()];
  const addBlock = (id, name, summary, of) => {
    const [, execution = "", step = null] = /^([^:]*):(?:(\d{1,15}):)?/.exec(of) ?? [];
    blocks.set(id, newBlock(id, name, summary, "unknown", execution, step === null ? null : Number(step)));
    history.push(blocks.get(id));
  };
  for (const { id: given, role, content: told, metadata } of objectsIn(stored)) {
    const [id, content] = [textOf(given), textOf(told)];
    steps.add(id.replace(/:[^:]*$/, "")); // execution:step:number; these are not shown live as well
    if (role === "user") history.push({ id, role, content });
    if (role === "assistant" && content) history.push({ id, role, content, incomplete: false });
    for (const call of role === "assistant" ? objectsIn(metadata?.tool_calls) : []) {
      const summary = isText(call.summary) ? call.summary : summaryOf(call.arguments);
      addBlock(textOf(call.id), textOf(call.name), summary, id);
    }
    if (role === "tool") {
      const callId = textOf(metadata?.tool_call_id);
      if (!blocks.has(callId)) addBlock(callId, textOf(metadata?.tool_name), "", id);
      settle(blocks.get(callId), content, metadata?.is_error === true, metadata);
      if (metadata?.waiting === true) blocks.get(callId).state = "waiting";
    }
    if (role === "info" || role === "notification") {
      const word = metadata?.status; // that of an execution which ended so stays to be seen
      history.push(newStatus(id, content, word === "failed", !CUT_SHORT.includes(word)));
    }
  }
  return { log: newLog([]), size: 0, history, steps, through, said: [], last: "idle", ignored: 0 };
}

/** Entries are only ever added, so lists share them: each looks at the first `size` of them. */
const newLog = (entries) =>
  ({ entries, places: new Map(entries.map(({ id }, place) => [id, place])), fold: newFold() });

const newFold = () => ({ size: 0, newest: -1, hasEnded: false, ranges: [], runs: new Map() });

const usersIn = (history) => history.filter(({ role }) => role === "user");

const newBlock = (id, name, summary, state, execution, step) =>
  ({ id, role: "tool", name, summary, content: "", error: false, state, execution, step, duration_ms: null, folded: true, children: [] });

const newStatus = (id, content, error, folded) => ({ id, role: "status", content, error, folded });

/** With its result; a call that was not allowed is no failure of the tool. */
const settle = (block, content, error, told) => {
  const [state, time] = [told?.outcome === "blocked" ? "blocked" : "failed", told?.duration_ms];
  return Object.assign(block, { content, error, state: error ? state : "done", duration_ms: isTime(time) ? time : null });
};

function isReadable({ type, execution_id, payload }) {
  if (!FIELDS.has(type) || !isName(execution_id) || !isObject(payload)) return false;
  return Object.entries(FIELDS.get(type)).every(([name, isFit]) => isFit(payload[name]));
}

/** The entries by execution; only new ones are looked at, unless the list is an old one. */
function folded({ log, size }) {
  const fold = log.fold.size > size ? newFold() : log.fold;
  for (; fold.size < size; fold.size++) {
    const entry = log.entries[fold.size];
    cover(fold.ranges, entry.seq);
    fold.newest = Math.max(fold.newest, entry.seq);
    if (isReadable(entry)) take(fold, entry);
  }
  return fold;
}

/** Adds a seq to the ranges of those that came. */
function cover(ranges, seq) {
  let place = ranges.length;
  while (place > 0 && ranges[place - 1][0] > seq) place--;
  const [before, after] = [ranges[place - 1], ranges[place]];
  if (before && seq <= before[1] + 1) before[1] = Math.max(before[1], seq);
  else ranges.splice(place++, 0, [seq, seq]);
  if (after && ranges[place - 1][1] + 1 === after[0]) {
    ranges[place - 1][1] = after[1];
    ranges.splice(place, 1);
  }
}

function take(fold, entry) {
  const { type, execution_id: id, payload } = entry;
  if (!fold.runs.has(id)) fold.runs.set(id, { id, last: entry, entries: [], texts: new Map() });
  const run = fold.runs.get(id);
  run.first = firstOf(run.first, entry);
  if (inOrder(run.last, entry) < 0) run.last = entry;
  if (type === STATUS && !isName(payload.parent_execution_id)) {
    fold.hasEnded ||= TERMINAL.includes(payload.status);
  }
  if (type !== CHUNK) return void run.entries.push(entry);
  const step = payload.step_number;
  if (!run.texts.has(step)) run.texts.set(step, { chunks: [], settled: NOTHING });
  const text = run.texts.get(step);
  text.first = firstOf(text.first, entry);
  let place = text.chunks.length;
  while (place > 0 && inOrder(text.chunks[place - 1], entry) > 0) place--;
  text.chunks.splice(place, 0, entry);
  if (place < text.settled.used) text.settled = NOTHING;
}

const NOTHING = { used: 0, next: 0, content: "", isWhole: false };

/** Puts a text together up to the first chunk that is missing; chunk 0 begins the response anew.
 * All but the last chunks are put together once, since what is late is not very late. */
function assembled(text, chunks = text.chunks) {
  const upTo = (end, from) => {
    const now = { ...from };
    for (; now.used < end; now.used++) {
      const { content, chunk_index: index, is_complete: isLast } = chunks[now.used].payload;
      if (index === 0) Object.assign(now, { next: 0, content: "", isWhole: false });
      if (index !== now.next) continue;
      Object.assign(now, { next: index + 1, content: now.content + content, isWhole: isLast === true });
    }
    return now;
  };
  if (chunks !== text.chunks) return upTo(chunks.length, NOTHING);
  text.settled = upTo(text.chunks.length - LATE_CHUNKS, text.settled);
  return upTo(text.chunks.length, text.settled);
}

/** Where each step began last: one that another worker begins anew is told anew, unless it was done. */
function beginnings(entries) {
  const [begun, done] = [new Map(), new Set()];
  const ofSteps = entries.filter(({ type }) => type === STEP_STARTED || type === STEP_COMPLETED);
  for (const entry of ofSteps.sort(inOrder)) {
    const number = entry.payload.step_number;
    if (entry.type === STEP_STARTED && !done.has(number)) begun.set(number, entry);
    if (entry.type === STEP_COMPLETED) done.add(number);
  }
  return begun;
}

/** The texts where they begin, without what an attempt said that is told anew. */
function textsOf(run, begun) {
  return [...run.texts].flatMap(([number, text]) => {
    const start = begun.get(number);
    if (!start || inOrder(start, text.first) < 0) return [{ ...text.first, text, chunks: text.chunks }];
    const chunks = text.chunks.filter((chunk) => inOrder(start, chunk) < 0);
    return chunks.length ? [{ ...chunks[0], text, chunks }] : [];
  });
}

/** The executions that a parent's calls began, in order; those that a user began if there is none. */
function childrenOf(fold, parent = "") {
  const isChild = ({ first }) => textOf(first.payload.parent_execution_id) === parent;
  return [...fold.runs.values()].filter(isChild).sort((a, b) => inOrder(a.first, b.first));
}

const currentOf = (fold) => childrenOf(fold).sort((a, b) => inOrder(a.last, b.last)).at(-1);

/** Messages and status of an execution. One that `isOver` shows no status and waits for nothing. */
function view(fold, run, isOver, hidden, depth = 0) {
  const [shown, blocks, running, children] = [[], new Map(), new Map(), []];
  const [waiting, placed, firstIn, resumable] = [new Set(), new Set(), new Map(), new Set()];
  let [told, word, step] = [{}, "processing", 0];
  const show = (message, number = step) => {
    if (!hidden.has(`${run.id}:${number}`)) shown.push(message);
    return message;
  };
  const showText = (content, number, incomplete) => {
    if (content || incomplete) show({ id: `${run.id}:${number}`, role: "assistant", content, incomplete }, number);
  };
  // A model may use the id of a call of an earlier step again: that is another call, unless it waited.
  const isReused = (block) =>
    block && firstIn.get(block) < step && !running.has(block) && !waiting.has(block) && !resumable.has(block);
  const begin = (id, { tool_name: name, args_summary: summary }, isNew = false) => {
    if (!blocks.has(id) || (isNew && isReused(blocks.get(id)))) blocks.set(id, newBlock(id, "", "", "running", run.id, step));
    const block = blocks.get(id);
    resumable.delete(block);
    if (!firstIn.has(block)) firstIn.set(block, step);
    if (!placed.has(block) && !hidden.has(`${run.id}:${step}`)) placed.add(show(block));
    waiting.delete(block);
    running.set(block, step);
    return Object.assign(block, { name: block.name || textOf(name), summary: block.summary || textOf(summary) });
  };
  const giveUpBefore = (end) => {
    for (const [block, begunIn] of running) {
      if (begunIn < end && running.delete(block)) block.state = "unknown";
    }
  };
  const stopWaiting = (state) => {
    for (const block of waiting) resumable.add(Object.assign(block, { state }));
    waiting.clear();
  };
  const dropFrom = (number) => {
    for (const [id, block] of blocks) {
      if (firstIn.get(block) !== number) continue;
      blocks.delete(id);
      running.delete(block);
      waiting.delete(block);
      if (placed.delete(block)) shown.splice(shown.indexOf(block), 1);
    }
  };
  const starts = beginnings(run.entries);
  const begun = childrenOf(fold, run.id).map((child) => ({ ...child.first, type: "child", child }));
  const happened = [...run.entries, ...textsOf(run, starts), ...begun].sort(inOrder);
  for (const { id: envelope, type, payload, text, chunks, child } of happened) {
    if (!child && isCount(payload.step_number)) step = payload.step_number;
    if (text || type.endsWith(".started")) [told, word] = [{}, "processing"];
    if (text) {
      const { content, isWhole } = assembled(text, chunks);
      showText(content, step, !isWhole);
    }
    if (child) {
      const id = textOf(payload.parent_tool_call_id) || child.id;
      children.push([blocks.get(id) ?? begin(id, {}), child]);
    }
    if (type === TOOL_STARTED) begin(payload.tool_call_id, payload, true).state = "running";
    if (type === TOOL_COMPLETED) {
      const content = textOf(payload.error) || textOf(payload.result_summary);
      const [block, isPending] = [begin(payload.tool_call_id, payload), payload.outcome === "pending"];
      running.delete(settle(block, content, !isPending && payload.success !== true, payload));
      if (isPending) waiting.add(Object.assign(block, { state: "waiting" }));
    }
    if (type === STATUS) [told, word] = [payload, payload.status];
    if (type === STEP_STARTED && starts.get(step)?.id === envelope) dropFrom(step);
    if (type === STEP_STARTED) giveUpBefore(step);
    if (type === STEP_COMPLETED) giveUpBefore(step + 1);
    if (type === STATUS && word !== "processing") giveUpBefore(Infinity);
    // Older envelopes do not say which of its calls a step waits for.
    const mayWait = type === STATUS && word === "paused" && !waiting.size ? [...blocks.values()] : [];
    for (const block of mayWait) if (firstIn.get(block) === step) resumable.add(block);
    if (type === STEP_STARTED || (type === STATUS && word === "processing")) stopWaiting("done");
    if (type === STATUS && TERMINAL.includes(word)) stopWaiting("unknown");
  }
  if (isOver) giveUpBefore(Infinity);
  if (isOver) stopWaiting("unknown");
  for (const [block, child] of depth < DEEPEST ? children : []) {
    const isDone = block.state !== "running" && block.state !== "waiting";
    block.children = block.children.concat(view(fold, child, isDone, new Set(), depth + 1).shown);
  }
  if (word === "completed") showAnswer(shown, told, run, showText);
  const content = isOver ? "" : statusText(word, told, step);
  if (content) shown.push(newStatus(`${run.id}:status`, content, word === "failed", false));
  return { shown, word };
}

/** The last status tells the answer, for those who got no chunks or not all of them. */
function showAnswer(shown, { last_response: answer, step_count: step }, run, showText) {
  if (!isName(answer) || !isCount(step)) return;
  const streamed = shown.find(({ id, role }) => role === "assistant" && id === `${run.id}:${step}`);
  if (!streamed) showText(answer, step, false);
  else if (streamed.incomplete) Object.assign(streamed, { content: answer, incomplete: false });
}

function statusText(word, { waits_for, error_message, reason }, step) {
  if (word === "idle" || word === "completed") return "";
  if (word === "processing") {
    const waits = textOf(reason); // such as for a provider
    return (step ? `Working: step ${step}` : "Working") + (waits && `; ${waits}`);
  }
  const asked = word === "paused" ? objectsIn(waits_for) : [];
  const waits = asked.map(({ kind, prompt }) => {
    return `Waiting for ${kind === "question" ? "an answer" : textOf(kind)}: ${textOf(prompt)}`;
  });
  const why = textOf(error_message) || textOf(reason);
  return waits.join("\n") || word[0].toUpperCase() + word.slice(1) + (why && `: ${why}`);
}

/** Arguments in short, by the rule of `args_summary`: three at most, long ones clipped. */
function summaryOf(args) {
  const clipped = (text) => ([...text].length > 30 ? [...text].slice(0, 27).join("") + "..." : text);
  const json = (value) => {
    try {
      return String(JSON.stringify(value));
    } catch {
      return "..."; // nested too deep
    }
  };
  const shown = (value) => clipped(isText(value) ? `'${value}'` : json(value));
  const entries = isObject(args) ? Object.entries(args).slice(0, 3) : [];
  return entries.map(([name, value]) => `${clipped(name)}: ${shown(value)}`).join(", ");
}
