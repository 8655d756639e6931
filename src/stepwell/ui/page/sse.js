/** Reads server-sent events. Pure: no page, no network. */

/** Takes pieces of a stream of events, wherever they are cut; emits each complete one: {id, event, data}.
 * An id stands until there is another one. */
export function newParser(hear) {
  let [rest, event] = ["", { id: "", event: "message", data: [] }];
  const line = (text) => {
    if (text === "") {
      if (event.data.length) hear({ ...event, data: event.data.join("\n") });
      event = { id: event.id, event: "message", data: [] };
      return;
    }
    const colon = text.indexOf(":");
    const name = colon < 0 ? text : text.slice(0, colon);
    const value = colon < 0 ? "" : text.slice(colon + 1).replace(/^ /, "");
    if (name === "data") event.data.push(value);
    if (name === "id" || name === "event") event[name] = value;
  };
  return (piece) => {
    // A carriage return at the end may be half of a line end.
    const lines = (rest + piece).split(/\r\n|\n|\r(?!$)/);
    rest = lines.pop();
    lines.forEach(line);
  };
}
