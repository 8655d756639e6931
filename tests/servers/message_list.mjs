// Runs the page's message list for tests/message_list.py. Reads one JSON command per line:
// {"make": id, "of": id, "verb": "received", "given": [...]} keeps the new list under an id,
// {"show": id} writes what the list shows, {"drop": id} forgets it.
import { createInterface } from "node:readline";

import * as lists from "../../src/stepwell/ui/message_list.js";

const kept = new Map();
const seen = (list) => ({
  messages: lists.messages(list),
  status: lists.status(list),
  newest: lists.newest(list),
  missing: lists.missing(list),
  needs_history: [lists.needsHistory(list), lists.needsHistory(list, false)],
  ignored: list.ignored,
});

for await (const line of createInterface({ input: process.stdin })) {
  const { make, of, verb, given, show, drop } = JSON.parse(line);
  if (drop !== undefined) kept.delete(drop);
  else if (show !== undefined) console.log(JSON.stringify([seen(kept.get(show)), kept.get(show).size]));
  else kept.set(make, of === null ? lists[verb](...given) : lists[verb](kept.get(of), ...given));
}
