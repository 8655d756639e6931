/**
 * Characters that hide, made visible: what a person reads must be what is run, copied or opened.
 *
 * Hidden are controls, format characters (Cf), default ignorable code points, line separators,
 * noncharacters and a few blank symbols, wherever they stand; joiners, variation selectors and tags
 * except where a script or an emoji needs them. `text/hidden_characters.py` has the same rules: change both.
 */

import { html } from "./html.js";

const NONCHARACTERS = Array.from({ length: 17 }, (_, plane) =>
  `\\u{${plane.toString(16)}fffe}\\u{${plane.toString(16)}ffff}`).join("");
const HIDDEN =
  "\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\xad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f"
  + "\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\u2800\\u3164\\ufdd0-\\ufdef\\ufe00-\\ufe0f\\ufeff\\uffa0"
  + "\\ufff0-\\ufffb\\ud800-\\udfff\\u{13430}-\\u{13440}\\u{16fe4}\\u{1bca0}-\\u{1bca3}\\u{1d159}"
  + `\\u{1d173}-\\u{1d17a}\\u{e0000}-\\u{e0fff}${NONCHARACTERS}`;
const EMOJI =
  "\\xa9\\xae\\u203c\\u2049\\u2122\\u2139\\u2190-\\u21ff\\u2300-\\u23ff\\u2460-\\u24ff\\u25a0-\\u27bf"
  + "\\u2900-\\u297f\\u2b00-\\u2bff\\u3030\\u303d\\u3297\\u3299\\u{1f000}-\\u{1faff}";
const HAN = "\\u3400-\\u9fff\\uf900-\\ufaff\\u{20000}-\\u{3ffff}";
const JOINING =
  "\\u0620-\\u06ff\\u0710-\\u07ff\\u0840-\\u08ff\\u0900-\\u0dff\\u0f00-\\u109f\\u1780-\\u17b3\\u17b6-\\u17dd"
  + "\\u1820-\\u18aa\\u1900-\\u1aaf\\u1b00-\\u1bff\\ua800-\\ua8ff\\uaa00-\\uaa7f\\uabc0-\\uabff\\ufb50-\\ufdcf"
  + "\\ufdf0-\\ufdff\\ufe70-\\ufefc\\u{10a00}-\\u{10fff}\\u{11000}-\\u{11fff}";
// England, Scotland and Wales: the flags that are drawn as flags.
const FLAGS = ["gbeng", "gbsct", "gbwls"].map((region) =>
  `\\u{1f3f4}${[...region].map((letter) => `\\u{${(0xe0000 + letter.charCodeAt(0)).toString(16)}}`).join("")}\\u{e007f}`);
const NEEDED = [
  ...FLAGS,
  "[0-9#*]\\ufe0f\\u20e3",
  `[${EMOJI}][\\ufe0e\\ufe0f]`,
  `[${HAN}][\\ufe00-\\ufe02\\u{e0100}-\\u{e01ef}]`,
  "[\\u1820-\\u18aa][\\u180b-\\u180d\\u180f]",
  `(?<=[${EMOJI}\\ufe0f])\\u200d(?=[${EMOJI}])`,
  `(?<=[${JOINING}])[\\u200c\\u200d](?=[${JOINING}])`,
].join("|");

/** How many combining marks a character may carry: a browser takes seconds to place thousands, and
 * they grow over the lines around them. */
const MOST_MARKS = 8;
const MARK = `(?:(?![${HIDDEN}])\\p{M})`;
const MARKS = `(?<first>${MARK}{${MOST_MARKS}})(?<more>${MARK}+)`;
const FOUND = new RegExp(`(?<needed>${NEEDED})|${MARKS}|[${HIDDEN}]`, "gu");
const TOO_MANY_MARKS = new RegExp(MARKS, "gu");

/** Of so many hidden characters in a row the rest is counted; behind so many signs in one text they
 * are plain text, which costs no element each. */
const [MOST_IN_A_ROW, MOST_SIGNS] = [64, 1000];

/** The marks of a text that are too many, as {code}: "+79992 marks". */
const countOf = (marks) => ({ code: `+${[...marks].length} marks` });

/** The text in parts: strings, and {code} for each character that hides ("U+202E"), for those that
 * are too many in a row ("+936 hidden") and for marks that are too many ("+79992 marks"). */
export const partsShowingHidden = (text) => {
  const parts = [];
  let [end, row] = [0, 0];
  const closeRow = () => {
    if (row > MOST_IN_A_ROW) parts.push({ code: `+${row - MOST_IN_A_ROW} hidden` });
    row = 0;
  };
  for (const { 0: found, index, groups } of text.matchAll(FOUND)) {
    if (groups.needed !== undefined) continue;
    const shown = index + (groups.first?.length ?? 0);
    if (shown > end) {
      closeRow();
      parts.push(text.slice(end, shown));
    }
    if (groups.more !== undefined) parts.push(countOf(groups.more));
    else if (++row <= MOST_IN_A_ROW) parts.push({ code: codeOf(found) });
    end = index + found.length;
  }
  closeRow();
  if (end < text.length || parts.length === 0) parts.push(text.slice(end));
  return parts;
};

const codeOf = (character) => `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;

/** A text for prose, in which hidden characters stay but marks that are too many are counted. */
export const withFewMarks = (text) =>
  text.replace(TOO_MANY_MARKS, (...found) => {
    const { first, more } = found.at(-1);
    return `${first}⟨${countOf(more).code}⟩`;
  });

/** JSON text that people edit: characters that hide, and marks that are too many, are escaped. They
 * can only be in strings. */
export const editableJson = (json) => {
  const escaped = (text) =>
    text.split("").map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`).join("");
  return json.replace(FOUND, (...found) => {
    const { needed, first, more } = found.at(-1);
    return needed ?? (more === undefined ? escaped(found[0]) : first + escaped(more));
  });
};

/** The text to show: characters that hide as their names. */
export const revealed = (text) => {
  const parts = partsShowingHidden(String(text ?? ""));
  let signs = 0;
  const shown = parts.map((part) =>
    typeof part === "string" || ++signs > MOST_SIGNS
      ? written(part)
      : html`<span class="md-hidden" title="Invisible characters">⟨${part.code}⟩</span>`);
  // Text that follows text is one node.
  return signs <= MOST_SIGNS ? shown : joined(shown);
};

const written = (part) => (typeof part === "string" ? part : `⟨${part.code}⟩`);

const joined = (nodes) => {
  const start = nodes.findLastIndex((node) => typeof node !== "string") + 1;
  return [...nodes.slice(0, start), nodes.slice(start).join("")];
};

/** The same where only text can stand, as in labels and titles. */
export const revealedText = (text) => partsShowingHidden(String(text ?? "")).map(written).join("");
