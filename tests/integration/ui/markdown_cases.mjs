// Runs the pure parts of the page's markdown; prints one JSON document. The argument names the
// part, the cases come on standard input.
import { readFileSync } from "node:fs";

import { partsShowingHidden } from "../../../src/stepwell/ui/page/hidden_text.js";
import { Markdown, lexed } from "../../../src/stepwell/ui/page/markdown.js";
import { blocksOf } from "../../../src/stepwell/ui/page/markdown_lexer.js";
import { blockNode } from "../../../src/stepwell/ui/page/markdown_nodes.js";
import { outlineAfter } from "../../../src/stepwell/ui/page/markdown_outline.js";
import { MarkdownReader } from "../../../src/stepwell/ui/page/markdown_reader.js";
import { dereferenced, inPieces, safeTarget } from "../../../src/stepwell/ui/page/markdown_text.js";
import { Lexer } from "../../../src/stepwell/ui/vendor/marked.js";

const given = () => JSON.parse(readFileSync(0, "utf8"));
const tokens = (reader, text, isWhole) => reader.read(text, isWhole).map((block) => block.token);
const whole = (text) => tokens(new MarkdownReader(), text, true);

/** All elements of some vnodes as [name, attributes], and their text. */
const flat = (node, found = { elements: [], text: "" }) => {
  if (Array.isArray(node)) node.forEach((each) => flat(each, found));
  else if (typeof node === "string" || typeof node === "number") found.text += node;
  else if (node && typeof node === "object") {
    const { children, ...rest } = node.props;
    if (typeof node.type === "string") found.elements.push([node.type, rest]);
    flat(children, found);
  }
  return found;
};

const shown = (text) => flat(new MarkdownReader().read(text, true).map((block) => blockNode(block.token)));

const seconds = (work) => {
  const start = process.cpuUsage(); // whatever else runs on the machine
  work();
  const { user, system } = process.cpuUsage(start);
  return (user + system) / 1e6;
};

/** Milliseconds of work, whatever else the machine does meanwhile. */
const spentBy = (work) => {
  const start = process.cpuUsage();
  work();
  const { user, system } = process.cpuUsage(start);
  return (user + system) / 1000;
};

const kinds = (tokens) => tokens.map((token) => token.type).join(" ");

const parts = {
  /** What kinds of blocks marked itself reads in each text, and what kinds we do. */
  kinds: () => given().map((text) => [kinds(new Lexer({ gfm: true }).lex(text)), kinds(blocksOf(text).tokens)]),

  /** For each text: milliseconds to read and draw it whole, and for the dearest piece of a stream. */
  dear: () => given().map((text) => {
    const draw = (reader, part, isWhole) => reader.read(part, isWhole).map((block) => blockNode(block.token));
    const whole = spentBy(() => draw(new MarkdownReader(), text, true));
    const [reader, pieces] = [new MarkdownReader(), []];
    for (let end = 20; end < Math.min(text.length, 5_000); end += 100) {
      pieces.push(spentBy(() => draw(reader, text.slice(0, end), false)));
    }
    // The collector of garbage may run in any one of them.
    return { whole, piece: pieces.sort((one, other) => other - one)[3] };
  }),

  /** For each [text, ends of its pieces]: what the pieces led to, and the text at once. */
  split: () => given().map(([text, ends]) => {
    const reader = new MarkdownReader();
    for (const end of ends) reader.read(text.slice(0, end), false);
    const streamed = JSON.stringify(tokens(reader, text, true));
    return { isSame: streamed === JSON.stringify(whole(text)), isExact: reader.isExact };
  }),

  /** For each text: blocks that kept their identity while the last part of it came. */
  kept: () => given().map(([before, after]) => {
    const reader = new MarkdownReader();
    const first = reader.read(before, false);
    const second = reader.read(before + after, false);
    return first.filter((block, place) => second[place] === block).length;
  }),

  shown: () => given().map(shown),
  elsewhere: () => given().map((text) => {
    const reader = new MarkdownReader();
    for (const piece of ["Quite another text.\n\nWith two blocks.\n\n", text]) reader.read(piece, false);
    return JSON.stringify(tokens(reader, text, true)) === JSON.stringify(whole(text));
  }),

  /** Characters lexed for one of 1,600 pieces, early and late: [opening, usual, every, each]. */
  cost: () => given().map(([opening, usual, every, each]) => {
    const reader = new MarkdownReader();
    let text = opening;
    const frame = (number) => {
      text += number % each === 0 ? every : usual;
      reader.read(text, false);
    };
    const run = (from, to) => {
      const before = lexed.characters;
      for (let number = from; number < to; number += 1) frame(number);
      return (lexed.characters - before) / (to - from);
    };
    run(1, 500);
    const early = run(500, 800);
    run(800, 1300);
    return { early, late: run(1300, 1600), length: text.length };
  }),

  /** Seconds to read and make vnodes of hostile texts: [name, piece, times]. */
  hostile: () => given().map(([name, piece, times]) => {
    const text = piece.repeat(times);
    let kept = 0;
    const spent = seconds(() => {
      kept = new MarkdownReader().read(text, true).map((block) => blockNode(block.token)).length;
    });
    return { name, spent, kept };
  }),

  words: () => ({
    dereferenced: given().map(dereferenced),
    outline: [[2, 2], [4, 2], [3, 2], [1, 2], [6, 2]].reduce(
      ({ outline, levels }, [depth, first]) => {
        const next = outlineAfter(outline, depth, first);
        return { outline: next, levels: [...levels, next.at(-1).level] };
      }, { outline: [], levels: [] }).levels,
    pieces: inPieces("line\n".repeat(5000)).join("") === "line\n".repeat(5000),
    hidden: partsShowingHidden("a\u202eb\u200bc\u{1F468}\u200d\u{1F469}"),
    isComponent: typeof Markdown,
  }),

  targets: () => given().map(safeTarget),
};

console.log(JSON.stringify(parts[process.argv[2]]()));
