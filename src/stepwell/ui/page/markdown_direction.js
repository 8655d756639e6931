/**
 * In which direction a block is read. For those that hold others `dir="auto"` sees nothing: it leaves
 * out what has a `dir` of its own. Pure: no page, no network.
 */

const LETTER = /\p{L}/u;
const FROM_THE_RIGHT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;
const BOX = /^\s*\[[ xX]\]/;
// It is looked for each time that more of a text comes.
const [MOST_TEXTS, MOST_CHARACTERS] = [20, 500];

/** By the first letter in these texts; undefined, which is as around it, if there is none.
 * @param {(string | undefined)[]} texts @returns {"ltr" | "rtl" | undefined} */
export function directionOf(texts) {
  for (const text of texts.slice(0, MOST_TEXTS)) {
    const letter = LETTER.exec((text ?? "").slice(0, MOST_CHARACTERS).replace(BOX, ""));
    if (letter) return FROM_THE_RIGHT.test(letter[0]) ? "rtl" : "ltr";
  }
  return undefined;
}
