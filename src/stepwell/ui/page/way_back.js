/** The way back from the page of an execution: to its conversation, and to what started it. */

import { get } from "./api.js";
import { revealed } from "./hidden_text.js";
import { html, useEffect, useState } from "./html.js";
import { changed, sessions, shownExecution } from "./sessions.js";

/** The title of a session, which is fetched if the list does not have it; "" until it is known. */
export function useTitleOf(id) {
  const [found, setFound] = useState(null);
  const known = [changed.value, found].find((one) => one?.id === id) ?? sessions.value.find((one) => one.id === id);
  const isWanted = Boolean(id) && !known;
  useEffect(() => {
    // Without it the link is there all the same.
    if (isWanted) get(`agent/sessions/${encodeURIComponent(id)}`).then(setFound, () => null);
  }, [id, isWanted]);
  return known ? known.title || "Untitled conversation" : "";
}

export const WayBack = () => {
  const { session_id: session, parent_execution_id: parent } = shownExecution.value ?? {};
  const title = useTitleOf(session);
  return html`
    <nav class="thread-head way-back" aria-label="Breadcrumb">
      ${session && html`<a href=${`#/s/${encodeURIComponent(session)}`}><span aria-hidden="true">← </span>${revealed(title || "The conversation")}</a>`}
      ${parent && html`<a href=${`#/x/${encodeURIComponent(parent)}`}>${!session && html`<span aria-hidden="true">← </span>`}Parent execution</a>`}
      ${!session && !parent && html`<a href="#/"><span aria-hidden="true">← </span>New conversation</a>`}
    </nav>`;
};
