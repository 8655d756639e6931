/** What the keys do, and the list of them. */

import { html, useEffect, useRef } from "./html.js";

const KEYS = [
  ["/", "Search conversations"], ["n", "New conversation"], ["↑ ↓", "Move in the list of conversations"], ["Enter", "Send, or open"],
  ["a", "Go to the open question; Alt+A while you write"],
  ["Shift+Enter", "New line"], ["Esc", "Cancel the execution (in the message field), close"], ["?", "Show this list"],
];

const isTyping = ({ tagName, isContentEditable }) => ["INPUT", "TEXTAREA", "SELECT"].includes(tagName) || isContentEditable;

/** Alt+A, or just "a" where nothing is written. With some keyboards Alt+A is a letter: then it is one
 * in a field that has text. */
const isForAnswer = ({ altKey, code, key, target }) => {
  if (!altKey) return key === "a" && !isTyping(target);
  return code === "KeyA" && (key.toLowerCase() === "a" || !isTyping(target) || !target.value);
};

/** Listens on the whole page; what it returns ends that. */
export function listenForKeys({ onSearch, onNew, onHelp, onEscape, onAnswer }) {
  const onKeyDown = (event) => {
    if (event.defaultPrevented || event.isComposing || event.ctrlKey || event.metaKey) return;
    // What a dialog covers is not to be used, by keys neither.
    if (document.querySelector("dialog[open]")) return;
    if (isForAnswer(event)) return void (onAnswer() && event.preventDefault());
    if (event.altKey) return;
    if (event.key === "Escape") return onEscape();
    if (isTyping(event.target)) return;
    const act = { "/": onSearch, n: onNew, "?": onHelp }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  };
  addEventListener("keydown", onKeyDown);
  return () => removeEventListener("keydown", onKeyDown);
}

export const Shortcuts = ({ onClose }) => {
  const dialog = useRef(null);
  useEffect(() => dialog.current.showModal(), []);
  return html`
    <dialog class="shortcuts" ref=${dialog} onClose=${onClose} aria-labelledby="shortcuts-title">
      <h2 id="shortcuts-title">Keyboard shortcuts</h2>
      <dl>${KEYS.map(([key, what]) => html`<div key=${key}><dt><kbd>${key}</kbd></dt><dd>${what}</dd></div>`)}</dl>
      <button type="button" onClick=${() => dialog.current.close()}>Close</button>
    </dialog>`;
};
