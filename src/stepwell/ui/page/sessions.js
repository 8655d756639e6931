/** The list of sessions beside the thread: newest first, searched, paged, refreshed now and then. */

import { get, patch } from "./api.js";
import { batch, signal } from "./html.js";

const [PAGE, POLL, QUICKEST] = [40, 15_000, 3000];

export const sessions = signal([]);
export const sessionsState = signal({ isLoading: true, problem: null, next: null });
export const search = signal("");
export const showsArchived = signal(false);
/** What the open thread knows of its own session: sooner than the list does. */
export const ownState = signal({ id: "", status: "idle" });
/** The execution whose page is open: it belongs to a session of the list. */
export const shownExecution = signal(null);
/** Sessions that this tab began: their first answer may be there before anybody listens. */
export const begunHere = new Set();
/** The session that was changed here last, which may be the open one. */
export const changed = signal(null);
export const agents = signal({ items: [], default: null, isLoaded: false });

let [asked, timer, lastAt, poll] = [0, 0, 0, 0];

const pathOf = (cursor) => {
  const query = new URLSearchParams({ limit: String(PAGE), status: showsArchived.peek() ? "archived" : "active" });
  if (search.peek().trim()) query.set("search", search.peek().trim().slice(0, 200));
  if (cursor) query.set("cursor", cursor);
  return `agent/sessions?${query}`;
};

/** The first page again; what was paged in below it stays. */
export async function refresh({ isReload = false } = {}) {
  const mine = ++asked;
  clearTimeout(timer);
  timer = 0;
  lastAt = Date.now();
  if (isReload) sessionsState.value = { ...sessionsState.value, isLoading: true };
  try {
    const page = await get(pathOf());
    if (mine !== asked) return;
    batch(() => {
      const fresh = new Set(page.items.map(({ id }) => id));
      const oldest = page.items.at(-1)?.updated_at ?? "";
      const below = isReload || page.next === null ? [] : sessions.value.filter((one) => !fresh.has(one.id) && one.updated_at <= oldest);
      sessions.value = [...page.items, ...below];
      const next = below.length ? sessionsState.value.next : page.next;
      sessionsState.value = { isLoading: false, problem: null, next };
    });
  } catch (problem) {
    if (mine === asked) sessionsState.value = { ...sessionsState.value, isLoading: false, problem };
  }
}

export async function loadMore() {
  const { next, isLoading } = sessionsState.value;
  if (next === null || isLoading) return;
  const mine = ++asked;
  sessionsState.value = { ...sessionsState.value, isLoading: true };
  try {
    const page = await get(pathOf(next));
    if (mine !== asked) return;
    const known = new Set(sessions.value.map(({ id }) => id));
    sessions.value = [...sessions.value, ...page.items.filter(({ id }) => !known.has(id))];
    sessionsState.value = { isLoading: false, problem: null, next: page.next };
  } catch (problem) {
    if (mine === asked) sessionsState.value = { ...sessionsState.value, isLoading: false, problem };
  }
}

/** Something happened: look soon, but not more often than every few seconds. */
export function refreshSoon() {
  if (!timer) timer = setTimeout(refresh, Math.max(200, lastAt + QUICKEST - Date.now()));
}

/** A session changes at once in the list, and back if the server refuses. */
export async function change(session, changes) {
  const [before, isGone] = [sessions.value, changes.status !== undefined];
  sessions.value = before.flatMap((one) => (one.id !== session.id ? [one] : isGone ? [] : [{ ...one, ...changes }]));
  try {
    changed.value = await patch(`agent/sessions/${encodeURIComponent(session.id)}`, changes);
    return changed.value;
  } catch (problem) {
    sessions.value = before;
    throw problem;
  }
}

export async function loadAgents() {
  try {
    agents.value = { ...(await get("agent/agents")), isLoaded: true };
  } catch (problem) {
    if (problem.status !== 401) setTimeout(loadAgents, 5000);
  }
}

/** Polls while the tab is seen; what it returns ends that. */
export function keepFresh() {
  const look = () => {
    if (!document.hidden) void refresh();
  };
  sessions.value = []; // those of whoever was signed in before
  poll = setInterval(look, POLL);
  document.addEventListener("visibilitychange", look);
  void refresh({ isReload: true });
  void loadAgents();
  return () => {
    clearInterval(poll);
    document.removeEventListener("visibilitychange", look);
  };
}
