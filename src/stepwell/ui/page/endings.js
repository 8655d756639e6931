/** How an execution ended, in words that are read out: live and stored. Pure: no page, no network. */

const CUT_SHORT = ["failed", "cancelled", "stopped"];

const firstLine = (text) => text.split("\n", 1)[0];
const answer = (text) => (text ? `Answer: ${text}` : "");

/** @param {{status: string, last_response?: string, error_message?: string, reason?: string}} payload of the last status */
export function endingOf({ status, last_response: said, error_message: error, reason }) {
  if (!CUT_SHORT.includes(status)) return answer(said);
  const why = firstLine(error || reason || "");
  return `${status[0].toUpperCase()}${status.slice(1)}${why && `: ${why}`}`;
}

/** @param {object[]} items session messages, oldest first */
export function storedEnding(items) {
  const isEnd = ({ role, metadata }) => role === "assistant" || CUT_SHORT.includes(metadata?.status);
  const last = items.findLast(isEnd);
  if (!last) return "";
  return last.role === "assistant" ? answer(last.content) : firstLine(last.content);
}
