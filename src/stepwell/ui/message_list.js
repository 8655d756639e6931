/**
 * Turns the envelopes of a session into the messages that a chat shows. A list is a value: functions
 * return a new one and leave the old one as it was. What is shown depends on which envelopes came,
 * never on their order. `stepwell.testing.message_list` is the same in Python; change both.
 *
 * @typedef {{id: string, role: "user" | "assistant" | "tool" | "status", content: string,
 *   incomplete?: boolean, name?: string, summary?: string, error?: boolean, folded?: boolean,
 *   state?: "running" | "done" | "failed" | "unknown", children?: Message[]}} Message
 * @typedef {{ignored: number}} MessageList
 */

const TERMINAL = ["completed", "failed", "cancelled", "stopped"];
const STATUSES = ["idle", "processing", "paused", ...TERMINAL];
const [STATUS, CHUNK] = ["agent.status", "agent.stream.chunk"];
const [STEP_STARTED, STEP_COMPLETED] = ["agent.step.started", "agent.step.completed"];
const [TOOL_STARTED, TOOL_COMPLETED] = ["agent.tool.started", "agent.tool.completed"];

const isText = (value) => typeof value === "string";
const isName = (value) => isText(value) && value !== "";
const isCount = (value) => Number.isSafeInteger(value) && value >= 0;
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
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

/** With an envelope. What can't be read is ignored and counted; nothing throws.
 * @param {MessageList} list @param {unknown} envelope @returns {MessageList} */
export function received(list, envelope) {
  if (!isObject(envelope) || !isName(envelope.id) || !isCount(envelope.seq)) {
    return { ...list, ignored: list.ignored + 1 };
  }
  if (envelope.seq <= list.through || list.log.places.get(envelope.id) < list.size) return list;
  const isTip = list.size === list.log.entries.length;
  const log = isTip ? list.log : newLog(list.log.entries.slice(0, list.size));
  log.places.set(envelope.id, log.entries.push(envelope) - 1);
  return { ...list, log, size: list.size + 1, ignored: list.ignored + !isReadable(envelope) };
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
  const runs = childrenOf(fold).map((run) => {
    return { seq: run.first.seq, shown: view(fold, run, run !== current, list.steps).shown };
  });
  const parts = [...runs, ...list.said].sort((a, b) => a.seq - b.seq);
  return list.history.concat(...parts.map((part) => part.shown));
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
  const { seqs, newest: last } = folded(list);
  if (seqs.size === last - list.through) return [];
  const sorted = [...seqs].sort((a, b) => a - b);
  const ends = [list.through < 0 ? sorted[0] - 1 : list.through, ...sorted];
  return sorted.map((seq, place) => [ends[place] + 1, seq - 1]).filter(([first, end]) => first <= end);
}

/** Whether to fetch the stored messages: an execution ended, or what is missing can't be sent again.
 * @param {MessageList} list @param {boolean} canReplay @returns {boolean} */
export function needsHistory(list, canReplay = true) {
  return folded(list).hasEnded || (!canReplay && missing(list).length > 0);
}

/** With the stored messages in place of all up to `through`, which is newest(list) before the fetch.
 * @param {MessageList} list @param {object[]} stored @param {number} through @returns {MessageList} */
export function reconciled(list, stored, through = newest(list)) {
  const fresh = fromHistory(stored, Math.max(through, list.through));
  const users = fresh.history.filter((message) => message.role === "user");
  const lastWords = users.slice(-list.said.length).map(({ content }) => content);
  const isStored = (one) => users.some(({ id }) => id === one.id) || lastWords.includes(one.content);
  const said = list.said.filter(({ seq, shown }) => seq > fresh.through && !isStored(shown[0]));
  const later = list.log.entries.slice(0, list.size).filter((entry) => entry.seq > fresh.through);
  const last = status(list) === "processing" ? "idle" : status(list);
  return { ...fresh, log: newLog(later), size: later.length, said, last, ignored: list.ignored };
}

/** A list from stored messages; `through` is the seq up to which they tell all, -1 if that is unknown.
 * @param {object[]} stored @param {number} through @returns {MessageList} */
export function fromHistory(stored, through = -1) {
  const [history, blocks, steps] = [[], new Map(), new Set()];
  const addBlock = (id, name, summary) => {
    blocks.set(id, newBlock(id, name, summary, "unknown"));
    history.push(blocks.get(id));
  };
  for (const { id: given, role, content: told, metadata } of objectsIn(stored)) {
    const [id, content] = [textOf(given), textOf(told)];
    steps.add(id.replace(/:[^:]*$/, "")); // execution:step:number; these are not shown live as well
    if (role === "user") history.push({ id, role, content });
    if (role === "assistant" && content) history.push({ id, role, content, incomplete: false });
    for (const call of role === "assistant" ? objectsIn(metadata?.tool_calls) : []) {
      addBlock(textOf(call.id), textOf(call.name), summaryOf(call.arguments));
    }
    if (role === "tool") {
      const callId = textOf(metadata?.tool_call_id);
      if (!blocks.has(callId)) addBlock(callId, textOf(metadata?.tool_name), "");
      settle(blocks.get(callId), content, metadata?.is_error === true);
    }
    if (role === "info" || role === "notification") history.push(newStatus(id, content, false, true));
  }
  return { log: newLog([]), size: 0, history, steps, through, said: [], last: "idle", ignored: 0 };
}

/** Entries are only ever added, so lists share them: each looks at the first `size` of them. */
const newLog = (entries) =>
  ({ entries, places: new Map(entries.map(({ id }, place) => [id, place])), fold: newFold() });

const newFold = () => ({ size: 0, newest: -1, hasEnded: false, seqs: new Set(), runs: new Map() });

const newBlock = (id, name, summary, state) =>
  ({ id, role: "tool", name, summary, content: "", error: false, state, folded: true, children: [] });

const newStatus = (id, content, error, folded) => ({ id, role: "status", content, error, folded });

const settle = (block, content, error) =>
  Object.assign(block, { content, error, state: error ? "failed" : "done" });

function isReadable({ type, execution_id, payload }) {
  if (!FIELDS.has(type) || !isName(execution_id) || !isObject(payload)) return false;
  return Object.entries(FIELDS.get(type)).every(([name, isFit]) => isFit(payload[name]));
}

/** The entries by execution; only new ones are looked at, unless the list is an old one. */
function folded({ log, size }) {
  const fold = log.fold.size > size ? newFold() : log.fold;
  for (; fold.size < size; fold.size++) {
    const entry = log.entries[fold.size];
    fold.seqs.add(entry.seq);
    fold.newest = Math.max(fold.newest, entry.seq);
    if (isReadable(entry)) take(fold, entry);
  }
  return fold;
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
  if (!run.texts.has(step)) run.texts.set(step, { chunks: [], used: 0 });
  const text = run.texts.get(step);
  text.first = firstOf(text.first, entry);
  if (text.chunks.length && inOrder(text.chunks.at(-1), entry) > 0) text.used = -1;
  text.chunks.push(entry);
}

/** Puts a text together up to the first chunk that is missing; chunk 0 begins the response anew. */
function assembled(text) {
  const begin = () => Object.assign(text, { next: 0, content: "", isWhole: false });
  if (text.used < 0) text.chunks.sort(inOrder);
  if (text.used <= 0) begin().used = 0;
  for (; text.used < text.chunks.length; text.used++) {
    const { content, chunk_index: index, is_complete: isLast } = text.chunks[text.used].payload;
    if (index === 0) begin();
    if (index !== text.next) continue;
    Object.assign(text, { next: index + 1, content: text.content + content, isWhole: isLast === true });
  }
  return text;
}

/** The executions that a parent's calls began, in order; those that a user began if there is none. */
function childrenOf(fold, parent = "") {
  const isChild = ({ first }) => textOf(first.payload.parent_execution_id) === parent;
  return [...fold.runs.values()].filter(isChild).sort((a, b) => inOrder(a.first, b.first));
}

const currentOf = (fold) => childrenOf(fold).sort((a, b) => inOrder(a.last, b.last)).at(-1);

/** Messages and status of an execution. One that `isOver` shows no status and waits for nothing. */
function view(fold, run, isOver, hidden) {
  const [shown, blocks, running, children] = [[], new Map(), new Map(), []];
  let [told, word, step] = [{}, "processing", 0];
  const show = (message, number = step) => {
    if (!hidden.has(`${run.id}:${number}`)) shown.push(message);
    return message;
  };
  const showText = (content, number, incomplete) => {
    if (content || incomplete) show({ id: `${run.id}:${number}`, role: "assistant", content, incomplete }, number);
  };
  const begin = (id, { tool_name: name, args_summary: summary }) => {
    if (!blocks.has(id)) blocks.set(id, show(newBlock(id, "", "", "running")));
    const block = blocks.get(id);
    running.set(block, step);
    return Object.assign(block, { name: block.name || textOf(name), summary: block.summary || textOf(summary) });
  };
  const giveUpBefore = (end) => {
    for (const [block, begunIn] of running) {
      if (begunIn < end && running.delete(block)) block.state = "unknown";
    }
  };
  const texts = [...run.texts.values()].map((text) => ({ ...text.first, text }));
  const begun = childrenOf(fold, run.id).map((child) => ({ ...child.first, type: "child", child }));
  for (const { type, payload, text, child } of [...run.entries, ...texts, ...begun].sort(inOrder)) {
    if (!child && isCount(payload.step_number)) step = payload.step_number;
    if (text || type.endsWith(".started")) word = "processing";
    if (text) showText(assembled(text).content, step, !text.isWhole);
    if (child) {
      const id = textOf(payload.parent_tool_call_id) || child.id;
      children.push([blocks.get(id) ?? begin(id, {}), child]);
    }
    if (type === TOOL_STARTED) begin(payload.tool_call_id, payload).state = "running";
    if (type === TOOL_COMPLETED) {
      const content = textOf(payload.error) || textOf(payload.result_summary);
      running.delete(settle(begin(payload.tool_call_id, payload), content, payload.success !== true));
    }
    if (type === STATUS) [told, word] = [payload, payload.status];
    if (type === STEP_STARTED) giveUpBefore(step);
    if (type === STEP_COMPLETED) giveUpBefore(step + 1);
    if (type === STATUS && word !== "processing") giveUpBefore(Infinity);
  }
  if (isOver) giveUpBefore(Infinity);
  for (const [block, child] of children) {
    block.children.push(...view(fold, child, block.state !== "running", new Set()).shown);
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
  if (word === "processing") return step ? `Working: step ${step}` : "Working";
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
  const shown = (value) => clipped(isText(value) ? `'${value}'` : JSON.stringify(value));
  const entries = isObject(args) ? Object.entries(args).slice(0, 3) : [];
  return entries.map(([name, value]) => `${clipped(name)}: ${shown(value)}`).join(", ");
}
