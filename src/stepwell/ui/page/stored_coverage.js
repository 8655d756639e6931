/**
 * Decides which events the stored messages already cover. Pure: no page, no network.
 *
 * A message that is queued while another execution runs makes the page follow the journal from there.
 * By then that execution may be over, and its events arrive although its messages are stored.
 */

export class StoredCoverage {
  _last = -1;
  _open = new Set();
  /** Subagents are not in `unfinished`: they belong to the execution that a user started. */
  _parents = new Map();
  _newest = new Map();

  /** Use these stored messages from now on. @param {{last_seq: number, unfinished: {id: string}[]}} page */
  adopt({ last_seq: last, unfinished }) {
    this._last = last;
    this._open = new Set(unfinished.map(({ id }) => id));
  }

  /** Whether the stored messages cover this envelope. */
  covers({ seq, execution_id: id, payload }) {
    if (payload?.parent_execution_id) this._parents.set(id, payload.parent_execution_id);
    if (id) this._newest.set(id, Math.max(seq, this._newest.get(id) ?? 0));
    return this.isPast({ seq }) && this._isOver(id);
  }

  /** Whether the event was stored before the messages were read. */
  isPast({ seq }) {
    return seq <= this._last;
  }

  /** The executions that the stored messages cover completely, including subagents. */
  get over() {
    return [...this._newest].filter(([id, seq]) => this.isPast({ seq }) && this._isOver(id)).map(([id]) => id);
  }

  /** Whether one of these finished executions has newer events. */
  hasNewer(ids) {
    return [...ids].some((id) => this._newest.get(id) > this._last && !this._open.has(id));
  }

  _isOver(id) {
    let top = id;
    while (this._parents.has(top)) top = this._parents.get(top);
    return !this._open.has(top);
  }
}
