/** Where messages are written. What was typed is kept until the server has it. */

import { Icon } from "./icons.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "./html.js";

const draftName = (id) => `stepwell.draft.${id}`;

export const draftOf = (id) => sessionStorage.getItem(draftName(id)) ?? "";

export function keepDraft(id, text) {
  try {
    if (text) sessionStorage.setItem(draftName(id), text);
    else sessionStorage.removeItem(draftName(id));
  } catch {
    // Full: then it is kept by the field alone.
  }
}

/** By which the server knows a send that is repeated. Without TLS there is no randomUUID. */
export const newKey = () => crypto.randomUUID?.() ?? [...crypto.getRandomValues(new Uint32Array(4))].join("-");

/** What to do about a message that was not sent. */
function advice({ status, code, detail, retryAfter }) {
  if (status === 0) return `${detail} Your text is kept. You can send it again; it is not sent twice.`;
  if (status === 429) return `${detail} Wait ${retryAfter || "a few"} seconds and send it again.`;
  if (code === "busy" || status === 409) return `${detail} Your text is kept.`;
  return detail;
}

/** Messages are sent one after the other; `isFirst` is for one that begins a session, behind which none
 * can be sent.
 * @param {{id: string, onSend: (text: string, key: string) => Promise<void>, onCancel: (() => void) | null,
 *   hint: string, isFocused: boolean, placeholder: string}} given */
export const Composer = ({ id, onSend, onCancel = null, hint = "", isFocused = true, placeholder = "Write a message", isFirst = false }) => {
  const field = useRef(null);
  const failed = useRef(null);
  const before = useRef(Promise.resolve());
  const [text, setText] = useState(draftOf(id));
  const [problem, setProblem] = useState("");
  const [isSending, setSending] = useState(false);

  const write = (next) => {
    setText(next);
    keepDraft(id, next);
  };
  useEffect(() => {
    if (isFocused && matchMedia("(hover: hover)").matches) field.current?.focus();
  }, [id]);
  useLayoutEffect(() => {
    const area = field.current;
    area.style.height = "auto";
    area.style.height = `${Math.min(area.scrollHeight, 240)}px`;
  }, [text]);

  const deliver = async (content, key) => {
    try {
      await onSend(content, key);
    } catch (error) {
      failed.current = { content, key };
      setProblem(error.detail ? advice(error) : String(error));
      write([content, field.current?.value].filter(Boolean).join("\n\n"));
    }
  };
  const send = () => {
    const content = text.trim();
    if (!content || (isFirst && isSending)) return;
    // The same text after a failure is the same send: the server takes it once.
    const key = failed.current?.content === content ? failed.current.key : newKey();
    failed.current = null;
    setSending(true);
    setProblem("");
    write("");
    const own = (before.current = before.current.then(() => deliver(content, key)));
    void own.then(() => before.current === own && setSending(false));
    field.current?.focus();
  };
  const onKeyDown = (event) => {
    // Enter and Esc choose and leave what an input method offers, such as Chinese characters.
    if (event.isComposing) return;
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      send();
    }
    if (event.key === "Escape" && onCancel) {
      event.preventDefault();
      event.stopPropagation();
      onCancel();
    }
  };
  const submit = (event) => {
    event.preventDefault();
    send();
  };
  return html`
    <form class="composer" onSubmit=${submit} aria-label="Message">
      ${problem && html`<p class="problem" role="alert"><${Icon} name="alert" /><span><b>Not sent.</b> ${problem}</span></p>`}
      <div class="composer-box">
        <textarea ref=${field} rows="1" dir="auto" value=${text} placeholder=${placeholder} aria-label="Message" aria-describedby="composer-hint"
          onInput=${(event) => write(event.currentTarget.value)} onKeyDown=${onKeyDown}></textarea>
        ${onCancel && html`<button type="button" class="round danger" onClick=${onCancel} title="Cancel (Esc)" aria-label="Cancel"><${Icon} name="stop" /></button>`}
        <button type="submit" class="round primary" disabled=${!text.trim() || (isFirst && isSending)} title=${text.trim() ? "Send (Enter)" : "Write something first"} aria-label="Send"><${Icon} name="send" /></button>
      </div>
      <p class="hint" id="composer-hint">${hint || "Press Enter to send, Shift+Enter for a new line."}</p>
    </form>`;
};
