/**
 * A window on the stored messages of a session, without gaps: the newest at first, moved by pages. What
 * is far from the reader is let go, so that each page costs the same.
 */

import { get } from "./api.js";

const [PAGE, MOST, MOST_PAGES_AT_ONCE] = [150, 600, 20];

const byTime = (a, b) =>
  (a.created_at < b.created_at ? -1 : Number(a.created_at > b.created_at)) || (a.id < b.id ? -1 : 1);

/** When the first execution began that is shown live; "~" is behind every time. */
const liveSince = ({ unfinished }) => unfinished[0]?.created_at ?? "~";

export class StoredPages {
  /** @param {string} path of the session */
  constructor(path) {
    this._path = `${path}/messages?limit=${PAGE}`;
    this._forget();
  }

  _forget() {
    this.items = [];
    this.hasOlder = false;
    /** Whether newer ones were let go: then the window is not at the end. */
    this.hasNewer = false;
    /** Cursors by the message that they stand at. */
    this._cursors = new Map();
  }

  /** Back to the end. */
  async fetchEnd() {
    const page = await get(this._path);
    this._forget();
    this._join(page);
    this.hasOlder = page.has_older;
    this._liveSince = liveSince(page);
    return page;
  }

  /** What is new, with all pages between it and the window. A window that is not at the end stays; another
   * one reaches back to what was shown live, so that nothing vanishes when stored messages replace it. */
  async fetchNewest(isAtEnd) {
    if (!this.items.length || (isAtEnd && !this.hasNewer && this.items.length > MOST)) return this.fetchEnd();
    const first = await get(this._path);
    if (this.hasNewer) return first;
    const known = new Set(this.items.map(({ id }) => id));
    const meets = ({ items, has_older: hasOlder }) => !hasOlder || items.some(({ id }) => known.has(id));
    this._join(first);
    let [page, count] = [first, 1];
    for (; count < MOST_PAGES_AT_ONCE && !meets(page); count++) {
      page = await get(`${this._path}&before=${encodeURIComponent(page.older)}`);
      this._join(page);
    }
    if (!meets(page)) {
      this.items = this.items.filter(({ id }) => !known.has(id));
      this.hasOlder = true;
    }
    const isShort = () => this.hasOlder && this.items[0].created_at > this._liveSince && !(isAtEnd && this.items.length >= MOST);
    for (; count < MOST_PAGES_AT_ONCE && isShort(); count++) await this._joinOlder();
    this._liveSince = liveSince(first);
    return first;
  }

  async fetchOlder() {
    await this._joinOlder();
    const last = this._lastCut((place) => place < MOST);
    if (this.items.length <= MOST || last < 0) return;
    this.items = this.items.slice(0, last + 1);
    this.hasNewer = true;
  }

  async _joinOlder() {
    const cursor = this._cursors.get(this.items[0].id);
    const page = await get(`${this._path}&before=${encodeURIComponent(cursor)}`);
    this._join(page);
    this.hasOlder = page.has_older;
  }

  async fetchNewer() {
    const cursor = this._cursors.get(this.items.at(-1).id);
    const page = await get(`${this._path}&after=${encodeURIComponent(cursor)}`);
    this._join(page);
    this.hasNewer = page.has_newer;
    const spare = this.items.length - MOST;
    const first = spare > 0 ? this.items.findIndex(({ id }, place) => place >= spare && this._cursors.has(id)) : -1;
    if (first < 0) return;
    this.items = this.items.slice(first);
    this.hasOlder = true;
  }

  /** Windows begin and end where a cursor is known. */
  _lastCut(isFit) {
    return this.items.findLastIndex(({ id }, place) => isFit(place) && this._cursors.has(id));
  }

  _join({ items, older, newer }) {
    if (!items.length) return;
    this._cursors.set(items[0].id, older);
    this._cursors.set(items.at(-1).id, newer);
    const fresh = new Set(items.map(({ id }) => id));
    this.items = [...this.items.filter(({ id }) => !fresh.has(id)), ...items].sort(byTime);
  }
}
