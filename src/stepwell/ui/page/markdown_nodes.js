/**
 * Blocks of markdown as vnodes. Only elements that are named here can come out, and text is
 * always text: HTML in an answer is shown, never made.
 */

import { revealed, withFewMarks } from "./hidden_text.js";
import { h, html } from "./html.js";
import { CopyButton } from "./markdown_copy.js";
import { directionOf } from "./markdown_direction.js";
import { MOST_DEPTH } from "./markdown_lexer.js";
import { dereferenced, inPieces, safeTarget, tellsTarget } from "./markdown_text.js";

const MOST_COLUMNS = 64;

/** A text node; in links with what hides in it made visible. */
const textOf = (text, isInLink) => (isInLink ? revealed(text) : withFewMarks(text));

/** A long text as text nodes. */
const piecesOf = (text) => inPieces(text).map(withFewMarks);

const inline = (tokens, place) =>
  (tokens ?? []).map((token) => inlineNode(token, place));

const inlineNode = (token, place) => {
  if (place.depth > MOST_DEPTH) return textOf(token.raw, place.isInLink);
  const deeper = { ...place, depth: place.depth + 1 };
  const make = INLINE[token.type];
  return make === undefined ? textOf(token.raw ?? "", place.isInLink) : make(token, deeper);
};

const INLINE = {
  text: (token, place) => {
    if (token.isPlain) return piecesOf(token.text);
    if (token.tokens !== undefined) return inline(token.tokens, place);
    return textOf(dereferenced(token.text), place.isInLink);
  },
  escape: (token, place) => textOf(token.text, place.isInLink),
  html: (token, place) => textOf(token.raw, place.isInLink),
  strong: (token, place) => html`<strong>${inline(token.tokens, place)}</strong>`,
  em: (token, place) => html`<em>${inline(token.tokens, place)}</em>`,
  del: (token, place) => html`<del>${inline(token.tokens, place)}</del>`,
  codespan: (token) => html`<code>${revealed(token.text)}</code>`,
  br: () => html`<br />`,
  link: (token, place) => linkNode(token, place),
  image: (token) => imageNode(token),
};

const checkbox = (isChecked) =>
  html`<input type="checkbox" disabled checked=${isChecked}
    aria-label=${isChecked ? "done" : "not done"} /> `;

const linkNode = (token, place) => {
  const words = inline(token.tokens, { ...place, isInLink: true });
  const target = safeTarget(token.href);
  if (target === null) return unsafeLink(token, words);
  const host = tellsTarget(token.text, target) ? null : html`<bdi class="md-host">${target.host}</bdi>`;
  return html`<a href=${target.href} target="_blank" rel="noopener noreferrer nofollow"
    title=${target.href}><bdi>${words}</bdi></a>${host && html` ${host}`}`;
};

/** A link that is not one: its words, and the address as it was written. */
const unsafeLink = (token, words) => {
  const address = token.href === "" || token.text === token.href ? null : token.href;
  return html`<span class="md-nolink"><bdi>${words}</bdi>${address !== null &&
    html` <code class="md-address">${revealed(address)}</code>`}</span>`;
};

/** Images are never loaded: what they are said to show, and where they are. */
const imageNode = (token) => {
  const target = safeTarget(token.href);
  const address = target === null || target.href.startsWith("mailto:")
    ? html`<code class="md-address">${revealed(token.href)}</code>`
    : html`<a href=${target.href} target="_blank" rel="noopener noreferrer nofollow">
        <bdi>${revealed(target.href)}</bdi></a>`;
  const words = revealed(dereferenced(token.text));
  return html`<span class="md-image"><span class="md-image-label">Image</span>${" "}<bdi>${words}</bdi> ${address}</span>`;
};

/** The vnodes of one block; `depth` counts the quotes and lists around it. */
export const blockNode = (token, depth = 0) => {
  const make = BLOCK[token.type] ?? BLOCK.plain;
  return depth > MOST_DEPTH ? BLOCK.plain(token) : make(token, depth);
};

/** A heading of the text itself, on a level that fits the page around it. */
export const headingNode = (token, level) =>
  h(`h${level}`, { dir: "auto", class: `md-h${token.depth}` }, inline(token.tokens, top));

const top = { depth: 0, isInLink: false };

const blocks = (tokens, depth) =>
  tokens.filter((token) => token.type !== "space" && token.type !== "def")
    .map((token) => blockNode(token, depth));

const BLOCK = {
  plain: (token) => html`<div class="md-plain" dir="auto">${piecesOf(token.text ?? token.raw)}</div>`,
  html: (token) => html`<div class="md-plain md-html">${piecesOf(token.raw.trimEnd())}</div>`,
  paragraph: (token) => html`<p dir="auto">${inline(token.tokens, top)}</p>`,
  text: (token) => inline(token.tokens ?? [token], top),
  // In a quote or a list it is no part of the outline of the page.
  heading: (token) => html`<p class=${`md-h${token.depth}`} dir="auto"><strong>${inline(token.tokens, top)}</strong></p>`,
  hr: () => html`<hr />`,
  blockquote: (token, depth) =>
    html`<blockquote dir=${directionOf([token.text])}>${blocks(token.tokens, depth + 1)}</blockquote>`,
  list: (token, depth) => listNode(token, depth),
  table: (token) => tableNode(token),
  code: (token) => codeNode(token),
};

const codeNode = (token) => {
  const language = (token.lang ?? "").trim().split(/\s/, 1)[0].slice(0, 30);
  return html`<div class="md-code">
    <div class="md-code-bar"><span class="md-language">${revealed(language)}</span>
      <${CopyButton} text=${token.text} what="this code" /></div>
    <pre tabindex="0" role="group" aria-label=${language === "" ? "Code" : `Code, ${language}`}
      ><code>${inPieces(token.text).map(revealed)}</code></pre>
  </div>`;
};

// Items that are kept while a list grows keep their vnodes too.
const itemNodes = new WeakMap();

const itemNode = (item, depth) => {
  const known = itemNodes.get(item);
  if (known?.depth === depth) return known.node;
  const isDone = taskOf(item);
  const node = isDone === null
    ? html`<li>${blocks(item.tokens, depth + 1)}</li>`
    : html`<li class="md-task">${checkbox(isDone)}${blocks(withoutBox(item.tokens), depth + 1)}</li>`;
  itemNodes.set(item, { depth, node });
  return node;
};

/** Whether a task is done; null for an item that is none. */
const taskOf = (item) => {
  const box = /^\[([ xX])\][ \t]+\S/.exec(item.text);
  const words = item.tokens[0]?.tokens?.[0];
  return box === null || words?.type !== "text" || !words.text.startsWith("[") ? null : box[1] !== " ";
};

const withoutBox = ([first, ...rest]) => {
  const [words, ...others] = first.tokens;
  return [{ ...first, tokens: [{ ...words, text: words.text.slice(3).trimStart() }, ...others] }, ...rest];
};

const listNode = (token, depth) => {
  const items = token.items.map((item) => itemNode(item, depth));
  const direction = directionOf(token.items.map(({ text }) => text));
  if (!token.ordered) return html`<ul dir=${direction}>${items}</ul>`;
  return html`<ol dir=${direction} start=${token.start === 1 ? undefined : token.start}>${items}</ol>`;
};

const rowNodes = new WeakMap();

const rowNode = (cells) => {
  const known = rowNodes.get(cells);
  if (known !== undefined) return known;
  const node = html`<tr>${cells.map((cell) =>
    html`<td class=${cell.align ? `md-${cell.align}` : ""} dir="auto">${inline(cell.tokens, top)}</td>`)}</tr>`;
  rowNodes.set(cells, node);
  return node;
};

const tableNode = (token) => {
  if (token.header.length > MOST_COLUMNS) {
    return html`<div class="md-plain md-html" tabindex="0" role="group" aria-label="Wide table"
      >${piecesOf(token.raw)}</div>`;
  }
  const heading = token.header.map((cell) =>
    html`<th scope="col" class=${cell.align ? `md-${cell.align}` : ""} dir="auto"
      >${inline(cell.tokens, top)}</th>`);
  return html`<div class="md-table" tabindex="0" role="group" aria-label="Table">
    <table dir=${directionOf(token.header.map(({ text }) => text))}><thead><tr>${heading}</tr></thead><tbody>${token.rows.map(rowNode)}</tbody></table>
  </div>`;
};
