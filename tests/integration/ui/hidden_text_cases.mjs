// Runs the page's rules on hidden characters; prints one JSON document. The argument names the part,
// the cases come on standard input.
import { readFileSync } from "node:fs";

import { editableJson, partsShowingHidden, revealed, revealedText, withFewMarks } from "../../../src/stepwell/ui/page/hidden_text.js";

const given = () => JSON.parse(readFileSync(0, "utf8"));
const codes = (isWanted) => Array.from({ length: 0x110000 }, (_, code) => code).filter(isWanted);
/** Which code points are written out between two letters. */
const hidden = () => {
  const all = codes(() => true).map((code) => String.fromCodePoint(code)).join("a");
  const found = partsShowingHidden(all).filter((part) => typeof part !== "string");
  return new Set(found.map(({ code }) => Number.parseInt(code.slice(2), 16)));
};
const VISIBLE = [0x600, 0x601, 0x602, 0x603, 0x604, 0x605, 0x6dd, 0x70f, 0x890, 0x891, 0x8e2, 0x110bd, 0x110cd];

const parts = {
  hidden: () => [...hidden()].sort((a, b) => a - b),
  /** Code points that the engine's own Unicode data calls ignorable or format, but are not hidden. */
  missed: () => {
    const known = new Set([...hidden(), ...VISIBLE]);
    return codes((code) => /[\p{Default_Ignorable_Code_Point}\p{Cf}]/u.test(String.fromCodePoint(code)) && !known.has(code));
  },
  texts: () => given().map(revealedText),
  parts: () => given().map(partsShowingHidden),
  prose: () => given().map(withFewMarks),
  edited: () => given().map((value) => editableJson(JSON.stringify(value, null, 2))),
  nodes: () => given().map((text) => revealed(text).map((node) => (typeof node === "string" ? node : node.type))),
};

console.log(JSON.stringify(parts[process.argv[2]]()));
