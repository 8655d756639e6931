/**
 * The stored messages of a session as the message list reads them. Pure: no page, no network.
 *
 * Each step is named as it is live (`execution:step`), so what is stored takes the place of what was
 * streamed without being drawn again.
 */

const NOT_SHOWN = ["step.started", "tool.called", "tool.completed"];

/** The messages for fromHistory, in the order of their executions.
 * @param {object[]} items session messages, oldest first
 * @param {{id: string, created_at: string}[]} unfinished executions that are shown live instead */
export function asHistory(items, unfinished = []) {
  const isLive = new Set(unfinished.map(({ id }) => id));
  const began = unfinished.length ? unfinished[0].created_at : null;
  const groups = new Map();
  for (const item of items) {
    const id = item.agent_execution_id ?? "";
    // What was sent while the first of them ran is live as well, after what came before it.
    const isLater = began !== null && item.created_at > began;
    if (isLive.has(id) && (item.role !== "user" || isLater)) continue;
    // What belongs to no execution stands where it was said.
    const group = id || `message ${item.id}`;
    if (!groups.has(group)) groups.set(group, []);
    groups.get(group).push(item);
  }
  return [...groups.values()].flatMap((group) => ofExecution(group));
}

/** The user messages in it, by id, with the execution that answers each. */
export const answeredBy = (items) =>
  new Map(items.filter(({ role }) => role === "user").map((one) => [one.id, one.agent_execution_id]));

function ofExecution(items) {
  const [texts, shownSteps] = [textsOf(items), new Set()];
  const last = Math.max(0, ...items.map(({ metadata }) => metadata?.step_number ?? 0));
  const answer = items.find(({ role }) => role === "assistant");
  const [asked, shown, open] = [askedIn(items), [], new Set()];
  const isCalledLater = ({ call_id: id, step_number: step, outcome }) =>
    outcome === "pending" && items.some(({ metadata: other }) =>
      other?.event_type === "tool.called" && other.call_id === id && other.step_number > step);
  const showText = (execution, step) => {
    if (shownSteps.has(step) || !texts.has(step)) return;
    shownSteps.add(step);
    const content = texts.get(step);
    if (step === last && content === answer?.content) return;
    shown.push({ id: `${execution}:${step}:text`, role: "assistant", content });
  };
  for (const item of items) {
    const { id, role, content, agent_execution_id: execution, metadata = {} } = item;
    const [type, step] = [metadata.event_type, metadata.step_number];
    if (Number.isSafeInteger(step)) showText(execution, step);
    if (role === "user") shown.push({ id, role, content });
    else if (role === "assistant") shown.push({ id: execution ? `${execution}:${last}:answer` : id, role, content });
    else if (type === "tool.called") {
      open.add(metadata.call_id);
      shown.push(calledOf(item));
    }
    else if (type === "tool.completed" && wentOn(item, items)) {
      // An id may be used again in a later step: what began before is over.
      if (!open.has(metadata.call_id) && !isCalledLater(metadata)) shown.push(neverCalled(item, asked));
      shown.push(completedOf(item));
      if (metadata.outcome === "pending") open.add(metadata.call_id);
      else open.delete(metadata.call_id);
    }
    if (role === "assistant" && isCut(metadata)) shown.push(cutOf(item));
    if (role === "user" || role === "assistant" || NOT_SHOWN.includes(type)) continue;
    shown.push({ id: `${execution ?? ""}:note:${id}`, role, content, metadata });
  }
  return shown;
}

/** Whether it is an answer that the model did not end by itself, as when it ran out of tokens. */
const isCut = ({ status, stop_reason: reason, incomplete }) => incomplete === true || (status === "completed" && reason === "finish_reason");

function cutOf({ id, agent_execution_id: execution, metadata }) {
  const content = metadata.incomplete ? "The answer is incomplete: the run ended while the model wrote it." : "The answer may be incomplete: the model's finish reason ended the run (reason finish_reason, status completed).";
  return { id: `${execution}:note:${id}`, role: "notification", content, metadata: { status: "stopped" } };
}

/** A call that waited has its answer if the execution went on; of one that did not nothing is known. */
const wentOn = (item, items) =>
  item.metadata.outcome !== "pending" ||
  items.some(({ created_at: at, metadata }) => at > item.created_at && (metadata?.step_number ?? 0) > item.metadata.step_number);

/** What the model said before its calls: stored with the end of each step, shown at its beginning. */
function textsOf(items) {
  const ends = items.filter(({ metadata }) => metadata?.event_type === "step.completed" && metadata.text);
  return new Map(ends.map(({ metadata }) => [metadata.step_number, metadata.text]));
}

function calledOf({ agent_execution_id: execution, metadata }) {
  const { step_number: step, call_id: id, tool: name, args_summary: summary = "" } = metadata;
  return { id: `${execution}:${step}:${id}`, role: "assistant", content: "", metadata: { tool_calls: [{ id, name, summary }] } };
}

/** The arguments of calls that a person was asked about: one that was denied never began. */
function askedIn(items) {
  const pending = items.flatMap(({ metadata }) => metadata?.pending ?? []);
  return new Map(pending.map(({ call_id: id, details }) => [id, details?.arguments]));
}

function neverCalled({ agent_execution_id: execution, metadata }, asked) {
  const { step_number: step, call_id: id, tool: name } = metadata;
  return { id: `${execution}:${step}:${id}`, role: "assistant", content: "", metadata: { tool_calls: [{ id, name, arguments: asked.get(id) }] } };
}

/** What went wrong, in the words of the live event, which older messages do not have. */
function errorOf({ content, metadata: { error, tool } }) {
  if (error) return error;
  const [failed, refused] = [`${tool} failed: `, `${tool} was not allowed: `];
  if (content.startsWith(failed)) return `Error: ${content.slice(failed.length)}`;
  return content.startsWith(refused) ? `Error: Blocked: ${content.slice(refused.length)}` : content;
}

function completedOf(item) {
  const { agent_execution_id: execution, metadata } = item;
  const { step_number: step, call_id, tool, outcome, duration_ms, result_summary } = metadata;
  const isFine = outcome === "completed" || outcome === "pending";
  return {
    id: `${execution}:${step}:${call_id}`,
    role: "tool",
    content: isFine ? result_summary ?? "" : errorOf(item),
    metadata: { tool_call_id: call_id, tool_name: tool, is_error: !isFine, outcome, duration_ms: outcome === "pending" ? null : duration_ms },
  };
}
