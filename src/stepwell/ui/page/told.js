/**
 * Which events the stored messages tell already. Pure: no page, no network.
 *
 * A message that is queued while another execution runs makes the log be followed from there on: by
 * then that execution may be over, and its events come although its messages are stored.
 */

export class Told {
  _last = -1;
  _open = new Set();
  /** Subagents are not in `unfinished`: they belong to the execution that a user began. */
  _parents = new Map();
  _newest = new Map();

  /** From here on by these messages. @param {{last_seq: number, unfinished: {id: string}[]}} page */
  adopt({ last_seq: last, unfinished }) {
    this._last = last;
    this._open = new Set(unfinished.map(({ id }) => id));
  }

  /** Whether the stored messages tell what this envelope does. */
  has({ seq, execution_id: id, payload }) {
    if (payload?.parent_execution_id) this._parents.set(id, payload.parent_execution_id);
    if (id) this._newest.set(id, Math.max(seq, this._newest.get(id) ?? 0));
    return this.isPast({ seq }) && this._isOver(id);
  }

  /** Whether it came before the messages were read: what executions were then is in `unfinished`. */
  isPast({ seq }) {
    return seq <= this._last;
  }

  /** The executions of which the stored messages tell all that came, subagents among them. */
  get over() {
    return [...this._newest].filter(([id, seq]) => this.isPast({ seq }) && this._isOver(id)).map(([id]) => id);
  }

  /** Whether one of these executions, which were over, was heard of again since. */
  goesOn(ids) {
    return [...ids].some((id) => this._newest.get(id) > this._last && !this._open.has(id));
  }

  _isOver(id) {
    let top = id;
    while (this._parents.has(top)) top = this._parents.get(top);
    return !this._open.has(top);
  }
}
