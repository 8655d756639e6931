/** A button that copies a text, and says that it did. */

import { html, useEffect, useState } from "./html.js";

const SHOWN_FOR_MS = 2_000;

/** Puts a text on the clipboard; false if the browser does not let us. */
export const copyText = async (text) => {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Without TLS there is no clipboard object, but the old way still works.
    return copyBySelection(text);
  }
};

const copyBySelection = (text) => {
  const field = document.createElement("textarea");
  field.value = text;
  field.className = "md-copy-field";
  field.setAttribute("aria-hidden", "true");
  document.body.append(field);
  const focused = document.activeElement;
  field.select();
  const isCopied = document.execCommand("copy");
  field.remove();
  focused?.focus?.();
  return isCopied;
};

/** @param {{text: string | (() => string), label?: string, what?: string}} props */
export const CopyButton = ({ text, label = "Copy", what = "", ...rest }) => {
  const [said, setSaid] = useState("");
  useEffect(() => {
    if (said === "") return undefined;
    const timer = setTimeout(() => setSaid(""), SHOWN_FOR_MS);
    return () => clearTimeout(timer);
  }, [said]);
  const copy = async () => {
    const isCopied = await copyText(typeof text === "function" ? text() : text);
    setSaid(isCopied ? "Copied" : "Could not copy");
  };
  return html`<button type="button" class="md-copy" onClick=${copy} ...${rest}>
    ${label}${what && html`<span class="md-unseen"> ${what}</span>`}
    <span class="md-copied" role="status">${said}</span>
  </button>`;
};
