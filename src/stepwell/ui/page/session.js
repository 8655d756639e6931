/**
 * One open session: what is stored, what comes live, what is being sent. Views read its signals.
 *
 * Envelopes are taken in once per frame, however many came.
 */

import * as lists from "../message_list.js";
import { HOPELESS, get, post } from "./api.js";
import { endingOf, storedEnding } from "./endings.js";
import { batch, signal } from "./html.js";
import { follow } from "./live.js";
import { begunHere } from "./sessions.js";
import { answeredBy, asHistory } from "./stored.js";
import { StoredPages } from "./stored_pages.js";
import { StoredCoverage } from "./stored_coverage.js";
import { steady } from "./turns.js";

const OVER = ["completed", "failed", "cancelled", "stopped"];
const [RETRY, SLOWEST_RETRY, WHILE_HIDDEN] = [3000, 10_000, 200];

const later = (work) => {
  const timer = setTimeout(work, WHILE_HIDDEN);
  return () => clearTimeout(timer);
};
const nextFrame = (work) => {
  const frame = requestAnimationFrame(work);
  return () => cancelAnimationFrame(frame);
};
const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

export class OpenSession {
  /** @param {string} id
   * @param {{onNews: () => void, isAtEnd: () => boolean}} around gets a call when something happened,
   *   and whether the reader is at the end, so that what is far above may be let go */
  constructor(id, { onNews, isAtEnd }) {
    this.id = id;
    this.session = signal(null);
    this.isLoaded = signal(false);
    this.problem = signal(null);
    this.line = signal({ state: "connecting", reason: "" });
    /** The messages to show, and the status of the newest execution. */
    this.shown = signal([]);
    this.status = signal("idle");
    /** Executions that are not over, by id; which one answers which message of a user. */
    this.executions = signal(new Map());
    this.users = signal(new Map());
    /** What there is before and behind the messages that are shown. */
    this.older = signal({ hasMore: false, isLoading: false, problem: null });
    this.newer = signal({ hasMore: false, isLoading: false, problem: null });
    this.sending = signal([]);
    /** How the newest execution ended, for those who can't see it: its answer, or why there is none. */
    this.ending = signal("");

    this._path = `agent/sessions/${encodeURIComponent(id)}`;
    this._around = { onNews, isAtEnd };
    this._stored = new StoredPages(this._path);
    this._list = lists.emptyList();
    this._queue = [];
    this._known = new Set();
    this._ended = new Set();
    this._coverage = new StoredCoverage();
    void this.load();
  }

  close() {
    this._isClosed = true;
    clearTimeout(this._retry);
    this._cancelFrame?.();
    this._follower?.close();
  }

  /** From the beginning: at the opening, when what was over goes on, and after a reset, from which on
   * the journal covers only what came after `through`. */
  async load(through = null) {
    clearTimeout(this._retry);
    this._follower?.close();
    this._queue = [];
    const mine = (this._loads = (this._loads ?? 0) + 1);
    try {
      const [session, page] = await Promise.all([get(this._path), this._stored.fetchNewest(this._around.isAtEnd())]);
      if (!this._isClosed && mine === this._loads) this._begin(session, page, through);
    } catch (problem) {
      if (this._isClosed || mine !== this._loads) return;
      this.problem.value = problem;
      // Nothing is wrong with the line if there is no such session.
      const state = problem.status === 404 ? "gone" : "offline";
      this.line.value = { state, reason: problem.detail ?? String(problem) };
      if (!HOPELESS.includes(problem.status)) this._retry = setTimeout(() => this.load(through), RETRY);
    }
  }

  _begin(session, page, through) {
    const from = through ?? page.settled_seq;
    this._known.clear();
    this._ended.clear();
    batch(() => {
      this.session.value = session;
      this.problem.value = null;
      this.isLoaded.value = true;
      this._adopt(page);
      // What the journal no longer has is covered by the stored messages.
      this._list = lists.fromHistory(this._history(through === null ? page.unfinished : []), from);
      this._show();
      if (begunHere.delete(this.id)) this.ending.value = storedEnding(this._stored.items);
    });
    this._follower = follow(this.id, from, {
      onEnvelope: (envelope) => this._receive(envelope),
      onReset: (newest) => void this.load(newest),
      onLine: (state) => (this.line.value = state),
    });
  }

  /** More of what came before; `onFetched` is called just before it is shown. */
  loadOlder(onFetched) {
    return this._move(this.older, () => this._stored.fetchOlder(), onFetched);
  }

  /** The same towards the end, from which the reader has gone far away. */
  async loadNewer(onFetched) {
    if (!this._stored.hasNewer) return;
    await this._move(this.newer, () => this._stored.fetchNewer(), onFetched);
    if (!this._stored.hasNewer) await this.load();
  }

  /** Back to the end, wherever the reader is. */
  async showNewest() {
    if (!this._stored.hasNewer) return;
    await this._stored.fetchEnd();
    await this.load();
  }

  async _move(side, fetch, onFetched) {
    if (!side.value.hasMore || this.older.value.isLoading || this.newer.value.isLoading) return;
    side.value = { hasMore: true, isLoading: true, problem: null };
    try {
      await fetch();
      onFetched();
      batch(() => {
        const { history, steps } = lists.fromHistory(this._history([...this.executions.value.values()]));
        this._list = { ...this._list, history, steps };
        this._show();
      });
    } catch (problem) {
      side.value = { hasMore: true, isLoading: false, problem };
    }
  }

  /** Sends a message; throws what went wrong, and then nothing is shown of it. */
  async send(content, key) {
    const own = { key, content };
    this.sending.value = [...this.sending.value, own];
    try {
      const sent = await post(`${this._path}/messages`, { content }, { "idempotency-key": key });
      this.reached();
      batch(() => {
        this.session.value = sent.session;
        this._hearMessage({ ...sent.message, message_id: sent.message.id });
        this._show();
      });
    } finally {
      this.sending.value = this.sending.value.filter((one) => one !== own);
    }
  }

  /** The server answered: a line that waits before it is tried again need not wait. */
  reached() {
    this._follower?.hurry();
  }

  /** Looks what an execution waits for now. */
  async refreshExecution(id) {
    try {
      const found = await get(`agent/executions/${encodeURIComponent(id)}`);
      const isOver = OVER.includes(found.status) || this._ended.has(id) || this._coverage.over.includes(id);
      this._setExecution(id, isOver ? null : found);
    } catch {
      // The next event says it again.
    }
  }

  /** What a paused execution waits for now. */
  showPending(id, pending) {
    this._setExecution(id, { status: "paused", pending });
  }

  /** An execution is over: the stored messages take the place of what was streamed. */
  async _settle() {
    if (this._isSettling) return;
    this._isSettling = true;
    for (let failures = 0; this._ended.size && !this._isClosed;) {
      // What ends while the page is fetched may not be over in it: that is for the next look.
      const ended = [...this._ended];
      try {
        const page = await this._stored.fetchNewest(this._around.isAtEnd());
        if (page.settled_seq < this._list.through) {
          this._isSettling = false;
          return void this.load(); // a finished execution was resumed, and is live again
        }
        for (const id of ended) this._ended.delete(id);
        this._reconcile(page);
      } catch {
        failures += 1;
        await pause(Math.min(SLOWEST_RETRY, 500 * 2 ** failures));
      }
    }
    this._isSettling = false;
    this._around.onNews();
  }

  _reconcile(page) {
    batch(() => {
      this._adopt(page);
      this._list = lists.reconciled(this._list, this._history(page.unfinished), page.settled_seq, this._coverage.over);
      this._show();
    });
    if (this._coverage.hasNewer(this._storedExecutions())) void this.load();
  }

  _show() {
    this.older.value = { hasMore: this._stored.hasOlder, isLoading: false, problem: null };
    this.newer.value = { hasMore: this._stored.hasNewer, isLoading: false, problem: null };
    this._draw();
  }

  _draw() {
    this.status.value = lists.status(this._list);
    // Far from the end only what is stored is shown: what comes live stands behind what was let go.
    const messages = this._stored.hasNewer ? this._list.history : lists.messages(this._list);
    this.shown.value = steady(this.shown.peek(), messages);
  }

  _history(unfinished) {
    const history = asHistory(this._stored.items, unfinished);
    for (const { id, role } of history) if (role === "user") this._known.add(id);
    this.users.value = new Map([...this.users.value, ...answeredBy(this._stored.items)]);
    return history;
  }

  /** Adopt the unfinished executions; what the messages of the page cover is not shown live as well. */
  _adopt(page) {
    this.executions.value = new Map(page.unfinished.map((one) => [one.id, one]));
    this._coverage.adopt(page);
  }

  _storedExecutions() {
    return new Set(this._stored.items.map((one) => one.agent_execution_id));
  }

  _setExecution(id, change) {
    const next = new Map(this.executions.value);
    if (change === null) next.delete(id);
    else next.set(id, { id, pending: [], ...next.get(id), ...change });
    this.executions.value = next;
  }

  _receive(envelope) {
    this._queue.push(envelope);
    // Nothing is drawn in a hidden tab, but what came has to be taken in.
    this._cancelFrame ??= (document.hidden ? later : nextFrame)(() => this._takeIn());
  }

  _takeIn() {
    this._cancelFrame = null;
    const came = this._queue;
    this._queue = [];
    let isNews = false;
    batch(() => {
      for (const envelope of came) isNews = this._hear(envelope) || isNews;
      this._draw();
    });
    if (isNews) this._around.onNews();
    if (this._ended.size) void this._settle();
  }

  /** Whether it is something that the list of sessions shows. */
  _hear(envelope) {
    const { id, seq, type, execution_id: execution, payload } = envelope;
    // What people read of an occurrence is in the payload of its one envelope.
    const eventType = payload?.event_type ?? type;
    if (this._coverage.covers(envelope)) {
      this._list = lists.received(this._list, { id, seq });
      return false;
    }
    // A finished execution was resumed: show it live from its beginning.
    const isBack = eventType === "execution.queued" && !this.executions.value.has(execution) && !this._ended.has(execution);
    if (isBack && this._storedExecutions().has(execution)) void this.load();
    this._list = lists.received(this._list, envelope);
    if (eventType === "message.sent") this._hearMessage(payload);
    // A repeated event would discard the form that a person is filling in.
    else if (this._coverage.isPast(envelope)) return false;
    else {
      if (eventType.startsWith("execution.")) this._hearExecution(eventType, execution, payload);
      if (type === "agent.status") this._hearStatus(execution, payload);
    }
    return eventType === "message.sent" || eventType.startsWith("execution.");
  }

  _hearMessage({ message_id: id, role, content, agent_execution_id: execution }) {
    if (role !== "user" || this._known.has(id)) return;
    this._known.add(id);
    const place = this.sending.value.findIndex((one) => one.content === content);
    if (place >= 0) this.sending.value = this.sending.value.toSpliced(place, 1);
    this._list = lists.said(this._list, content, id);
    this.users.value = new Map([...this.users.value, [id, execution]]);
  }

  _hearStatus(execution, payload) {
    const { status, parent_execution_id: parent } = payload;
    if (parent) return;
    if (OVER.includes(status)) {
      this._ended.add(execution);
      this._setExecution(execution, null);
      this.ending.value = endingOf(payload);
    } else if (status === "processing") {
      this._ended.delete(execution);
      this.ending.value = "";
      this._setExecution(execution, { status: "running", pending: [] });
    }
  }

  _hearExecution(type, execution, payload) {
    const known = this.executions.value.get(execution);
    if (type === "execution.started") this._setExecution(execution, { status: "running" });
    const pending = payload.metadata?.pending;
    // One of several answers came: the forms of the others stay, with what is written in them.
    if (type === "execution.paused" && !pending?.every((one) => one.question_id)) void this.refreshExecution(execution);
    else if (type === "execution.paused") this.showPending(execution, pending);
    if (type !== "execution.queued" || this._ended.has(execution)) return;
    if (known?.pending.length) void this.refreshExecution(execution);
    else this._setExecution(execution, { status: "pending" });
  }
}
