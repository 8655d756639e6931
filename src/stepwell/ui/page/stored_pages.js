/** The stored messages of a session, as far as they were fetched: the newest pages, without gaps. */

import { get } from "./api.js";

const [PAGE, MOST_KEPT, MOST_PAGES_AT_ONCE] = [150, 400, 20];

const byTime = (a, b) =>
  (a.created_at < b.created_at ? -1 : Number(a.created_at > b.created_at)) || (a.id < b.id ? -1 : 1);

export class StoredPages {
  /** @param {string} path of the session */
  constructor(path) {
    this.items = [];
    this.hasOlder = false;
    this._older = null;
    this._path = `${path}/messages?limit=${PAGE}`;
  }

  /** The newest page, and more of them if there is a gap to what is kept. What came before stays,
   * unless it is much and `mayForget`: then the list begins anew, and older ones can be fetched again. */
  async fetchNewest(mayForget) {
    const first = await get(this._path);
    if (!this.items.length || (mayForget && this.items.length > MOST_KEPT)) {
      this.items = [...first.items];
      this._setOlder(first);
      return first;
    }
    const known = new Set(this.items.map(({ id }) => id));
    const meets = ({ items, has_older: hasOlder }) => !hasOlder || items.some(({ id }) => known.has(id));
    this._join(first);
    for (let [page, count] = [first, 1]; count < MOST_PAGES_AT_ONCE && !meets(page); count++) {
      page = await this._before(page.older);
      this._join(page);
    }
    return first;
  }

  async fetchOlder() {
    const page = await this._before(this._older);
    this._join(page);
    this._setOlder(page);
  }

  _before(cursor) {
    return get(`${this._path}&before=${encodeURIComponent(cursor)}`);
  }

  _setOlder({ older, has_older: hasOlder }) {
    [this._older, this.hasOlder] = [older, hasOlder];
  }

  _join({ items }) {
    const fresh = new Set(items.map(({ id }) => id));
    this.items = [...this.items.filter(({ id }) => !fresh.has(id)), ...items].sort(byTime);
  }
}
