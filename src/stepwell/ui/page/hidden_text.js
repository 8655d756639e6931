/**
 * Characters that hide, made visible: what a person reads must be what is run, copied or opened.
 */

import { html } from "./html.js";

// Controls, soft hyphen, zero-width and bidirectional characters, fillers, tags: nothing to be seen
// of them, but they change what is seen or copied. Joiners and variation selectors between emoji
// and in scripts that need them are left alone.
const SELECTOR = "(?:[\\ufe00-\\ufe0f]|\\udb40[\\udd00-\\uddef])";
const HIDING = new RegExp(
  [
    "[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u00ad\\u034f\\u061c\\u180e\\u200b\\u200e\\u200f]",
    "[\\u2028-\\u202e\\u2060-\\u206f\\ufeff\\ufff9-\\ufffb]",
    "[\\u115f\\u1160\\u2800\\u3164\\uffa0]",
    "\\udb40[\\udc00-\\udc7f]",
    "(?<=[\\u0020-\\u007e])[\\u200c\\u200d]",
    "[\\u200c\\u200d](?=[\\u0020-\\u007e])",
    `(?<=[\\u0020-\\u007e]|${SELECTOR})${SELECTOR}(?!\\u20e3)`,
  ].join("|"),
  "g",
);

/** The text in parts: strings, and {code} for each character that hides: "U+202E". */
export const partsShowingHidden = (text) => {
  const parts = [];
  let end = 0;
  for (const found of text.matchAll(HIDING)) {
    if (found.index > end) parts.push(text.slice(end, found.index));
    const code = found[0].codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
    parts.push({ code: `U+${code}` });
    end = found.index + found[0].length;
  }
  if (end < text.length || parts.length === 0) parts.push(text.slice(end));
  return parts;
};

/** A value as JSON that people edit: characters that hide are escaped. They can only be in strings. */
export const editableJson = (value) =>
  JSON.stringify(value, null, 2).replace(HIDING, (found) =>
    found.split("").map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`).join(""));

/** The text to show: characters that hide as their names. */
export const revealed = (text) =>
  partsShowingHidden(String(text ?? "")).map((part) =>
    typeof part === "string"
      ? part
      : html`<span class="md-hidden" title="A character that can't be seen">⟨${part.code}⟩</span>`,
  );

/** The same where only text can stand, as in labels and titles. */
export const revealedText = (text) =>
  partsShowingHidden(String(text ?? "")).map((part) => part.code ? `⟨${part.code}⟩` : part).join("");
