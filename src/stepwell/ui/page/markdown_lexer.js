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
const MOST_CONTAINERS = 60_000;
// Each line that goes on with a quote without its mark makes marked read the quote again.
const MOST_LAZY_LINES = 50;
const QUOTE = /^ {0,3}>/;

/** What was lexed on this page so far: tests see by it that nothing is read twice. */
export const lexed = { blocks: 0, characters: 0 };

class TooMuch extends Error {}

class BoundedTokenizer extends Tokenizer {
  depth = 0;
  containers = 0;

  blockquote(text) {
    const quote = this.rules.block.blockquote.exec(text)?.[0];
    if (quote === undefined) return undefined;
    if (lazyLines(quote) > MOST_LAZY_LINES) return plainBlock(quote);
    return this.within(() => super.blockquote(text));
  }

  list(text) {
    return this.within(() => super.list(text));
  }

  within(read) {
    if (this.depth >= MOST_DEPTH) return undefined;
    if (this.containers++ > MOST_CONTAINERS) throw new TooMuch();
    this.depth += 1;
    try {
      return read();
    } finally {
      this.depth -= 1;
    }
  }
}

// marked looks for the box of each task among all text that waits: tasks are found when the list
// is shown, not here.
const NEVER = /(?!)/;

class BoundedLexer extends Lexer {
  constructor(options) {
    super(options);
    const { rules } = this.tokenizer;
    this.tokenizer.rules = { ...rules, other: { ...rules.other, listIsTask: NEVER } };
  }

  inlineTokens(text, tokens = []) {
    if (!isTooMuchInline(text)) return super.inlineTokens(text, tokens);
    tokens.push({ type: "text", raw: text, text, isPlain: true });
    return tokens;
  }
}

const lazyLines = (quote) => quote.split("\n").filter((line) => !QUOTE.test(line)).length;

const isTooMuchInline = (text) => {
  if (text.length <= MOST_MARKS) return false;
  if (text.length > MOST_INLINE) return true;
  return (text.match(MARKS)?.length ?? 0) > MOST_MARKS;
};

/** A block that is shown as it was written. */
export const plainBlock = (text) => ({ type: "plain", raw: text, text });

/** The blocks of a text; `links` are the definitions of the text before it, by label. */
export const blocksOf = (text, links = Object.create(null)) => {
  const lexer = new BoundedLexer({ gfm: true, breaks: false, tokenizer: new BoundedTokenizer() });
  lexer.tokens.links = Object.create(links);
  try {
    const tokens = [...lexer.lex(text)];
    lexed.blocks += tokens.length;
    lexed.characters += text.length;
    return { tokens, isPlain: false, hasDefinitions: Object.keys(lexer.tokens.links).length > 0 };
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
