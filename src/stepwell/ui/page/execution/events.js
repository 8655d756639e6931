/** The events of an execution as they were told, one after the other. */

import { stream } from "../api.js";
import { revealed } from "../hidden_text.js";
import { html, useEffect, useId, useMemo, useRef, useState } from "../html.js";
import { newParser } from "../sse.js";
import { counted } from "../words.js";
import { JsonText, usePages } from "./folding.js";
import { shortValue } from "./formats.js";
import { Failure, Nothing } from "./notes.js";
import { useSeen } from "./seen.js";

const PER_PAGE = 100;
const MOST = 20_000;
// Events come in bursts: the page is drawn for a burst, not for each.
const BURST_MS = 200;

const parsed = (data) => {
  try {
    return JSON.parse(data);
  } catch {
    return null;
  }
};

/** Reads the log behind a number until it ends or is aborted. */
const readLog = async (path, abort, hear) => {
  const response = await stream(path, {}, abort);
  let events = [];
  const take = newParser((event) => events.push(parsed(event.data)));
  const decoder = new TextDecoder();
  const reader = response.body.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    events = [];
    take(decoder.decode(value, { stream: true }));
    if (!hear(events.filter((event) => event !== null))) return;
  }
};

const useEvents = (execution, isWanted) => {
  const [state, setState] = useState({ events: [], problem: null, isCut: false, isEnded: false });
  const held = useRef([]);
  useEffect(() => {
    if (!isWanted || !execution.session_id) return undefined;
    held.current = [];
    const abort = new AbortController();
    let timer = null;
    const show = (more = {}) => {
      clearTimeout(timer);
      timer = null;
      setState((before) => ({ ...before, problem: null, ...more, events: held.current.slice() }));
    };
    const hear = (events) => {
      held.current.push(...events.filter((event) => event.execution_id === execution.id));
      if (held.current.length >= MOST) {
        held.current.length = MOST;
        show({ isCut: true });
        abort.abort();
        return false;
      }
      timer ??= setTimeout(show, BURST_MS);
      return true;
    };
    const first = Math.max(0, (execution.metadata?.first_seq ?? 1) - 1);
    const path = `agent/sessions/${encodeURIComponent(execution.session_id)}/events?after=${first}&execution=${encodeURIComponent(execution.id)}`;
    readLog(path, abort.signal, hear).then(
      () => show({ isEnded: true }),
      (problem) => abort.signal.aborted || show({ problem }),
    );
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [execution.id, execution.session_id, isWanted]);
  return state;
};

/** What an event is about, in a few words. */
const gist = ({ payload = {} }) =>
  shortValue(payload.content ?? payload.args_summary ?? payload.tool_name ?? payload.status ?? "", 80);

const EventRow = ({ event }) => {
  const [isOpen, setOpen] = useState(false);
  return html`<li data-event=${event.seq}><details class="x-event" onToggle=${(toggled) => setOpen(toggled.currentTarget.open)}>
    <summary><span class="x-seq">${event.seq}</span> <code>${event.type}</code>
      <span class="x-muted x-clip">${event.timestamp?.slice(11, 23)} ${revealed(gist(event))}</span></summary>
    ${isOpen && html`<${JsonText} value=${event} label=${`Event ${event.seq}`} />`}
  </details></li>`;
};

const typesOf = (events) => {
  const counts = new Map();
  for (const event of events) counts.set(event.type, (counts.get(event.type) ?? 0) + 1);
  return [...counts].sort(([one], [other]) => (one < other ? -1 : 1));
};

/** @param {{execution: object}} props */
export const Events = ({ execution }) => {
  const { place, isSeen } = useSeen();
  const { events, problem, isCut } = useEvents(execution, isSeen);
  const [type, setType] = useState("");
  const types = useMemo(() => typesOf(events), [events]);
  const fitting = useMemo(() => (type === "" ? events : events.filter((event) => event.type === type)), [events, type]);
  const { shown, bar } = usePages(fitting, PER_PAGE);
  const id = useId();
  return html`<section aria-labelledby="x-events" ref=${place}>
    <h2 id="x-events">Raw events</h2>
    ${!execution.session_id && html`<${Nothing}>Events are told in the conversation of the execution that started this one.<//>`}
    ${problem && html`<${Failure} problem=${problem} />`}
    ${events.length > 0 && html`<p class="x-row"><label for=${id}>Type <select id=${id} value=${type}
        onChange=${(event) => setType(event.currentTarget.value)}><option value="">all (${events.length})</option>
        ${types.map(([name, number]) => html`<option key=${name} value=${name}>${name} (${number})</option>`)}</select></label>
      <span class="x-muted" role="status">${counted(fitting.length, "event")}${isCut && `; only the first ${MOST} are shown`}</span></p>`}
    ${bar}
    <ol class="x-plain x-events">${shown.map((event) => html`<${EventRow} key=${event.seq} event=${event} />`)}</ol>
  </section>`;
};
