/**
 * Follows the log of a session: server-sent events over fetch, since EventSource can send no key.
 * A line that breaks is taken up again behind the last event that came, so nothing is lost or doubled.
 */

import { HOPELESS, Problem, stream } from "./api.js";
import { parse } from "./exact_json.js";
import { newParser } from "./sse.js";

const [FIRST_WAIT, LONGEST_WAIT, SILENCE, HIDDEN] = [500, 10_000, 45_000, 30_000];

/** @typedef {{state: "live" | "connecting" | "offline" | "resting" | "ended", reason: string}} LineState
 * @param {string} sessionId @param {number} after
 * @param {{onEnvelope: (envelope: object) => void, onReset: (newest: number) => void, onLine: (state: LineState) => void}} hearer
 * @returns {{close: () => void, hurry: () => void}} `hurry` is for who knows that the server is there */
export function follow(sessionId, after, hearer) {
  const line = new Line(sessionId, after, hearer);
  return { close: () => line.close(), hurry: () => line.hurry() };
}

class Line {
  constructor(sessionId, after, hearer) {
    this._path = `agent/sessions/${encodeURIComponent(sessionId)}/events`;
    this._last = after;
    this._hearer = hearer;
    this._failures = 0;
    this._wait = 0;
    this._current = null;
    this._isResting = false;
    this._onSeen = () => this._rest();
    this._onOnline = () => this._hurry();
    document.addEventListener("visibilitychange", this._onSeen);
    addEventListener("online", this._onOnline);
    this._tell("connecting");
    void this._open();
  }

  close() {
    document.removeEventListener("visibilitychange", this._onSeen);
    removeEventListener("online", this._onOnline);
    clearTimeout(this._restTimer);
    this._drop();
  }

  /** Does not wait any longer, if it waits. */
  hurry() {
    if (this._wait) this._hurry();
  }

  _tell(state, reason = "") {
    this._hearer.onLine({ state, reason });
  }

  async _open() {
    this._wait = 0;
    const own = (this._current = new AbortController());
    try {
      // What the server gave as the last event's id goes back as it is.
      const headers = { "last-event-id": String(this._last) };
      const response = await stream(this._path, headers, own.signal);
      this._failures = 0;
      this._tell("live");
      await read(response.body, (event) => own === this._current && this._hear(event), own);
      if (own === this._current) this._again(null);
    } catch (error) {
      // What was let go on purpose breaks too; a defect in what hears is none of the line's.
      if (own === this._current) this._again(error instanceof Problem ? error : null);
      if (!(error instanceof Problem) && error.name !== "AbortError") throw error;
    }
  }

  _hear({ id, event, data }) {
    if (id) this._last = id;
    if (event === "reset") this._hearer.onReset(parse(data).newest);
    else this._hearer.onEnvelope(parse(data));
  }

  _again(problem) {
    if (HOPELESS.includes(problem?.status)) return this._tell("ended", problem.detail);
    const wait = Math.min(LONGEST_WAIT, FIRST_WAIT * 2 ** this._failures) * (0.75 + Math.random() / 2);
    this._failures += 1;
    const isOffline = problem?.status === 0 && this._failures > 2;
    this._tell(isOffline ? "offline" : "connecting", problem?.detail ?? "The connection was lost.");
    this._wait = setTimeout(() => this._open(), Math.max(wait, (problem?.retryAfter || 0) * 1000));
  }

  /** A hidden tab gives its line back after a while: browsers have few per server. */
  _rest() {
    clearTimeout(this._restTimer);
    if (!document.hidden) return this._isResting && this._hurry();
    this._restTimer = setTimeout(() => {
      this._isResting = true;
      this._drop();
      this._tell("resting", "Updates resume when this tab is visible.");
    }, HIDDEN);
  }

  /** Opens it now: what it waited for is there again. */
  _hurry() {
    if (document.hidden && this._isResting) return;
    this._isResting = false;
    this._failures = 0;
    this._drop();
    this._tell("connecting");
    void this._open();
  }

  _drop() {
    clearTimeout(this._wait);
    this._wait = 0;
    const old = this._current;
    this._current = null;
    old?.abort();
  }
}

/** Reads events until the line ends; one on which nothing comes, not even a sign of life, is cut. */
async function read(body, hear, own) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  const take = newParser(hear);
  for (;;) {
    const silence = setTimeout(() => own.abort(), SILENCE);
    try {
      const { value, done } = await reader.read();
      if (done) return;
      take(value);
    } catch (error) {
      if (error instanceof TypeError || error.name === "AbortError") {
        throw new Problem(0, "line_broke", "The connection to the server was lost.");
      }
      throw error;
    } finally {
      clearTimeout(silence);
    }
  }
}
