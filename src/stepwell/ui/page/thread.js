/** The thread of one session: history, what comes live, questions, and the field to write in. */

import { post } from "./api.js";
import { Asking } from "./asking.js";
import { Composer } from "./composer.js";
import { revealed, revealedText, withFewMarks } from "./hidden_text.js";
import { Icon } from "./icons.js";
import { html, useEffect, useLayoutEffect, useMemo, useRef, useSignal, useSignalEffect } from "./html.js";
import { rowOf } from "./message.js";
import { OpenSession } from "./session.js";
import { agents, change, changed, ownState, refreshSoon, sessions } from "./sessions.js";
import { rowsOf, withOrigin } from "./turns.js";
import { clipped, isScripted } from "./words.js";

const [NEAR, SOON, MOST_ANCHORS] = [32, 200, 10];
const LINES = { live: "live", connecting: "reconnecting…", offline: "offline", resting: "paused", ended: "not live" };

export const Thread = ({ id }) => {
  const scroller = useRef(null);
  const isAtEnd = useSignal(true);
  const open = useMemo(() => new OpenSession(id, { onNews: refreshSoon, isAtEnd: () => isAtEnd.peek() }), [id]);
  useEffect(() => () => {
    open.close();
    ownState.value = { id: "", status: "idle" };
  }, [open]);
  useTitle(open);
  return html`
    <div class="thread" data-thread=${id} data-status=${open.status.value} data-line=${open.line.value.state}>
      <${Head} open=${open} />
      <${Scroller} open=${open} scroller=${scroller} isAtEnd=${isAtEnd} />
      <${Foot} open=${open} toEnd=${() => scrollToEnd(scroller.current)} isAtEnd=${isAtEnd} />
      <${Announcer} open=${open} />
    </div>`;
};

const scrollToEnd = (element) => {
  if (element) element.scrollTop = element.scrollHeight;
};

/** The session as it was heard of last: the list beside knows of changes that were made there. */
function newestOf(open) {
  const own = open.session.value;
  const others = [sessions.value.find(({ id }) => id === own?.id), changed.value?.id === own?.id ? changed.value : null];
  return others.reduce((best, one) => (best && one && one.updated_at >= best.updated_at ? one : best), own);
}

/** The tab says which session it is and whether something is under way. */
function useTitle(open) {
  useSignalEffect(() => {
    const waits = [...open.executions.value.values()].some((one) => one.pending?.length);
    const isWorking = open.status.value === "processing";
    const all = [...open.executions.value.values()];
    const current = all.find((one) => one.status !== "pending") ?? all[0];
    if (open.isLoaded.value) ownState.value = { id: open.id, status: current?.status ?? open.status.value };
    const mark = waits ? "● waiting for you · " : isWorking ? "● working · " : "";
    document.title = `${mark}${revealedText(newestOf(open)?.title ?? (open.line.value.state === "gone" ? "Not found" : "Conversation"))} · Stepwell`;
  });
}

const Head = ({ open }) => {
  const session = newestOf(open);
  const agent = agents.value.items.find((one) => one.name === session?.agent_type);
  const { state, reason } = open.line.value;
  return html`
    <header class="thread-head">
      <h1>${state === "gone" ? "Not found" : revealed(session?.title ?? (session ? "Untitled conversation" : ""))}</h1>
      ${session && html`<span class="chip">${session.agent_type}</span>`}
      ${isScripted(agent?.model) && html`<span class="chip scripted" title="Its words are scripted: no model is asked">scripted</span>`}
      ${state !== "gone" && html`<span class=${`line ${state}`} title=${reason}><i aria-hidden="true"></i><span>${state === "connecting" && !reason ? "connecting…" : LINES[state]}${state !== "live" && reason && html`<span class="reason">: ${reason}</span>`}</span></span>`}
    </header>`;
};

const Scroller = ({ open, scroller, isAtEnd }) => {
  const content = useRef(null);
  const anchor = useRef(null);
  const last = useRef({ top: 0, height: 0 });
  const [older, newer] = [open.older.value, open.newer.value];

  const keepPlace = () => {
    anchor.current = topOf(scroller.current, content.current);
  };
  const loadOlder = () => open.loadOlder(keepPlace);
  const loadNewer = () => open.loadNewer(keepPlace);
  const onScroll = ({ currentTarget: box }) => {
    const left = box.scrollHeight - box.scrollTop - box.clientHeight;
    // Rows that get their own size move the end away: only who scrolls up, further than it shrank, left.
    const shrunk = Math.max(0, last.current.height - box.scrollHeight);
    const hasLeft = box.scrollTop < last.current.top - shrunk - 1;
    last.current = { top: box.scrollTop, height: box.scrollHeight };
    if (open.newer.peek().hasMore || (hasLeft && left >= NEAR)) isAtEnd.value = false;
    else if (left < NEAR) isAtEnd.value = true;
    if (box.scrollTop < SOON && !isAtEnd.value) void loadOlder();
    else if (left < SOON) void loadNewer();
  };
  useEffect(() => {
    const box = scroller.current;
    const stick = new ResizeObserver(() => isAtEnd.peek() && !open.newer.peek().hasMore && scrollToEnd(box));
    stick.observe(content.current);
    stick.observe(box);
    return () => stick.disconnect();
  }, [open]);

  return html`
    <div class="scroller" ref=${scroller} onScroll=${onScroll} tabindex="0" role="region" aria-label="Conversation">
      <div class="messages" ref=${content} aria-busy=${String(open.status.value === "processing")}>
        ${older.hasMore && html`<${More} side=${older} load=${loadOlder} words="older" />`}
        <${Rows} open=${open} anchor=${anchor} scroller=${scroller} />
        ${newer.hasMore ? html`<${More} side=${newer} load=${loadNewer} words="newer" />` : html`<${Waiting} open=${open} />`}
      </div>
    </div>`;
};

const More = ({ side, load, words }) => html`
  <button type="button" class="plain older" disabled=${side.isLoading} onClick=${load}>
    ${side.isLoading ? `Loading ${words} messages…` : side.problem ? `Not loaded: ${side.problem.detail} Try again` : `Load ${words} messages`}
  </button>`;

/** The rows that are seen first, and where: one stays there when older ones come above it. Several,
 * since a row of a turn that was cut may be drawn again when the rest of it comes. */
function topOf(box, content) {
  const top = box.getBoundingClientRect().top;
  const rows = [...content.children].map((element) => ({ element, ...whereIs(element) }));
  return rows.filter(({ bottom, height }) => bottom > top && height > 0).slice(1, MOST_ANCHORS);
}

const whereIs = (element) => {
  const { top, bottom, height } = element.getBoundingClientRect();
  return { top, bottom, height };
};

const Rows = ({ open, anchor, scroller }) => {
  const [messages, users, executions] = [open.shown.value, open.users.value, open.executions.value];
  useLayoutEffect(() => {
    const kept = anchor.current;
    if (!kept?.length || open.older.peek().isLoading || open.newer.peek().isLoading) return;
    anchor.current = null;
    const hold = () => {
      const still = kept.find(({ element }) => element.isConnected);
      if (still && scroller.current) scroller.current.scrollTop += whereIs(still.element).top - still.top;
    };
    hold();
    // Rows that were only guessed in size have their own in the next frame.
    requestAnimationFrame(() => {
      hold();
      requestAnimationFrame(hold);
    });
  });
  if (!open.isLoaded.value) return html`<${Opening} open=${open} />`;
  const isAsked = (id) => executions.get(id)?.pending?.length > 0;
  const isBusy = [...executions.values()].some((one) => one.status === "running" || one.status === "paused");
  const rows = rowsOf(messages, users, (id) => executions.has(id));
  const origin = open.session.value?.metadata?.forked_from;
  return withOrigin(rows, origin, !open.older.value.hasMore).map((row) => {
    if (row.kind === "status" && row.message.id.endsWith(":status") && isAsked(row.execution)) return null;
    const isQueued = row.kind === "user" && isBusy && executions.get(row.execution)?.status === "pending";
    return rowOf(row, isQueued ? "Queued: it is answered after what runs now" : "");
  });
};

const Opening = ({ open }) => {
  const problem = open.problem.value;
  if (!problem) return html`<div class="opening" aria-busy="true"><span class="spinner"></span><span class="sr-only">Loading</span></div>`;
  const isGone = problem.status === 404;
  return html`<div class="opening problem" role="alert"><${Icon} name="alert" />
    <div><p>${isGone ? "There is no such conversation, or it is not yours." : problem.detail ?? String(problem)}</p>
    ${isGone ? html`<a href="#/">Start a new one</a>` : html`<button type="button" onClick=${() => open.load()}>Try again</button>`}</div></div>`;
};

/** What is being sent, and what is waited for. */
const Waiting = ({ open }) => html`
  ${open.sending.value.map((one) => html`<div class="row user sending" data-sending key=${one.key}><div class="bubble" dir="auto">${withFewMarks(one.content)}<span class="tag">Sending…</span></div></div>`)}
  ${[...open.executions.value.values()].filter((one) => one.pending?.length).map((one) => html`
    <${Asking} key=${one.id} execution=${one} onAnswered=${() => hearAnswered(open, one.id)} onChanged=${(pending) => open.showPending(one.id, pending)} />`)}
  ${isQueuedAlone(open) && html`<div class="row status working"><span class="dots" aria-hidden="true"><i></i><i></i><i></i></span>Queued: waits for a worker</div>`}`;

const hearAnswered = (open, execution) => {
  open.reached();
  void open.refreshExecution(execution);
};

const isQueuedAlone = (open) => {
  const all = [...open.executions.value.values()];
  return all.length > 0 && all.every((one) => one.status === "pending");
};

const Foot = ({ open, toEnd, isAtEnd }) => {
  const session = newestOf(open);
  const all = [...open.executions.value.values()];
  const current = all.find((one) => one.status === "running") ?? all.find((one) => one.status === "paused") ?? all[0];
  const isPaused = current?.status === "paused";
  const cancelled = useSignal("");
  const problem = useSignal("");
  const cancel = async () => {
    cancelled.value = current.id;
    problem.value = "";
    try {
      await post(`agent/executions/${encodeURIComponent(current.id)}/cancel`, { reason: "Cancelled in the page" });
      open.reached();
    } catch (error) {
      // 409: it is over already, which is as good.
      if (error.status !== 409) [cancelled.value, problem.value] = ["", `Not cancelled. ${error.detail ?? error}`];
      void open.refreshExecution(current.id);
    }
  };
  const isEnding = current && cancelled.value === current.id;
  const hint = isEnding ? "Cancelling…" : isPaused ? "Waiting for your answer above (Alt+A). A message sent now is answered afterwards; Esc cancels."
    : current ? "Working. A message sent now is queued; Esc cancels." : "";
  const restore = async () => {
    problem.value = "";
    try {
      open.session.value = await change(session, { status: "active" });
      refreshSoon();
    } catch (error) {
      problem.value = error.detail ?? String(error);
    }
  };
  const jump = async () => {
    problem.value = "";
    try {
      await open.showNewest();
      isAtEnd.value = true;
      toEnd();
    } catch (error) {
      problem.value = `The newest messages could not be loaded. ${error.detail ?? error}`;
    }
  };
  const send = (text, key) => {
    void jump();
    return open.send(text, key);
  };
  return html`
    <div class="foot">
      ${!isAtEnd.value && html`<button type="button" class="jump" onClick=${jump}><${Icon} name="down" />Jump to newest</button>`}
      ${problem.value && html`<p class="problem" role="alert"><${Icon} name="alert" />${problem.value}</p>`}
      ${open.problem.value?.status === 404 ? null : session && session.status !== "active"
        ? html`<p class="notice">This conversation is ${session.status}. ${session.status === "archived" ? html`<button type="button" onClick=${restore}>Reopen it</button>` : "It accepts no more messages."}
          ${current && html`<button type="button" class="danger" disabled=${isEnding} onClick=${cancel}>${isEnding ? "Cancelling…" : "Cancel the execution"}</button>`}</p>`
        : html`<${Composer} key=${open.id} id=${open.id} hint=${hint} onSend=${send} onCancel=${current && !isEnding ? cancel : null} />`}
    </div>`;
};

/** Says the final answer to screen readers, once and whole, or why there is none; the stream itself is
 * not read out. */
const Announcer = ({ open }) => {
  const asked = [...open.executions.value.values()].flatMap((one) => one.pending ?? []);
  const text = asked.length ? `Waiting for you: ${revealedText(asked[0].prompt)}` : clipped(revealedText(open.ending.value), 2000);
  return html`<div class="sr-only" role="status" aria-live="polite">${text}</div>`;
};
