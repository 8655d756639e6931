/** The sessions beside the thread; a drawer on phones. */

import { isSignedIn, signOut } from "./api.js";
import { useFocusInRows } from "./focus.js";
import { revealed, revealedText } from "./hidden_text.js";
import { Icon } from "./icons.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "./html.js";
import { change, loadMore, ownState, refresh, search, sessions, sessionsState, showsArchived } from "./sessions.js";
import { cycleTheme, theme } from "./theme.js";
import { ago } from "./words.js";

const DOTS = {
  running: ["running", "working"], pending: ["running", "queued"], paused: ["waits", "waiting for you"], failed: ["failed", "failed"],
};

export const Sidebar = ({ current, belongsTo, onClose, onShortcuts }) => {
  const [focused, setFocused] = useState("");
  // One row is in the way of Tab, with its buttons; the arrows lead to the others.
  const active = [focused, current ?? belongsTo].find((id) => sessions.value.some((one) => one.id === id)) ?? sessions.value[0]?.id;
  const onFocus = ({ target }) => setFocused(target.closest("li")?.dataset.session ?? focused);
  const list = useRef(null);
  useFocusInRows(list, "#search");
  const { isLoading, problem, next } = sessionsState.value;
  const timer = useRef(0);
  const onSearch = (event) => {
    search.value = event.currentTarget.value;
    clearTimeout(timer.current);
    timer.current = setTimeout(() => refresh({ isReload: true }), 300);
  };
  const onScroll = ({ currentTarget: box }) => {
    if (box.scrollHeight - box.scrollTop - box.clientHeight < 200) void loadMore();
  };
  const toggleArchived = () => {
    showsArchived.value = !showsArchived.value;
    void refresh({ isReload: true });
  };
  const onKeyDown = (event) => {
    if (!["ArrowDown", "ArrowUp", "Home", "End"].includes(event.key) || event.target.tagName === "INPUT" && event.target.type !== "search") return;
    const links = [...list.current.querySelectorAll("a.session")];
    const place = links.indexOf(document.activeElement.closest?.("li")?.querySelector("a.session"));
    const wanted = { ArrowDown: place + 1, ArrowUp: Math.max(0, place - 1), Home: 0, End: links.length - 1 }[event.key];
    if (event.target.type === "search" && event.key !== "ArrowDown") return;
    event.preventDefault();
    links[Math.min(wanted, links.length - 1)]?.focus();
  };
  return html`
    <nav class="sidebar" aria-label="Conversations" onKeyDown=${onKeyDown}>
      <div class="sidebar-head">
        <a class="brand" href="#/" onClick=${onClose}><img src="ui/favicon.svg" width="20" height="20" alt="" />Stepwell</a>
        <button type="button" class="icon-button only-phone" aria-label="Close the list" onClick=${onClose}><${Icon} name="close" /></button>
      </div>
      <a class="new" href="#/" onClick=${onClose}><${Icon} name="plus" />New conversation</a>
      <label class="search"><${Icon} name="search" /><span class="sr-only">Search conversations</span>
        <input type="search" id="search" value=${search.value} placeholder="Search" maxlength="200" onInput=${onSearch} />
      </label>
      <div class="sessions" ref=${list} onScroll=${onScroll}>
        ${problem && html`<p class="problem" role="alert">${problem.detail ?? String(problem)} <button type="button" class="link" onClick=${() => refresh({ isReload: true })}>Try again</button></p>`}
        <ul aria-label=${showsArchived.value ? "Archived conversations" : "Conversations, newest first"} onFocusIn=${onFocus}>
          ${sessions.value.map((one) => html`<${Entry} key=${one.id} session=${one} isCurrent=${one.id === current} isAround=${one.id === belongsTo} isActive=${one.id === active} onClose=${onClose} />`)}
        </ul>
        ${!sessions.value.length && !isLoading && !problem && html`<p class="quiet empty">${search.value ? "Nothing is found for these words." : showsArchived.value ? "Nothing is archived." : "No conversations yet."}</p>`}
        ${next !== null && html`<button type="button" class="plain more" disabled=${isLoading} onClick=${loadMore}>${isLoading ? "Loading…" : "Show more"}</button>`}
      </div>
      <div class="sidebar-foot">
        <button type="button" class="link" aria-pressed=${String(showsArchived.value)} onClick=${toggleArchived}><${Icon} name="archive" />${showsArchived.value ? "Show active" : "Show archived"}</button>
        <span class="spread"></span>
        <button type="button" class="icon-button" aria-label=${`Theme: ${theme.value}. Change it`} title=${`Theme: ${theme.value}`} onClick=${cycleTheme}><${Icon} name=${{ auto: "auto", light: "sun", dark: "moon" }[theme.value]} /></button>
        <button type="button" class="icon-button" aria-label="Keyboard shortcuts" title="Keyboard shortcuts (?)" onClick=${onShortcuts}><${Icon} name="question" /></button>
        ${isSignedIn.value && html`<button type="button" class="icon-button" aria-label="Sign out" title="Sign out" onClick=${signOut}><${Icon} name="leave" /></button>`}
      </div>
    </nav>`;
};

const Entry = ({ session, isCurrent, isAround, isActive, onClose }) => {
  const tabindex = isActive ? 0 : -1;
  const [isRenaming, setRenaming] = useState(false);
  const [problem, setProblem] = useState("");
  const link = useRef(null);
  const isRenamedByKey = useRef(false);
  const title = session.title || "Untitled conversation";
  const own = ownState.value;
  const dot = DOTS[own.id === session.id && own.status !== "idle" ? own.status : session.last_execution_status];
  const isArchived = session.status === "archived";
  const alter = async (changes) => {
    setProblem("");
    try {
      await change(session, changes);
      void refresh();
    } catch (error) {
      setProblem(error.detail ?? String(error));
    }
  };
  useLayoutEffect(() => {
    if (!isRenaming && isRenamedByKey.current) link.current.focus();
    isRenamedByKey.current = false;
  }, [isRenaming]);
  if (isRenaming) {
    return html`<li data-session=${session.id}><${Rename} title=${session.title ?? ""} onEnd=${(text, isByKey) => {
      isRenamedByKey.current = isByKey;
      setRenaming(false);
      if (text !== null && text !== session.title) void alter({ title: text || null });
    }} /></li>`;
  }
  return html`
    <li class=${isCurrent || isAround ? "current" : ""} data-session=${session.id}>
      <a class="session" ref=${link} href=${`#/s/${session.id}`} aria-current=${isCurrent ? "page" : isAround ? "true" : undefined} tabindex=${tabindex} onClick=${onClose}>
        <span class="title">${dot && html`<i class=${`dot ${dot[0]}`} aria-hidden="true"></i>`}${revealed(title)}</span>
        <span class="about">${dot && html`<span class=${`state ${dot[0]}`}>${dot[1]}</span>`}<span>${session.agent_type}</span><time datetime=${session.updated_at}>${ago(session.last_message_at ?? session.updated_at)}</time></span>
      </a>
      <span class="actions">
        <button type="button" class="icon-button" aria-label=${revealedText(`Rename ${title}`)} title="Rename" tabindex=${tabindex} onClick=${() => setRenaming(true)}><${Icon} name="pencil" /></button>
        ${session.status !== "closed" && html`
          <button type="button" class="icon-button" aria-label=${revealedText(`${isArchived ? "Take up again" : "Archive"} ${title}`)} title=${isArchived ? "Take up again" : "Archive"} tabindex=${tabindex} onClick=${() => alter({ status: isArchived ? "active" : "archived" })}>
            <${Icon} name=${isArchived ? "restore" : "archive"} />
          </button>`}
      </span>
      ${problem && html`<p class="problem" role="alert">${problem}</p>`}
    </li>`;
};

const Rename = ({ title, onEnd }) => {
  const field = useRef(null);
  const isDone = useRef(false);
  useEffect(() => field.current.select(), []);
  const end = (text, isByKey = false) => {
    if (isDone.current) return;
    isDone.current = true;
    onEnd(text, isByKey);
  };
  const onKeyDown = (event) => {
    event.stopPropagation();
    if (event.isComposing) return;
    if (event.key === "Enter") end(event.currentTarget.value.trim(), true);
    if (event.key === "Escape") end(null, true);
  };
  return html`<input class="rename" ref=${field} type="text" defaultValue=${title} maxlength="200" aria-label="Title" onKeyDown=${onKeyDown} onBlur=${(event) => end(event.target.value.trim())} />`;
};
