/**
 * Text of markdown as text of the page: character references and addresses.
 */

const NAMED = {
  amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0", copy: "©", reg: "®",
  trade: "™", hellip: "…", mdash: "—", ndash: "–", lsquo: "‘", rsquo: "’", ldquo: "“", rdquo: "”",
  laquo: "«", raquo: "»", bull: "•", middot: "·", deg: "°", plusmn: "±", times: "×", divide: "÷",
  larr: "←", uarr: "↑", rarr: "→", darr: "↓", harr: "↔", le: "≤", ge: "≥", ne: "≠", asymp: "≈",
  infin: "∞", euro: "€", pound: "£", yen: "¥", cent: "¢", sect: "§", para: "¶", micro: "µ",
  frac12: "½", frac14: "¼", frac34: "¾", sup2: "²", sup3: "³", check: "✓", star: "☆", hearts: "♥",
  alpha: "α", beta: "β", gamma: "γ", delta: "δ", pi: "π", sigma: "σ", omega: "ω", lambda: "λ",
  mu: "μ", Delta: "Δ", Sigma: "Σ", Omega: "Ω", sum: "∑", prod: "∏", radic: "√", colon: ":",
  Tab: "\t", NewLine: "\n", sol: "/", bsol: "\\", lpar: "(", rpar: ")", num: "#", excl: "!",
  semi: ";", comma: ",", period: ".", lowbar: "_", ast: "*", lsqb: "[", rsqb: "]", grave: "`",
};

const REFERENCE = /&(?:#(\d{1,7})|#[xX]([0-9a-fA-F]{1,6})|([A-Za-z][A-Za-z0-9]{1,31}));/g;

const character = (code) =>
  code === 0 || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)
    ? "\ufffd"
    : String.fromCodePoint(code);

/** `&amp;` and `&#38;` as the characters they stand for; names that are not known stay. */
export const dereferenced = (text) => {
  if (!text.includes("&")) return text;
  return text.replace(REFERENCE, (whole, decimal, hexadecimal, name) => {
    if (decimal !== undefined) return character(Number.parseInt(decimal, 10));
    if (hexadecimal !== undefined) return character(Number.parseInt(hexadecimal, 16));
    return Object.hasOwn(NAMED, name) ? NAMED[name] : whole;
  });
};

const SCHEMES = new Set(["http:", "https:", "mailto:"]);
const MOST_ADDRESS = 2_000;

/**
 * Where a link may lead: {href, host}, or null for everything that the page must not open
 * (scripts, data, addresses without a host, addresses that carry a name and pass for another).
 */
export const safeTarget = (address) => {
  const given = dereferenced(address);
  if (given.length > MOST_ADDRESS || !URL.canParse(given)) return null;
  const url = new URL(given);
  if (!SCHEMES.has(url.protocol) || url.username !== "" || url.password !== "") return null;
  if (url.protocol === "mailto:") return { href: url.href, host: url.pathname };
  return url.host === "" ? null : { href: url.href, host: url.host };
};

/** True if the text of a link shows its target, so that the host need not be repeated. */
export const tellsTarget = (text, target) => {
  const bare = text.trim().replace(/\/$/, "");
  const addresses = [target.href.replace(/\/$/, ""), target.host];
  return addresses.some((one) => bare === one || `http://${bare}` === one || `mailto:${bare}` === one);
};

const CHUNK = 4_000;

/** Long text in pieces that end with a line: what is there already is not set again. */
export const inPieces = (text) => {
  const pieces = [];
  let start = 0;
  while (text.length - start > CHUNK) {
    const line = text.indexOf("\n", start + CHUNK);
    if (line < 0 || line - start > 4 * CHUNK) break;
    pieces.push(text.slice(start, line + 1));
    start = line + 1;
  }
  pieces.push(text.slice(start));
  return pieces;
};
