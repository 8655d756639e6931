/**
 * JSON whose numbers stay as they are: a number that JavaScript can't hold (an integer above 2^53,
 * 1e400, -0) is read as an ExactNumber and written with the same digits. All JSON that the page reads
 * or writes goes through here. Notation is not kept: 1.0 is read as 1. Of names that stand twice in an
 * object the last counts, as for the server.
 */

/** The text of a number that has no exact counterpart in JavaScript. */
export class ExactNumber {
  constructor(text) {
    this.text = text;
    Object.freeze(this);
  }

  toString() {
    return this.text;
  }

  /** For code that writes JSON on its own: exact where the browser can, else the digits as a text. */
  toJSON() {
    return JSON.rawJSON?.(this.text) ?? this.text;
  }
}

const MARK = `exact ${[...crypto.getRandomValues(new Uint32Array(4))].join("-")} `;
const MARKED = new RegExp(`"${MARK}(-?[\\d.eE+-]+)"`, "g");
const MAY_BE_INEXACT = /\d{16}|-0|\d[eE]\+?\d{3}/;
const STRING_OR_NUMBER = /"|-?\d[\d.eE+-]*/g;

/** @param {string} text @returns {any} @throws {SyntaxError} */
export function parse(text) {
  const plain = JSON.parse(text);
  if (!MAY_BE_INEXACT.test(text)) return plain;
  const marked = withMarks(text);
  if (marked === text) return plain;
  const isMarked = (value) => typeof value === "string" && value.startsWith(MARK);
  return JSON.parse(marked, (_, value) => (isMarked(value) ? new ExactNumber(value.slice(MARK.length)) : value));
}

/** @param {any} value @param {number} indent @returns {string | undefined} */
export function stringify(value, indent = 0) {
  let isExact = true;
  const written = JSON.stringify(value, function write(name, plain) {
    if (!(this[name] instanceof ExactNumber)) return plain;
    isExact = false;
    return MARK + this[name].text;
  }, indent);
  return isExact ? written : written.replace(MARKED, "$1");
}

/** The kind of a JSON value: "null", "list", "object", "number", "string" or "boolean". */
export function kindOf(value) {
  if (value === null) return "null";
  if (value instanceof ExactNumber) return "number";
  return Array.isArray(value) ? "list" : typeof value;
}

/** Whether JavaScript would write the number otherwise: an integer with other digits, or infinite. */
const isInexact = (text) => {
  const number = Number(text);
  return /^-?\d+$/.test(text) ? Object.is(number, -0) || String(number) !== text : !Number.isFinite(number) || Object.is(number, -0);
};

/** The text, which is valid JSON, with each inexact number as a marked string. */
function withMarks(text) {
  const pieces = [];
  let copied = 0;
  STRING_OR_NUMBER.lastIndex = 0;
  for (let found = STRING_OR_NUMBER.exec(text); found !== null; found = STRING_OR_NUMBER.exec(text)) {
    if (found[0] === '"') {
      STRING_OR_NUMBER.lastIndex = endOfString(text, found.index + 1);
    } else if (isInexact(found[0])) {
      pieces.push(text.slice(copied, found.index), `"${MARK}${found[0]}"`);
      copied = found.index + found[0].length;
    }
  }
  return copied === 0 ? text : pieces.join("") + text.slice(copied);
}

/** Where the string that begins there is over: behind the first quote that is not escaped. */
function endOfString(text, start) {
  for (let quote = text.indexOf('"', start); ; quote = text.indexOf('"', quote + 1)) {
    let slash = quote;
    while (text[slash - 1] === "\\") slash -= 1;
    if ((quote - slash) % 2 === 0) return quote + 1;
  }
}
