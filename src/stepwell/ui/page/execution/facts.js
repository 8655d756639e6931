/** Who ran it, when, for how long, and what it used. */

import { revealed } from "../hidden_text.js";
import { html } from "../html.js";
import { counted, isScripted } from "../words.js";
import { duration, isOpen, moment, money, secondsBetween, takeover, tokens } from "./formats.js";

const modelsOf = (steps) => [...new Set(steps.map((step) => step.model).filter(Boolean))];

/** Every answer starts an attempt too: attempts are listed only if a worker was lost or shut down. */
const isTakenUp = ({ metadata }) => Boolean(metadata?.takeovers?.length || metadata?.stopped_attempts?.length);

const Attempts = ({ execution }) => {
  const takeovers = execution.metadata?.takeovers ?? [];
  const stopped = execution.metadata?.stopped_attempts ?? [];
  return html`${execution.attempt ?? 0}
    ${takeovers.length > 0 && html`<ul class="x-plain">${takeovers.map((entry, place) =>
      html`<li key=${place}>${takeover(entry)}</li>`)}</ul>`}
    ${stopped.length > 0 && html`<span class="x-muted"> · worker was shut down in ${
      counted(stopped.length, "attempt")}</span>`}`;
};

const Fact = ({ name, children }) => html`<div><dt>${name}</dt><dd>${children}</dd></div>`;

const link = (kind, id) => html`<a class="x-id" href=${`#/${kind}/${encodeURIComponent(id)}`}>${id}</a>`;

/** @param {{trace: object}} props */
export const Facts = ({ trace }) => {
  const { execution, steps } = trace;
  const models = modelsOf(steps);
  const end = isOpen(execution.status) ? execution.updated_at : execution.completed_at;
  const total = secondsBetween(execution.started_at, end);
  const model = execution.agent_config?.model;
  const shown = models.length > 0 ? models : [model].filter((name) => typeof name === "string");
  return html`<section aria-labelledby="x-facts">
    <h2 id="x-facts">Facts</h2>
    <dl class="x-facts">
      <${Fact} name="Agent">${execution.agent_type ?? "–"}<//>
      <${Fact} name="Model">${shown.length === 0 ? "–" : shown.map((name) => html`<span key=${name}>${revealed(name)}${
        isScripted(name) && html` <span class="x-badge" data-tone="info">scripted</span>`} </span>`)}<//>
      ${execution.session_id && html`<${Fact} name="Conversation">${link("s", execution.session_id)}<//>`}
      ${execution.parent_execution_id && html`<${Fact} name="Started by">${link("x", execution.parent_execution_id)}<//>`}
      <${Fact} name="Execution"><span class="x-id">${execution.id}</span><//>
      <${Fact} name="Queued"><time datetime=${execution.created_at}>${moment(execution.created_at)}</time><//>
      <${Fact} name="Started">${moment(execution.started_at)}<//>
      <${Fact} name="Ended">${moment(execution.completed_at)}<//>
      <${Fact} name="Took">${duration(total)}<//>
      <${Fact} name="Steps">${execution.step_count}<//>
      <${Fact} name="Tokens">${tokens(execution.token_usage, execution.token_details)}<//>
      <${Fact} name="Cost">${money(execution.cost)}<//>
      ${isTakenUp(execution) && html`<${Fact} name="Attempt"><${Attempts} execution=${execution} /><//>`}
      ${execution.error_message && html`<${Fact} name="Error"><span class="x-bad">${revealed(execution.error_message)}</span><//>`}
    </dl>
  </section>`;
};
