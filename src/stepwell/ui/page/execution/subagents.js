/** The executions that this one started, and those that they started. */

import { revealed } from "../hidden_text.js";
import { html } from "../html.js";
import { counted } from "../words.js";
import { duration, money, secondsBetween, tokens } from "./formats.js";
import { Nothing } from "./notes.js";
import { StatusBadge } from "./stop.js";

const Node = ({ child }) => html`<li data-subagent=${child.id}>
  <p class="x-row"><a href=${`#/x/${encodeURIComponent(child.id)}`}>${child.agent_type ?? child.id}</a>
    <${StatusBadge} status=${child.status} />
    <span class="x-muted">${counted(child.step_count ?? 0, "step")} · ${duration(secondsBetween(child.started_at, child.completed_at))} · ${
      tokens(child.token_usage, null)} · ${money(child.cost)}${child.stop_reason && ` · ${child.stop_reason}`}</span></p>
  ${child.error_message && html`<p class="x-bad">${revealed(child.error_message)}</p>`}
  ${child.subagents?.length > 0 && html`<${Tree} subagents=${child.subagents} />`}
</li>`;

const Tree = ({ subagents }) => html`<ul class="x-tree">${subagents.map((child) =>
  html`<${Node} key=${child.id} child=${child} />`)}</ul>`;

/** @param {{subagents: object[]}} props */
export const Subagents = ({ subagents }) => html`<section aria-labelledby="x-subagents">
  <h2 id="x-subagents">Subagents</h2>
  ${subagents.length === 0 ? html`<${Nothing}>No subagents.<//>` : html`<${Tree} subagents=${subagents} />`}
</section>`;
