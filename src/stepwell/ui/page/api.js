/**
 * The HTTP API as the page asks it. Paths are relative to the page, so that it works wherever the
 * app is mounted. A key, where the server wants one, is kept for this tab only.
 */

import { parse, stringify } from "./exact_json.js";
import { signal } from "./html.js";

// All that is kept for the tab is named so.
const KEY = "stepwell.key";

/** Why the sign-in form is shown; null if no sign-in is needed. */
export const signInWanted = signal(null);

/** Whether a key is in use, so that one can sign out. */
export const isSignedIn = signal(sessionStorage.getItem(KEY) !== null);

/** What went wrong: `code` is for programs, `detail` for people. Status 0 means no response. */
export class Problem extends Error {
  constructor(status, code, detail, retryAfter = 0, pending = []) {
    super(detail);
    Object.assign(this, { name: "Problem", status, code, detail, retryAfter, pending });
  }
}

/** After these statuses asking again does not help. */
export const HOPELESS = [401, 403, 404];

/** Another key may belong to another person, so the page starts over without the previous data. */
export function signIn(key) {
  const before = sessionStorage.getItem(KEY);
  const isAnother = before !== null && before !== key.trim();
  if (isAnother) forgetAll();
  sessionStorage.setItem(KEY, key.trim());
  if (isAnother) return location.reload();
  isSignedIn.value = true;
  signInWanted.value = null;
}

export function signOut() {
  forgetAll();
  history.replaceState(null, "", "#/");
  location.reload();
}

/** The key and what was typed with it; what was fetched goes with the page itself. */
function forgetAll() {
  for (const name of Object.keys(sessionStorage)) {
    if (name.startsWith("stepwell.")) sessionStorage.removeItem(name);
  }
}

export const get = (path) => asked("GET", path);
export const post = (path, body = {}, headers = {}) => asked("POST", path, body, headers);
export const patch = (path, body) => asked("PATCH", path, body);

/** An open response to read events from. */
export async function stream(path, headers, abort) {
  return checked(await answered(path, { headers: { ...ownHeaders(), ...headers }, signal: abort, cache: "no-store" }));
}

async function asked(method, path, body, headers = {}) {
  const sent = body === undefined ? {} : { body: stringify(body) };
  const type = body === undefined ? {} : { "content-type": "application/json" };
  const options = { method, headers: { ...ownHeaders(), ...type, ...headers }, cache: "no-store", ...sent };
  const response = await checked(await answered(path, options));
  try {
    return parse(await response.text());
  } catch {
    throw new Problem(0, "no_answer", "The connection was lost during the response. Try again.");
  }
}

async function answered(path, options) {
  try {
    return await fetch(path, { credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, "no_answer", "The server does not respond. Check that it is running and that you are online.");
  }
}

async function checked(response) {
  if (response.ok) return response;
  const body = await response.text().then(parse).catch(() => ({}));
  const detail = body.detail || `The server returned ${response.status} ${response.statusText}`;
  const problem = new Problem(response.status, body.code || "error", detail, Number(response.headers.get("retry-after")), body.pending);
  if (response.status === 401) {
    const hadKey = sessionStorage.getItem(KEY) !== null;
    signInWanted.value = hadKey ? "The server rejected this key. It may be mistyped, revoked or expired." : "";
  }
  throw problem;
}

function ownHeaders() {
  const key = sessionStorage.getItem(KEY);
  return key ? { authorization: `Bearer ${key}` } : {};
}
