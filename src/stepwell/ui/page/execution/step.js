/** All that is known of one step. */

import { revealed } from "../hidden_text.js";
import { html } from "../html.js";
import { Markdown } from "../markdown.js";
import { ForkForm } from "./actions.js";
import { Votes, votesOf } from "./decision.js";
import { JsonText, LongText } from "./folding.js";
import { duration, moment, money, tokens } from "./formats.js";

const OUTCOMES = { completed: "done", raised: "failed", pending: "waiting for an answer", blocked: "not allowed" };

const isBlocked = (tool) => tool.outcome === "blocked";
const isBad = (tool) => !isBlocked(tool) && (tool.error !== null || !["completed", "pending"].includes(tool.outcome));
const toneOf = (tool) => (isBad(tool) ? "x-bad" : isBlocked(tool) ? "x-warn" : "x-muted");

const Tool = ({ tool }) => html`<li class="x-tool" data-bad=${isBad(tool)}>
  <h4><code>${revealed(tool.name)}</code> <span class=${toneOf(tool)}>${isBad(tool) && "✕ "}${
    OUTCOMES[tool.outcome] ?? tool.outcome} · ${duration(tool.duration_seconds)}</span></h4>
  <h5>Arguments</h5><${JsonText} value=${tool.arguments} label=${`Arguments of ${tool.name}`} />
  ${tool.error && html`<h5>Error</h5><${ErrorText} error=${tool.error} />`}
  ${tool.result && html`<h5>Result</h5><${LongText} text=${tool.result} label=${`Result of ${tool.name}`} />`}
  <p class="x-muted">Call ${revealed(tool.call_id)}${tool.usage?.total_tokens > 0 && `, ${tokens(tool.usage.total_tokens, tool.usage)}`}${
    tool.cost > 0 && `, ${money(tool.cost)}`}</p>
</li>`;

const wordsOf = (error) => {
  const more = [error.hook_name && `hook ${error.hook_name}`, error.kind, error.status && `HTTP ${error.status}`,
    error.request_id && `request ${error.request_id}`].filter(Boolean);
  return `${error.exception}: ${error.message}${more.length > 0 ? `\n(${more.join(", ")})` : ""}`;
};

const ErrorText = ({ error }) => html`<div class="x-error"><${LongText} text=${wordsOf(error)} label="Error" /></div>`;

/** Those that are not shown with their tool already. */
const OtherErrors = ({ step }) => {
  const shown = new Set(step.tool_executions.map((tool) => tool.error?.message));
  const others = step.errors.filter((error) => !shown.has(error.message));
  return others.length === 0 ? null : html`<h3>Errors</h3>${others.map((error, place) =>
    html`<${ErrorText} key=${place} error=${error} />`)}`;
};

const stopWords = (decision) => {
  const by = decision.resolved_by ? `, decided by ${decision.resolved_by}` : "";
  if (decision.should_continue) return `Continues${by}.`;
  return `It stops${decision.stop_reason ? ` (${decision.stop_reason})` : ""}${by}.`;
};

/** @param {{step: object, execution: object}} props */
export const StepDetail = ({ step, execution }) => html`<div class="x-detail">
  <p class="x-muted">${revealed(step.model ?? "model")} · ${moment(step.started_at)} · ${duration(step.duration_seconds)} · ${
    tokens(step.usage?.total_tokens, step.usage)} · ${money(step.cost)}${
    step.finish_reason && ` · finish reason ${step.finish_reason}`}</p>
  ${step.thinking && html`<details class="x-fold"><summary>Thinking</summary>
    <${LongText} text=${step.thinking} label="Thinking" /></details>`}
  ${step.text && html`<h3>Text</h3><${Markdown} text=${step.text} isWhole=${true} level=${4} />`}
  ${step.tool_executions.length > 0 && html`<h3>Tools</h3>
    <ul class="x-plain">${step.tool_executions.map((tool, place) => html`<${Tool} key=${place} tool=${tool} />`)}</ul>`}
  <${OtherErrors} step=${step} />
  <h3>Decision</h3>
  <p>${revealed(stopWords(step.decision))}</p>
  <${Votes} votes=${votesOf(step.decision)} label=${`Votes after step ${step.number}`} />
  ${!execution.parent_execution_id && html`<details class="x-fold"><summary>Fork from step ${step.number}</summary>
    <${ForkForm} execution=${execution} stepNumber=${step.number} /></details>`}
</div>`;
