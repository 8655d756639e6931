// CPU seconds that the message list takes for 20,000 envelopes, with a look after each.
import * as lists from "../../src/stepwell/ui/message_list.js";

const COUNT = 20_000;
const envelope = (seq, type, payload, execution_id = "e1") =>
  ({ id: `i${seq}`, seq, type: `agent.${type}`, execution_id, payload: { step_number: 1, ...payload } });
const numbers = [...Array(COUNT).keys()];
const chunks = numbers.map((n) => envelope(n + 1, "stream.chunk", { chunk_index: n, content: "ab " }));
const swapped = chunks.map((_, n) => chunks[n ^ 1]);

function seconds(work) {
  const before = process.cpuUsage();
  work();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1e6;
}

const fed = (envelopes, look) =>
  envelopes.reduce((list, one) => {
    const next = lists.received(list, one);
    look(next);
    return next;
  }, lists.emptyList());

// More than a call can be given as arguments.
const child = { parent_execution_id: "e1", parent_tool_call_id: "c" };
const many = [...Array(130_000).keys()].map((n) =>
  envelope(n + 2, "stream.chunk", { step_number: n, chunk_index: 0, content: "x", ...child }, "e2"));
const nested = numbers.slice(0, 8000).map((n) =>
  envelope(n + 1, "step.started", n ? { parent_execution_id: `e${n - 1}` } : {}, `e${n}`));
const started = envelope(1, "tool.started", { tool_call_id: "c", tool_name: "t" });

console.log(
  JSON.stringify({
    in_order: seconds(() => fed(chunks, lists.messages)),
    swapped: seconds(() => fed(swapped, lists.messages)),
    with_a_gap: seconds(() => fed(chunks.slice(1), lists.missing)),
    twice: seconds(() => chunks.reduce((list, one) => (lists.received(list, one), lists.received(list, one)), lists.emptyList())),
    shown: [[started, ...many], nested].map((all) => lists.messages(fed(all, () => {})).length),
  }),
);
