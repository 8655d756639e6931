/** A tool call as one line; unfolded it shows the whole arguments and result, fetched once. */

import { get } from "./api.js";
import { revealed, revealedText } from "./hidden_text.js";
import { Icon } from "./icons.js";
import { html, signal, useEffect, useRef, useState } from "./html.js";
import { Markdown } from "./markdown.js";
import { clipped, counted, shownArguments, shownValue, span } from "./words.js";

const SPAWNS = "spawn_subagent";
const WORDS = {
  running: "running", waiting: "waiting for you", done: "done", failed: "failed", blocked: "not allowed", unknown: "outcome unknown",
};
const ICONS = { done: "check", failed: "cross", blocked: "blocked", waiting: "pause", unknown: "question" };

const OVER = ["done", "failed", "blocked"];
// A step whose other calls take minutes is stored late, and one that was cut off may never be.
const [FIRST_LOOK, SLOWEST_LOOK, MOST_LOOKS] = [300, 10_000, 40];

/** The result of a call that did not run, for the model: people need only the reason. */
const BLOCKED = "Error: Blocked: ";
const DENIED = `${BLOCKED}a person denied this call`;

const wordOf = ({ state, content }) => (state === "blocked" && content.startsWith(DENIED) ? "denied" : WORDS[state]);

const reasonOf = ({ state, content }) => {
  if (state !== "blocked" || !content.startsWith(BLOCKED)) return content;
  const reason = content.slice(BLOCKED.length);
  return reason.slice(0, 1).toUpperCase() + reason.slice(1);
};

/** The calls of executions, as far as they were fetched. */
const fetched = new Map();

function callsOf(execution) {
  if (!fetched.has(execution)) fetched.set(execution, signal({ isLoading: false, calls: [], problem: null }));
  return fetched.get(execution);
}

/** The call of that id which began in that step: a model may use an id again in a later one. One that
 * waited has its result in a later step. */
function findCall(calls, id, step) {
  const fitting = calls.filter((one) => one.call_id === id && (step === null || one.step >= step));
  return fitting.find(({ outcome }) => outcome !== "pending") ?? fitting.at(-1);
}

/** Fetches the steps of an execution, unless the call is known: one that runs has more of them later,
 * and what a call that waits gives is known when it is answered. */
async function wantCall(execution, id, step) {
  const known = callsOf(execution);
  const call = findCall(known.peek().calls, id, step);
  if (known.peek().isLoading || (call && call.outcome !== "pending" && !call.isCut)) return;
  known.value = { ...known.peek(), isLoading: true, problem: null };
  try {
    const calls = await readCalls(`agent/executions/${encodeURIComponent(execution)}/steps`, id, step);
    known.value = { isLoading: false, calls, problem: null };
  } catch (problem) {
    known.value = { ...known.peek(), isLoading: false, problem };
  }
}

/** The calls of all steps, which come in parts; the step of the wanted one is read whole. */
async function readCalls(path, id, step) {
  const steps = [];
  for (let after = 0; after !== null;) {
    const part = await get(`${path}?limit=200&after=${after}`);
    steps.push(...part.items);
    after = part.next ?? null;
  }
  const wanted = findCall(steps.flatMap(callsIn), id, step);
  if (!wanted?.isCut) return steps.flatMap(callsIn);
  const whole = await get(`${path}/${wanted.step}`);
  return steps.map((one) => (one.number === wanted.step ? whole : one)).flatMap(callsIn);
}

const callsIn = ({ number, truncated = false, tool_executions: calls }) =>
  (calls ?? []).map((one) => ({ ...one, step: number, isCut: truncated }));

export const ToolBlock = ({ message }) => {
  const [isOpen, setOpen] = useState(false);
  const { name, summary, state, duration_ms: time, content, children } = message;
  const isSettled = state === "done" || state === "failed";
  return html`
    <div class=${`row tool ${state}`} data-role="tool" data-id=${message.id} data-tool=${name} data-state=${state}>
      <details onToggle=${(event) => setOpen(event.currentTarget.open)}>
      <summary class="tool-line">
        <${Icon} name="chevron" />
        <span class="tool-name">${revealed(name || "tool")}</span>
        <span class="tool-summary">${revealed(summary)}</span>
        <span class="tool-state">
          ${ICONS[state] ? html`<${Icon} name=${ICONS[state]} />` : html`<span class="spinner" aria-hidden="true"></span>`}
          <span class=${state === "done" ? "sr-only" : ""}>${wordOf(message)}</span>
          ${isSettled && time !== null && html`<span class="tool-time">${span(time)}</span>`}
        </span>
      </summary>
      ${isOpen && html`<${Whole} message=${message} />`}
      </details>
      ${!isOpen && message.error && content && html`<p class="tool-error">${revealed(clipped(reasonOf(message), 300))}</p>`}
      ${children.length > 0 && html`
        <div class="children" role="group" aria-label=${revealedText(`Messages of the subagent of ${name}`)}>
          ${children.map((child, place) => html`<${Child} key=${`${child.role} ${child.id} ${place}`} message=${child} />`)}
        </div>`}
    </div>`;
};

const Child = ({ message }) => {
  if (message.role === "tool") return html`<${ToolBlock} message=${message} />`;
  if (message.role === "assistant") {
    return html`<div class="row assistant" data-role="assistant" data-id=${message.id}><div class="answer"><${Markdown} text=${message.content} isWhole=${!message.incomplete} /></div></div>`;
  }
  return html`<div class=${`row status ${message.error ? "bad" : ""}`} data-role="status" data-id=${message.id}>${revealed(message.content)}</div>`;
};

const Whole = ({ message }) => {
  const { id, content, execution, step, state, name, children } = message;
  // The end of a call is published before its step is stored.
  const looks = useRef(0);
  useEffect(() => {
    if (execution) void wantCall(execution, id, step);
  }, [execution, id, step, state]);
  const { isLoading, calls, problem } = callsOf(execution).value;
  const call = findCall(calls, id, step);
  const isBehind = OVER.includes(state) && (!call || call.outcome === "pending") && !isLoading && !problem;
  useEffect(() => {
    if (!execution || !isBehind || looks.current === MOST_LOOKS) return undefined;
    const timer = setTimeout(() => wantCall(execution, id, step), Math.min(SLOWEST_LOOK, FIRST_LOOK * 2 ** looks.current++));
    return () => clearTimeout(timer);
  }, [execution, id, step, isBehind]);
  if (!call) {
    return html`<div class="whole">
      ${content && html`<${Part} title="Result (shortened)" text=${content} />`}
      <p class="quiet">
        ${isLoading ? "Fetching arguments and result…" : problem ? `Could not load everything: ${problem.detail}` : "Complete arguments and result are available when the step is done."}
      </p></div>`;
  }
  const error = call.error && (call.error.message ? `${call.error.exception ?? "Error"}: ${call.error.message}` : shownValue(call.error));
  return html`<div class="whole">
    <${Part} title="Arguments" text=${shownArguments(call.arguments)} label=${name} data-arguments />
    ${error && html`<${Part} title="Error" text=${error} label=${name} isBad />`}
    <${Part} title=${error ? "What the model sees" : "Result"} text=${shownValue(call.result)} label=${name} data-result />
    ${name === SPAWNS && children.length === 0 && html`<${Subagents} execution=${execution} prompt=${call.arguments?.prompt} />`}
    <p><a class="quiet" href=${`#/x/${execution}`}>The whole execution</a></p>
  </div>`;
};

/** Subagents are shown live only; later they have their own executions. */
const Subagents = ({ execution, prompt }) => {
  const [found, setFound] = useState([]);
  useEffect(() => {
    get(`agent/executions/${encodeURIComponent(execution)}/trace`).then(
      ({ subagents }) => setFound((subagents ?? []).filter(({ input }) => input?.prompt === prompt)),
      () => setFound([]), // the link to the whole execution is there all the same
    );
  }, [execution, prompt]);
  return found.map((one) => html`<p key=${one.id}><a href=${`#/x/${one.id}`}>What ${one.agent_type} did</a> <span class="quiet">(${one.status}, ${counted(one.step_count, "step")})</span></p>`);
};

export const Part = ({ title, text, label = "", isBad = false, ...data }) => html`
  <section class=${isBad ? "bad" : ""}>
    <p class="part-title">${title}</p>
    <pre tabindex="0" role="region" ...${data} aria-label=${revealedText(`${title} ${label}`.trim())}>${text === "" ? "(nothing)" : revealed(text)}</pre>
  </section>`;
