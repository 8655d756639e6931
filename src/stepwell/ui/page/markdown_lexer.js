/**
 * marked's lexer within bounds: what a model wrote must never hold the page up.
 *
 * Depth, the size of one run of inline text and the size of the whole are bounded; what goes
 * beyond is kept and shown as plain text, so nothing is lost.
 */

import { Lexer, Tokenizer } from "../vendor/marked.js";

/** Quotes and lists inside one another, and emphasis inside emphasis: deeper is text. */
export const MOST_DEPTH = 20;
/** Characters that are read as markdown; the rest of a longer text is shown as it is. */
export const MOST_CHARACTERS = 200_000;

// marked searches for the other end of each of these from each of them: the time grows with the
// square of their number.
const MARKS = /[*_[\]<`~!(]/g;
const MOST_MARKS = 1_500;
const MOST_INLINE = 20_000;
// Of emphasis the dearest are ends that do not fit: for each all that follow are tried.
const EMPHASIS = /\*+|_+|~+/g;
const MOST_EMPHASIS = 200;
// What a text may cost in all, in pairs of marks (some 0.25 µs each); while it grows, what its tail may.
const MOST_COST = 1_000_000;
const MOST_COST_OF_TAIL = 60_000;
const COST_OF_CONTAINER = 80;
// Characters that are looked through for the cost of a pair of marks.
const CHARACTERS = 8;
// Each line that goes on with a quote without its mark makes marked read the quote again.
const MOST_LAZY_LINES = 50;
const QUOTE = /^ {0,3}>/;

/** What was lexed on this page so far: tests see by it that nothing is read twice. */
export const lexed = { blocks: 0, characters: 0 };

class TooMuch extends Error {}

class BoundedTokenizer extends Tokenizer {
  depth = 0;

  blockquote(text) {
    const quote = this.rules.block.blockquote.exec(text)?.[0];
    if (quote === undefined) return undefined;
    if (lazyLines(quote) > MOST_LAZY_LINES) return plainBlock(quote);
    return this.within(() => super.blockquote(text));
  }

  list(text) {
    return this.within(() => super.list(text));
  }

  /** marked looks for the rows before it knows whether there is a head: only if there may be one. */
  table(text) {
    const [head, delimiter] = text.split("\n", 2);
    if (!DELIMITER.test(delimiter ?? "") || cellsIn(head) !== cellsIn(delimiter)) return undefined;
    const token = super.table(text);
    if (token === undefined) this.lexer.spend(paragraphLength(text) / CHARACTERS);
    return token;
  }

  within(read) {
    if (this.depth >= MOST_DEPTH) return undefined;
    this.depth += 1;
    try {
      const token = read();
      if (token !== undefined) this.lexer.spend(COST_OF_CONTAINER);
      return token;
    } finally {
      this.depth -= 1;
    }
  }
}

// marked looks for the box of each task among all text that waits: tasks are found when the list
// is shown, not here.
const NEVER = /(?!)/;

/** The rule for paragraphs looks through all rows of a table that may follow: its head is enough. */
const withoutRows = ({ paragraph, table }) => {
  const rows = table.source.slice(table.source.indexOf("(?:\\n((?:(?! *\\n"));
  return new RegExp(paragraph.source.replace(rows, () => "(?:\\n|$)"), paragraph.flags);
};
const PARAGRAPH = withoutRows(Lexer.rules.block.gfm);

/** What the inline text cost that became these tokens. */
const costs = new WeakMap();

class BoundedLexer extends Lexer {
  /** @param {number} left what may be spent */
  constructor(options, left) {
    super(options);
    const { rules } = this.tokenizer;
    const block = { ...rules.block, paragraph: PARAGRAPH };
    this.tokenizer.rules = { ...rules, block, other: { ...rules.other, listIsTask: NEVER } };
    this.left = left;
    this.isShort = false;
  }

  spend(cost) {
    this.left -= cost;
    if (this.left < 0) throw new TooMuch();
  }

  inlineTokens(text, tokens = []) {
    const marks = text.match(EMPHASIS)?.length ?? 0;
    const before = this.left;
    if (marks * marks > this.left) this.isShort = true;
    if (marks > MOST_EMPHASIS || marks * marks > this.left || isTooMuchInline(text)) {
      tokens.push({ type: "text", raw: text, text, isPlain: true });
      return tokens;
    }
    this.left -= marks * marks;
    super.inlineTokens(text, tokens);
    costs.set(tokens, before - this.left);
    return tokens;
  }
}

/** What it cost to read these blocks. */
export const costOf = (tokens) => {
  const parts = ({ type, tokens: inner, items, header, rows }) => {
    if (type === "list") return COST_OF_CONTAINER + sum(items, (item) => costOf(item.tokens));
    if (type === "blockquote") return COST_OF_CONTAINER + costOf(inner);
    if (type === "table") return sum([header, ...rows].flat(), (cell) => costs.get(cell.tokens) ?? 0);
    return costs.get(inner) ?? 0;
  };
  return sum(tokens, parts);
};

const sum = (list, value) => list.reduce((total, one) => total + value(one), 0);

const DELIMITER = /^(?=.*[|:]) {0,3}(?:\| *)?:?-+:? *(?:\| *:?-+:? *)*(?:\| *)?$/;

const cellsIn = (line) => {
  const cells = line.replace(/\\./g, "x").split("|");
  const isEmpty = (cell) => cell?.trim() === "";
  return cells.length - (isEmpty(cells[0]) ? 1 : 0) - (cells.length > 1 && isEmpty(cells.at(-1)) ? 1 : 0);
};

const paragraphLength = (text) => {
  const end = text.indexOf("\n\n");
  return end < 0 ? text.length : end;
};

const lazyLines = (quote) => quote.split("\n").filter((line) => !QUOTE.test(line)).length;

const isTooMuchInline = (text) => {
  if (text.length <= MOST_MARKS) return false;
  if (text.length > MOST_INLINE) return true;
  return (text.match(MARKS)?.length ?? 0) > MOST_MARKS;
};

/** A block that is shown as it was written. */
export const plainBlock = (text) => ({ type: "plain", raw: text, text });

/**
 * The blocks of a text.
 * @param {object} links the definitions of the text before it, by label
 * @param {number} spent what the text before it cost
 * @param {boolean} isTail whether it is read again when more comes
 */
export const blocksOf = (text, links = Object.create(null), spent = 0, isTail = false) => {
  const left = Math.min(MOST_COST - spent, isTail ? MOST_COST_OF_TAIL : MOST_COST);
  const lexer = new BoundedLexer({ gfm: true, breaks: false, tokenizer: new BoundedTokenizer() }, left);
  lexer.tokens.links = Object.create(links);
  try {
    const tokens = [...lexer.lex(text)];
    lexed.blocks += tokens.length;
    lexed.characters += text.length;
    return { tokens, isPlain: lexer.isShort, hasDefinitions: Object.keys(lexer.tokens.links).length > 0 };
  } catch (problem) {
    // RangeError: the stack was too small for what was nested in some other way.
    if (!(problem instanceof TooMuch || problem instanceof RangeError)) throw problem;
    return { tokens: [plainBlock(text)], isPlain: true, hasDefinitions: false };
  }
};

/** Where the part ends that is read as markdown. */
export const markdownEnd = (text) => {
  if (text.length <= MOST_CHARACTERS) return text.length;
  const end = text.lastIndexOf("\n", MOST_CHARACTERS);
  return end > 0 ? end + 1 : MOST_CHARACTERS;
};
