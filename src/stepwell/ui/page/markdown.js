/**
 * Markdown as it is written: `html\`<${Markdown} text=${text} isWhole=${true} />\``.
 *
 * Blocks that are finished keep their vnode, so nothing is done for them when more text comes.
 */

import { html, useRef } from "./html.js";
import { blockNode, headingNode } from "./markdown_nodes.js";
import { outlineAfter } from "./markdown_outline.js";
import { MarkdownReader } from "./markdown_reader.js";

export { lexed } from "./markdown_lexer.js";

/** Gives each block its vnode, made once, and headings the level that follows from those before. */
const nodesOf = (blocks, firstLevel) => {
  let outline = [];
  return blocks.map((block) => {
    const { token } = block;
    const isHeading = token.type === "heading";
    if (isHeading) outline = outlineAfter(outline, token.depth, firstLevel);
    block.node ??= html`<div class="md-block" key=${block.key}>${
      isHeading ? headingNode(token, outline.at(-1).level) : blockNode(token)}</div>`;
    return block.node;
  });
};

/**
 * @param {{text: string, isWhole?: boolean, level?: number}} props - isWhole: nothing more is
 *   coming; level: that of the first heading, one below the heading that it stands under
 */
export const Markdown = ({ text, isWhole = true, level = 2 }) => {
  const reader = useRef(null);
  reader.current ??= new MarkdownReader();
  const blocks = reader.current.read(String(text ?? ""), isWhole);
  return html`<div class="markdown">${nodesOf(blocks, level)}</div>`;
};
