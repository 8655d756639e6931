/** The raw events of an execution, in order. */

import { HOPELESS, Problem, stream } from "../api.js";
import { parse } from "../exact_json.js";
import { revealed } from "../hidden_text.js";
import { html, useEffect, useId, useMemo, useRef, useState } from "../html.js";
import { newParser } from "../sse.js";
import { counted } from "../words.js";
import { JsonText, usePages } from "./folding.js";
import { isOpen, shortValue } from "./formats.js";
import { Failure, Nothing } from "./notes.js";
import { useSeen } from "./seen.js";

const PER_PAGE = 100;
const MOST = 20_000;
// Events come in bursts: the page is drawn for a burst, not for each.
const BURST_MS = 200;
const [FIRST_WAIT, LONGEST_WAIT] = [500, 10_000];

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

const parsed = (data) => {
  try {
    return parse(data);
  } catch {
    return null;
  }
};

/** Reads the log from a path until it ends or breaks, or until `hear` has enough. */
const readLog = async (path, abort, hear) => {
  const response = await stream(path, {}, abort);
  hear([]); // the line is there, even while nothing happens
  let events = [];
  const take = newParser((event) => events.push(parsed(event.data)));
  const decoder = new TextDecoder();
  const reader = response.body.getReader();
  for (;;) {
    const { done, value } = await nextOf(reader);
    if (done) return;
    events = [];
    take(decoder.decode(value, { stream: true }));
    hear(events.filter((event) => event !== null));
  }
};

/** What the browser says of a line that breaks is no sentence for people. */
const nextOf = (reader) =>
  reader.read().catch(() => Promise.reject(new Problem(0, "line_broke", "The connection to the server was lost.")));

/** Reads the log until the execution is over; a line that breaks is taken up again behind the last
 * event that came, and so is one that ends before: a server that stops in good order ends it too. */
const followLog = async (pathAfter, first, abort, { hear, onBroken, isOver }) => {
  let [last, failures] = [first, 0];
  const hearOn = (events) => {
    failures = 0;
    last = Math.max(last, ...events.map(({ seq }) => seq ?? 0));
    hear(events);
  };
  for (;;) {
    const wasOver = isOver();
    let atLeast = 0;
    try {
      await readLog(pathAfter(last), abort, hearOn);
      if (wasOver) return;
    } catch (problem) {
      if (abort.aborted) return;
      if (!(problem instanceof Problem) || HOPELESS.includes(problem.status)) throw problem;
      atLeast = (problem.retryAfter || 0) * 1000;
      onBroken();
    }
    await pause(Math.max(atLeast, Math.min(LONGEST_WAIT, FIRST_WAIT * 2 ** failures++)));
    if (abort.aborted) return;
  }
};

const useEvents = (execution, isWanted) => {
  const [state, setState] = useState({ events: [], problem: null, isCut: false, isBroken: false });
  const held = useRef([]);
  const isOver = useRef(false);
  isOver.current = !isOpen(execution.status);
  useEffect(() => {
    if (!isWanted || !execution.session_id) return undefined;
    held.current = [];
    const abort = new AbortController();
    let timer = null;
    const show = (more = {}) => {
      clearTimeout(timer);
      timer = null;
      setState((before) => ({ ...before, problem: null, isBroken: false, ...more, events: held.current.slice() }));
    };
    const hear = (events) => {
      held.current.push(...events.filter((event) => event.execution_id === execution.id));
      if (held.current.length >= MOST) {
        held.current.length = MOST;
        show({ isCut: true });
        abort.abort();
      } else {
        timer ??= setTimeout(show, BURST_MS);
      }
    };
    const first = Math.max(0, (execution.metadata?.first_seq ?? 1) - 1);
    const path = `agent/sessions/${encodeURIComponent(execution.session_id)}/events?execution=${encodeURIComponent(execution.id)}`;
    const hearer = { hear, onBroken: () => show({ isBroken: true }), isOver: () => isOver.current };
    followLog((last) => `${path}&after=${last}`, first, abort.signal, hearer)
      .catch((problem) => abort.signal.aborted || show({ problem }));
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
  const { events, problem, isCut, isBroken } = useEvents(execution, isSeen);
  const [type, setType] = useState("");
  const types = useMemo(() => typesOf(events), [events]);
  const fitting = useMemo(() => (type === "" ? events : events.filter((event) => event.type === type)), [events, type]);
  const { shown, bar } = usePages(fitting, PER_PAGE);
  const id = useId();
  return html`<section aria-labelledby="x-events" ref=${place}>
    <h2 id="x-events">Raw events</h2>
    ${!execution.session_id && html`<${Nothing}>Events are shown in the conversation of the parent execution.<//>`}
    ${problem && html`<${Failure} problem=${problem} />`}
    ${isBroken && html`<${Nothing}><span role="status">Connection lost. Reconnecting…</span><//>`}
    ${events.length > 0 && html`<p class="x-row"><label for=${id}>Type <select id=${id} value=${type}
        onChange=${(event) => setType(event.currentTarget.value)}><option value="">all (${events.length})</option>
        ${types.map(([name, number]) => html`<option key=${name} value=${name}>${name} (${number})</option>`)}</select></label>
      <span class="x-muted" role="status">${counted(fitting.length, "event")}${isCut && `; only the first ${MOST} are shown`}</span></p>`}
    ${bar}
    <ol class="x-plain x-events">${shown.map((event) => html`<${EventRow} key=${event.seq} event=${event} />`)}</ol>
  </section>`;
};
