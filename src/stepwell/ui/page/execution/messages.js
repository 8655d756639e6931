/** The session messages of this execution. */

import { withFewMarks } from "../hidden_text.js";
import { html, useState } from "../html.js";
import { Markdown } from "../markdown.js";
import { counted } from "../words.js";
import { LongText, usePages } from "./folding.js";
import { moment } from "./formats.js";
import { Nothing } from "./notes.js";

const PER_PAGE = 100;
const NAMES = { user: "User", assistant: "Assistant", tool: "Tool", info: "Info", notification: "Notification" };
const isChatter = (message) => message.role === "info" || message.role === "notification";

const Content = ({ message }) => {
  if (message.role === "assistant") return html`<${Markdown} text=${message.content ?? ""} isWhole=${true} level=${3} />`;
  if ((message.content ?? "").length > 600) return html`<${LongText} text=${message.content} label="Message" />`;
  return html`<p class="x-said">${withFewMarks(message.content ?? "")}</p>`;
};

/** @param {{messages: object[]}} props */
export const Messages = ({ messages }) => {
  const [hasChatter, setChatter] = useState(false);
  const chatter = messages.filter(isChatter).length;
  const fitting = hasChatter ? messages : messages.filter((message) => !isChatter(message));
  const { shown, bar } = usePages(fitting, PER_PAGE);
  return html`<section aria-labelledby="x-messages">
    <h2 id="x-messages">Messages</h2>
    ${chatter > 0 && html`<label class="x-check"><input type="checkbox" checked=${hasChatter}
      onChange=${(event) => setChatter(event.currentTarget.checked)} /> Show ${
      counted(chatter, "note")} on how it went</label>`}
    ${fitting.length === 0 && html`<${Nothing}>This execution has no messages.<//>`}
    ${bar}
    <ol class="x-messages">${shown.map((message) => html`<li key=${message.id} data-role=${message.role}>
      <p class="x-message-head"><strong>${NAMES[message.role] ?? message.role}</strong>
        <time class="x-muted" datetime=${message.created_at}>${moment(message.created_at)}</time></p>
      <${Content} message=${message} /></li>`)}</ol>
  </section>`;
};
