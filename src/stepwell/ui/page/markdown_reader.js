/**
 * Reads markdown that grows: blocks that can't change any more are never read again.
 *
 * Only the tail from the start of the last block is lexed again. Where that could come out
 * differently from reading the text at once (link definitions, long lists and tables that are
 * taken apart), the whole is read once more at the end.
 */

import { blocksOf, costOf, markdownEnd, plainBlock } from "./markdown_lexer.js";
import { growing } from "./markdown_growing.js";

// A longer tail that can't be taken apart is read again only when it has grown by a part of it.
const LONG_TAIL = 8_000;
const GROWTH = 1.05;

/** @typedef {{key: number, token: object}} Block - key: its place, which never changes */

const isShown = (token) => token.type !== "space" && token.type !== "def";

const oneLineEnd = (text) => (text.includes("\r") ? text.replace(/\r\n?/g, "\n") : text);

export class MarkdownReader {
  constructor() {
    this.forget();
  }

  forget() {
    this.text = "";
    this.finished = [];
    this.finishedLength = 0;
    this.finishedCost = 0;
    this.links = Object.create(null);
    this.open = null;
    this.isExact = true;
    this.isEnded = false;
    this.tail = { length: 0, tokens: [] };
  }

  /** The blocks of the text as far as it is known; `isWhole`: nothing follows. */
  read(given, isWhole) {
    const text = oneLineEnd(given);
    if (this.isEnded || !text.startsWith(this.text.slice(0, this.finishedLength))) {
      if (this.isEnded && isWhole && text === this.text) return this.blocks;
      this.forget();
    }
    this.text = text;
    const end = markdownEnd(text);
    const tokens = isWhole ? this.readToTheEnd(text.slice(0, end)) : this.readOn(text, end);
    const rest = end < text.length ? [plainBlock(text.slice(end))] : [];
    this.blocks = this.numbered([...tokens, ...rest]);
    this.isEnded = isWhole;
    return this.blocks;
  }

  /** The finished blocks as they are, and new ones for what may still change. */
  numbered(tokens) {
    const blocks = this.finished.slice();
    for (const token of tokens) {
      if (isShown(token)) blocks.push({ key: blocks.length, token });
    }
    return blocks;
  }

  lex(text, isTail) {
    const read = blocksOf(text, this.links, this.finishedCost, isTail);
    // A definition changes blocks before it too, and one that is not whole may turn out to be none.
    if (read.isPlain || read.hasDefinitions) this.isExact = false;
    return read;
  }

  readToTheEnd(text) {
    if (!this.isExact) {
      this.finished = [];
      this.finishedLength = 0;
      this.finishedCost = 0;
      this.links = Object.create(null);
    }
    this.open = null;
    const read = this.lex(text.slice(this.finishedLength), false);
    if (read.hasDefinitions && this.finished.length > 0) {
      this.isExact = false;
      return this.readToTheEnd(text);
    }
    return read.tokens;
  }

  readOn(text, end) {
    const tail = text.slice(this.finishedLength, end);
    if (this.open !== null) {
      const shown = this.open.read(tail);
      if (shown !== null) return [shown];
    }
    const before = this.tail;
    const prefix = this.open === null ? "" : this.open.prefix;
    if (tail.length > LONG_TAIL && tail.length < before.length * GROWTH) {
      const rest = tail.slice(before.length);
      return rest === "" ? before.tokens : [...before.tokens, plainBlock(rest)];
    }
    const read = this.lex(prefix + tail, true);
    const tokens = this.open === null ? read.tokens : this.open.joined(read.tokens);
    if (tokens === null) return this.startedAnew(text, end);
    const kept = this.finish(tokens, prefix.length, tail);
    this.tail = { length: end - this.finishedLength, tokens: kept };
    return kept;
  }

  /** What was taken apart did not go on as thought: read it all, until the end. */
  startedAnew(text, end) {
    this.forget();
    return this.readOn(text, end);
  }

  /** Moves to the finished blocks what can't change any more; gives what can. */
  finish(tokens, prefixLength, tail) {
    const cut = lastSettled(tokens, prefixLength, tail);
    if (cut.count > 0) {
      const settled = tokens.slice(0, cut.count);
      this.open = null;
      this.finished = this.numbered(settled);
      this.finishedLength += cut.length;
      this.finishedCost += costOf(settled);
      for (const { tag, href, title } of settled.filter((token) => token.type === "def")) {
        this.links[tag] ??= { href, title };
      }
    }
    const kept = tokens.slice(cut.count);
    const opened = growing(kept, this.open, tail.slice(cut.length));
    if (opened === null) return kept;
    this.open = opened.open;
    this.finishedLength += opened.length;
    if (opened.length > 0) this.isExact = false;
    return kept;
  }
}

/**
 * How many of the blocks are settled, and how much of the text they take: all before the last
 * block whose first line is whole. A line that is not whole may yet join the block before it
 * ("2" becomes "2. more"), and a paragraph without a blank line after it may yet become a heading.
 */
const lastSettled = (tokens, prefixLength, tail) => {
  const lastLine = tail.lastIndexOf("\n") + 1;
  let start = -prefixLength;
  let settled = { count: 0, length: 0 };
  for (const [place, token] of tokens.entries()) {
    if (isShown(token) || token.type === "def") {
      if (start >= lastLine) break;
      if (place > 0 && !mayJoin(tokens[place - 1])) settled = { count: place, length: start };
    }
    start += token.rawLength ?? token.raw.length;
  }
  return settled;
};

const mayJoin = (before) => before.type === "paragraph" && !before.raw.endsWith("\n\n");
