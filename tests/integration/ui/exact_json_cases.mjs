// Runs the page's JSON on texts; prints one JSON document, whose texts are compared in Python. The
// argument names the part, the cases come on standard input.
import { readFileSync } from "node:fs";

import { ExactNumber, kindOf, parse, stringify } from "../../../src/stepwell/ui/page/exact_json.js";
import { differences, isSame } from "../../../src/stepwell/ui/page/execution/differences.js";
import { shortValue } from "../../../src/stepwell/ui/page/execution/formats.js";
import { shownArguments, shownValue } from "../../../src/stepwell/ui/page/words.js";

const given = () => JSON.parse(readFileSync(0, "utf8"));
const attempt = (text) => {
  try {
    return stringify(parse(text));
  } catch (error) {
    return error.name;
  }
};
const withoutRaw = (work) => {
  const { rawJSON } = JSON;
  delete JSON.rawJSON;
  const done = work();
  if (rawJSON) JSON.rawJSON = rawJSON;
  return done;
};

const parts = {
  round: () => given().map(attempt),
  old: () => withoutRaw(() => given().map(attempt)),
  shown: () => given().map((text) => [shownArguments(parse(text)), shownValue(parse(text)), shortValue(parse(text))]),
  differences: () => given().map(([one, other]) => {
    const { found } = differences(parse(one), parse(other));
    return found.map(({ path, kind, before, after }) => [path, kind, stringify(before), stringify(after)]);
  }),
  kinds: () => [parse("9007199254740993"), parse("1"), parse("null"), parse("[]"), parse("{}")].map(kindOf),
  same: () => [isSame(parse("9007199254740993"), parse("9007199254740992")), isSame(parse("[1e400]"), parse("[1e400]"))],
  foreign: () => [JSON.stringify({ n: new ExactNumber("9007199254740993") }), `${parse("9007199254740993")}`],
  milliseconds: () => {
    const text = JSON.stringify({ text: 'a\\"'.repeat(1_000_000), list: Array.from({ length: 100_000 }, (_, n) => n / 7) }).slice(0, -1)
      + ',"n":9007199254740993}';
    const start = process.cpuUsage();
    const isExact = stringify(parse(text)).endsWith('"n":9007199254740993}');
    const { user, system } = process.cpuUsage(start);
    return [isExact, (user + system) / 1000];
  },
};

console.log(JSON.stringify(parts[process.argv[2]]()));
