// Runs cases through the message list. Reads one JSON case per line and writes what came of it, one
// line each: {"steps": [["received", envelope], ["said", text, id], ["reconciled", stored, through]]}.
import { createInterface } from "node:readline";

import * as lists from "../../src/stepwell/ui/message_list.js";

const seen = (list) => ({
  messages: lists.messages(list),
  status: lists.status(list),
  newest: lists.newest(list),
  missing: lists.missing(list),
  needs_history: [lists.needsHistory(list), lists.needsHistory(list, false)],
  ignored: list.ignored,
});

for await (const line of createInterface({ input: process.stdin })) {
  const { steps, look_often: looksOften } = JSON.parse(line);
  let list = lists.emptyList();
  const looks = [];
  for (const [verb, ...given] of steps) {
    list = verb === "fromHistory" ? lists.fromHistory(...given) : lists[verb](list, ...given);
    if (looksOften) looks.push(seen(list));
  }
  console.log(JSON.stringify([...looks, seen(list)]));
}
