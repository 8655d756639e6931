/** Long things, folded: text that is clipped, JSON as a tree, lists in pages. */

import { kindOf, stringify } from "../exact_json.js";
import { revealed, revealedText } from "../hidden_text.js";
import { html, useState } from "../html.js";
import { inPieces } from "../markdown_text.js";
import { counted } from "../words.js";

const CLIPPED = 1_500;
const MOST_MEMBERS = 200;

/** Text as it is; what is long is clipped until it is asked for. */
export const LongText = ({ text, most = CLIPPED, label = "Text" }) => {
  const [isWhole, setWhole] = useState(false);
  const isLong = text.length > most;
  const shown = isLong && !isWhole ? `${text.slice(0, most)}…` : text;
  return html`<div class="x-long">
    <pre class="x-pre" tabindex="0" role="group" aria-label=${revealedText(label)}>${inPieces(shown).map(revealed)}</pre>
    ${isLong && html`<button type="button" class="x-link" aria-expanded=${isWhole}
      onClick=${() => setWhole(!isWhole)}>${isWhole ? "Show less" : `Show all ${counted(text.length, "character")}`}</button>`}
  </div>`;
};

/** A JSON value, laid out and clipped. */
export const JsonText = ({ value, label = "JSON" }) =>
  html`<${LongText} text=${typeof value === "string" ? value : (stringify(value, 2) ?? "–")} label=${label} />`;

const isTree = (value) => ["object", "list"].includes(kindOf(value)) && Object.keys(value).length > 0;

const sizeOf = (value) => (Array.isArray(value)
  ? counted(value.length, "item")
  : counted(Object.keys(value).length, "name"));

const Leaf = ({ name, value }) => html`<div class="x-leaf">
  ${name !== null && html`<span class="x-name">${revealed(name)}</span>`}
  <${LeafValue} value=${value} /></div>`;

const LeafValue = ({ value }) => {
  const [isWhole, setWhole] = useState(false);
  const text = stringify(value) ?? "–";
  if (text.length <= 300 || isWhole) return html`<span class="x-value" data-kind=${kindOf(value)}>${revealed(text)}</span>`;
  return html`<span class="x-value" data-kind=${kindOf(value)}>${revealed(text.slice(0, 300))}… </span>
    <button type="button" class="x-link" onClick=${() => setWhole(true)}>Show all</button>`;
};

/** A JSON value as a tree; a branch is made only when it is unfolded. */
export const JsonTree = ({ name = null, value, isOpen = false }) => {
  const [isUnfolded, setUnfolded] = useState(isOpen);
  const [most, setMost] = useState(MOST_MEMBERS);
  if (!isTree(value)) return html`<${Leaf} name=${name} value=${value} />`;
  const names = Object.keys(value);
  return html`<details class="x-branch" open=${isUnfolded} onToggle=${(event) => setUnfolded(event.currentTarget.open)}>
    <summary>${name !== null && html`<span class="x-name">${revealed(name)}</span> `}<span class="x-muted">${sizeOf(value)}</span></summary>
    ${isUnfolded && html`<div class="x-members">
      ${names.slice(0, most).map((each) => html`<${JsonTree} key=${each} name=${each} value=${value[each]} />`)}
      ${names.length > most && html`<button type="button" class="x-link"
        onClick=${() => setMost(most + 1_000)}>${counted(names.length - most, "more", "more")}</button>`}
    </div>`}
  </details>`;
};

/** A part of a list, and buttons for the others. */
export const usePages = (items, size, isLastFirst = false) => {
  const last = Math.max(0, Math.ceil(items.length / size) - 1);
  const [chosen, setChosen] = useState(isLastFirst ? null : 0);
  const page = Math.min(chosen ?? last, last);
  const from = page * size;
  const shown = items.slice(from, from + size);
  const bar = last === 0 ? null : html`<${PageBar} page=${page} last=${last} go=${setChosen}
    words=${`${from + 1}–${from + shown.length} of ${items.length}`} />`;
  return { shown, bar, from };
};

const PageBar = ({ page, last, go, words }) => html`<div class="x-row x-pages" role="group" aria-label="Pages">
  <button type="button" class="x-button" disabled=${page === 0} onClick=${() => go(0)}>First</button>
  <button type="button" class="x-button" disabled=${page === 0} onClick=${() => go(page - 1)}>Previous</button>
  <span role="status">${words}</span>
  <button type="button" class="x-button" disabled=${page === last} onClick=${() => go(page + 1)}>Next</button>
  <button type="button" class="x-button" disabled=${page === last} onClick=${() => go(last)}>Last</button>
</div>`;
