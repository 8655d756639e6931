/**
 * Server-sent events out of pieces of text. Pure.
 */

/** Reads pieces as they come: `push(text)` gives the events that are whole now: {id, event, data}. */
export class EventLines {
  constructor() {
    this.rest = "";
    this.event = { id: "", event: "message", data: [] };
  }

  push(text) {
    const lines = (this.rest + text).split(/\r\n|\n|\r(?!$)/);
    this.rest = lines.pop();
    return lines.map((line) => this.line(line)).filter((event) => event !== null);
  }

  line(line) {
    if (line === "") {
      const { id, event, data } = this.event;
      this.event = { id, event: "message", data: [] };
      return data.length === 0 ? null : { id, event, data: data.join("\n") };
    }
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "data") this.event.data.push(value);
    else if (name === "id" || name === "event") this.event[name] = value;
    return null;
  }
}
