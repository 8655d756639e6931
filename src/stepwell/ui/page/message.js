/** One row of the thread each: what was said, done, and how an execution ended. */

import { revealed, withFewMarks } from "./hidden_text.js";
import { Icon } from "./icons.js";
import { html, useState } from "./html.js";
import { Markdown } from "./markdown.js";
import { ToolBlock } from "./tool_block.js";
import { counted } from "./words.js";

const UserMessage = ({ message, tag }) => html`
  <div class="row user" data-role="user" data-id=${message.id}><div class="bubble" dir="auto">
    <span class="sr-only" dir="ltr">You said: </span>${withFewMarks(message.content)}
    ${tag && html`<span class="tag">${tag}</span>`}
  </div></div>`;

const AssistantMessage = ({ message }) => html`
  <div class="row assistant" data-role="assistant" data-id=${message.id} data-incomplete=${message.incomplete || undefined} aria-busy=${message.incomplete ? "true" : undefined}>
    <span class="sr-only">Assistant: </span>
    <div class="answer"><${Markdown} text=${message.content} isWhole=${!message.incomplete} /></div>
  </div>`;

/** A status that is not folded: work under way, or an end that was no plain completion. */
const StatusMessage = ({ message, execution }) => {
  const isWorking = message.id.endsWith(":status") && /^Working/.test(message.content);
  if (isWorking) {
    return html`<div class="row status working" data-role="status" data-id=${message.id}><span class="dots" aria-hidden="true"><i></i><i></i><i></i></span>${message.content}</div>`;
  }
  // An explanation says what happened, then why, then how it came to that.
  const [first, why, ...rest] = message.content.split("\n");
  return html`
    <div class=${`row status stop ${message.error ? "bad" : ""}`} data-role="status" data-id=${message.id}>
      <${Icon} name="alert" />
      <div>
        <p class="headline">${revealed(first)}</p>
        ${why && html`<p class="why">${revealed(why.trim())}</p>`}
        ${rest.length > 0 && html`<details><summary>Show the rest</summary><pre>${revealed(rest.join("\n"))}</pre></details>`}
        ${execution && html`<a href=${`#/x/${execution}`}>Why it stopped</a>`}
      </div>
    </div>`;
};

const ROWS = { user: UserMessage, assistant: AssistantMessage, tool: ToolBlock, status: StatusMessage };

/** Vnodes by message: the same message is the same vnode, which is not looked at again. */
const drawn = new WeakMap();
const ends = new Map();
const MOST_ENDS = 5000;

export function rowOf(row, tag = "") {
  if (row.kind === "end") return endOf(row);
  if (row.kind === "origin") return html`<${OriginRow} key=${row.key} origin=${row.origin} />`;
  const old = drawn.get(row.message);
  if (old?.key === row.key && old.tag === tag) return old.vnode;
  const vnode = html`<${ROWS[row.kind]} key=${row.key} message=${row.message} execution=${row.execution} tag=${tag} />`;
  drawn.set(row.message, { key: row.key, tag, vnode });
  return vnode;
}

function endOf({ key, execution, details, hasStatus }) {
  const old = ends.get(key);
  const isSame = old?.hasStatus === hasStatus && old.details.length === details.length && details.every((one, place) => one === old.details[place]);
  if (isSame) return old.vnode;
  if (ends.size > MOST_ENDS) ends.clear();
  const vnode = html`<${EndRow} key=${key} execution=${execution} details=${details} hasStatus=${hasStatus} />`;
  ends.set(key, { details, hasStatus, vnode });
  return vnode;
}

/** Where a fork starts: the original execution has what was done until then. */
const OriginRow = ({ origin }) => html`
  <p class="row origin" data-origin=${origin.execution_id}>
    Begins with what was known after step ${origin.step_number} of <a href=${`#/x/${encodeURIComponent(origin.execution_id)}`}>an earlier execution</a>
  </p>`;

/** The end of an execution: why, and the messages that are folded away. */
const EndRow = ({ execution, details, hasStatus }) => {
  const [isOpen, setOpen] = useState(false);
  return html`
    <div class="row end" data-end=${execution}>
      ${!hasStatus && html`<a class="quiet" href=${`#/x/${execution}`}>Why it stopped</a>`}
      ${details.length > 0 && html`
        <button type="button" class="link quiet" aria-expanded=${String(isOpen)} onClick=${() => setOpen(!isOpen)}>
          <${Icon} name="chevron" />${counted(details.length, "detail")}
        </button>`}
      ${isOpen && html`<ul class="details">${details.map((one) => html`<li key=${one.id}>${revealed(one.content)}</li>`)}</ul>`}
    </div>`;
};
