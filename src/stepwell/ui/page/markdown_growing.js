/**
 * Blocks that grow long while they are written: lists, tables and fenced code.
 *
 * Of a list or a table the items and rows that are whole are kept, and the tail begins after
 * them; of open code only new lines are looked at. So a long block costs no more than a short.
 */

// A shorter block is simply read again.
const LONG_BLOCK = 1_000;

/**
 * What the last block is kept by, and how much of the tail it took; null if it is just read again.
 * @param tokens the blocks that may still change @param open how the first is kept already
 */
export const growing = (tokens, open, tail) => {
  const shown = tokens.filter((token) => token.type !== "space");
  if (shown.length !== 1 || tail.length < LONG_BLOCK) return null;
  const [token] = shown;
  if (token.type === "list") return keptItems(token, open, tail);
  if (token.type === "table") return keptRows(token, open, tail);
  if (token.type === "code") return openCode(token, tail);
  return null;
};

const keptItems = (list, open, tail) => {
  const kept = open?.items ?? [];
  const fresh = list.items.slice(kept.length);
  const length = fresh.slice(0, -1).reduce((sum, item) => sum + item.raw.length, 0);
  const firstLineIsWhole = tail.indexOf("\n", length) >= 0;
  if (fresh.length < 2 || !firstLineIsWhole) return null;
  return { open: new OpenList(list, list.items.slice(0, -1)), length };
};

class OpenList {
  prefix = "";

  constructor(list, items) {
    this.list = list;
    this.items = items;
  }

  read() {
    return null;
  }

  /** The tail's blocks, the kept items put before those of its list; null if there is none. */
  joined([first, ...rest]) {
    if (first?.type !== "list" || first.ordered !== this.list.ordered) return null;
    const items = [...this.items, ...first.items];
    const loose = this.list.loose || first.loose;
    const list = { ...first, items, loose, start: this.list.start, rawLength: first.raw.length };
    return [list, ...rest];
  }
}

const keptRows = (table, open, tail) => {
  const kept = open?.rows ?? [];
  const fresh = table.rows.length - kept.length;
  const skipped = open === null ? 2 : 0;
  const lines = tail.split("\n");
  // The row of the last line may still change, the rows before it can't.
  const whole = Math.min(fresh, lines.length - 1 - skipped);
  if (whole < 1) return null;
  const heading = open === null ? `${lines[0]}\n${lines[1]}\n` : open.prefix;
  const length = lines.slice(0, skipped + whole).reduce((sum, line) => sum + line.length + 1, 0);
  return { open: new OpenTable(heading, table.rows.slice(0, kept.length + whole)), length };
};

class OpenTable {
  constructor(heading, rows) {
    this.prefix = heading;
    this.rows = rows;
  }

  read() {
    return null;
  }

  joined([first, ...rest]) {
    if (first?.type !== "table") return null;
    return [{ ...first, rows: [...this.rows, ...first.rows], rawLength: first.raw.length }, ...rest];
  }
}

const openCode = (token, tail) => {
  const opening = /^(`{3,}|~{3,})([^\n]*)\n/.exec(tail);
  if (opening === null || token.lang === undefined) return null;
  const code = new OpenCode(token.lang, opening[1], opening[0].length);
  return code.read(tail) === null ? null : { open: code, length: 0 };
};

class OpenCode {
  prefix = "";

  constructor(lang, fence, start) {
    this.lang = lang;
    this.fence = fence;
    this.start = start;
    this.scanned = start;
  }

  /** The block so far; null when its end has come, and it is to be read as a whole. */
  read(tail) {
    let line = this.scanned;
    for (let end = tail.indexOf("\n", line); end >= 0; end = tail.indexOf("\n", line)) {
      if (this.isEnd(tail.slice(line, end))) return null;
      line = end + 1;
    }
    this.scanned = line;
    const isEnding = this.isEnd(tail.slice(line));
    const end = isEnding ? Math.max(line - 1, this.start) : tail.length;
    return { type: "code", raw: "", lang: this.lang, text: tail.slice(this.start, end) };
  }

  isEnd(line) {
    const bare = line.trim();
    return bare.startsWith(this.fence) && line.search(/\S/) < 4 && !/[^`~]/.test(bare);
  }

  /** Its end has come: it is read as a block like others. */
  joined(tokens) {
    return tokens;
  }
}
