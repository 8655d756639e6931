/** The first section of the page: why the execution stopped, as `stepwell why` prints it. */

import { revealed } from "../hidden_text.js";
import { html } from "../html.js";
import { CopyButton } from "../markdown_copy.js";
import { Votes } from "./decision.js";
import { isRunning, statusLook } from "./formats.js";

export const StatusBadge = ({ status }) => {
  const { word, tone, sign } = statusLook(status);
  return html`<span class="x-badge" data-tone=${tone} data-status=${status}><span aria-hidden="true">${
    sign}</span> ${word}</span>`;
};

/** The line of the text that begins with a word: numbers are shown as the command line does. */
const lineOf = (text, start) =>
  text.split("\n").map((line) => line.trim()).find((line) => line.startsWith(start)) ?? null;

const gone = { text: "", headline: "", votes: [], waits_for: [], numbers: {} };

const Waits = ({ waits, sessionId }) => {
  if (waits.length === 0) return null;
  const wantsAnswer = waits.some((one) => one.kind !== "budget");
  return html`<div class="x-waits">
    <ul>${waits.map((one) => html`<li key=${one.call_id ?? one.kind}>Waits for ${revealed(one.call_id || one.kind)}: ${revealed(one.prompt)}</li>`)}</ul>
    ${wantsAnswer && sessionId && html`<a class="x-button x-primary" href=${`#/s/${encodeURIComponent(sessionId)}`}
      >Answer in the conversation</a>`}
  </div>`;
};

const Decided = ({ stop }) => {
  if (!stop.why) return null;
  return html`<p class="x-why">${stop.decided_by
    ? html`Decided by <strong>${revealed(stop.decided_by)}</strong>: ${revealed(stop.why)}`
    : revealed(stop.why)}</p>`;
};

/** @param {{trace: object}} props */
export const Stop = ({ trace }) => {
  const stop = { ...gone, text: trace.explanation ?? "", ...trace.stop };
  const { execution } = trace;
  const numbers = lineOf(stop.text, "Numbers: ");
  const delay = lineOf(stop.text, "The next step waits ");
  return html`<section class="x-stop" data-stop data-reason=${stop.reason ?? ""}
      data-tone=${statusLook(execution.status).tone} aria-labelledby="x-headline">
    <div class="x-row x-stop-top">
      <${StatusBadge} status=${execution.status} />
      ${isRunning(execution.status) && html`<span class="x-live" role="status">updates automatically</span>`}
    </div>
    <h1 id="x-headline">${revealed(stop.headline || stop.text)}</h1>
    <${Decided} stop=${stop} />
    ${numbers && html`<p class="x-numbers-line">${revealed(numbers)}</p>`}
    ${delay && html`<p>${delay}</p>`}
    ${stop.hint && html`<p class="x-hint"><strong>What to change:</strong> ${revealed(stop.hint)}</p>`}
    <${Waits} waits=${stop.waits_for} sessionId=${execution.session_id} />
    ${stop.votes.length > 0 && html`<h2>Every vote of the last decision</h2>
      <${Votes} votes=${stop.votes} label="Every vote of the last decision" />`}
    <p class="x-row x-cli"><${CopyButton} text=${stop.text} label="Copy as text" what="the explanation, as stepwell why prints it" />
      <span class="x-muted">Same text on the command line: <code>stepwell why ${execution.id}</code>, with this server's <code>--db</code></span></p>
  </section>`;
};
