/**
 * The levels of headings: a text may begin with any and leave some out, the page may not. Pure.
 */

const LOWEST = 6;

/** @typedef {{depth: number, level: number}[]} Outline - the headings that a place stands under */

/** The outline after a heading: its own level is that of the last entry. */
export const outlineAfter = (outline, depth, first) => {
  const above = outline.filter((heading) => heading.depth < depth);
  const level = Math.min((above.at(-1)?.level ?? first - 1) + 1, LOWEST);
  return [...above, { depth, level }];
};
