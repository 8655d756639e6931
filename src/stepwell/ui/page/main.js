/** The page: which view the address asks for, and what stands around it. */

import { signInWanted } from "./api.js";
import { focusAsked } from "./focus.js";
import { Icon } from "./icons.js";
import { html, render, signal, useEffect, useRef, useState } from "./html.js";
import { keepFresh, shownExecution } from "./sessions.js";
import { Shortcuts, listenForKeys } from "./shortcuts.js";
import { Sidebar } from "./sidebar.js";
import { SignIn } from "./sign_in.js";
import { Start } from "./start.js";
import { Thread } from "./thread.js";
import { WayBack } from "./way_back.js";

const narrow = matchMedia("(max-width: 760px)");
const route = signal(location.hash);
addEventListener("hashchange", () => {
  route.value = location.hash;
});
const go = (hash) => {
  location.hash = hash;
};

const ownPart = (hash, kind) => {
  const found = new RegExp(`^#/${kind}/([\\w-]+)(?:[/?]|$)`).exec(hash);
  return found && found[1];
};

/** The page of an execution is fetched when it is first asked for. */
const ExecutionView = ({ id }) => {
  const [Page, setPage] = useState(null);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    import("./execution.js").then((found) => setPage(() => found.ExecutionPage), (error) => setProblem(String(error)));
  }, []);
  if (problem) return html`<p class="problem" role="alert">This part of the page could not be loaded: ${problem}</p>`;
  return Page ? html`<${Page} key=${id} id=${id} />` : html`<div class="opening"><span class="spinner"></span></div>`;
};

const View = ({ hash }) => {
  const [session, execution] = [ownPart(hash, "s"), ownPart(hash, "x")];
  const scroller = useRef(null);
  useEffect(() => {
    // The link that led here is gone, and only this part scrolls: the keys for that should go to it.
    scroller.current?.focus({ preventScroll: true });
  }, [execution]);
  if (execution) {
    return html`
      <div class="thread">
        <${WayBack} />
        <div class="scroller" ref=${scroller} tabindex="0" role="region" aria-label="Execution"><${ExecutionView} id=${execution} /></div>
      </div>`;
  }
  return session ? html`<${Thread} key=${session} id=${session} />` : html`<${Start} go=${go} />`;
};

/** Whether the list is a drawer: the width is that of the style sheet. */
const useIsNarrow = () => {
  const [isNarrow, setNarrow] = useState(narrow.matches);
  useEffect(() => {
    const look = () => setNarrow(narrow.matches);
    narrow.addEventListener("change", look);
    return () => narrow.removeEventListener("change", look);
  }, []);
  return isNarrow;
};

const Page = () => {
  const [isDrawerOpen, setDrawer] = useState(false);
  const [hasHelp, setHelp] = useState(false);
  useEffect(keepFresh, []);
  useEffect(() => listenForKeys({
    onSearch() {
      setDrawer(true);
      document.getElementById("search").focus();
      requestAnimationFrame(() => document.getElementById("search")?.focus());
    },
    onNew() {
      go("#/");
      requestAnimationFrame(() => document.querySelector(".composer textarea")?.focus());
    },
    onHelp: () => setHelp(true),
    onAnswer: focusAsked,
    onEscape: () => setDrawer(false),
  }), []);
  // On a phone the list covers the page, so that is where the keys should go, and nowhere else.
  const isCovered = useIsNarrow() && isDrawerOpen;
  useEffect(() => {
    if (!isCovered) return undefined;
    const isInList = () => document.activeElement.closest(".sidebar") !== null;
    if (!isInList()) document.querySelector(".sidebar .only-phone").focus();
    return () => {
      if (isInList() || document.activeElement === document.body) document.querySelector(".drawer-button")?.focus();
    };
  }, [isCovered]);
  const skip = (event) => {
    event.preventDefault();
    document.getElementById("main").focus();
  };
  return html`
    <a class="skip" href="#main" onClick=${skip}>Skip to the conversation</a>
    <div class=${`page ${isDrawerOpen ? "drawer-open" : ""}`}>
      <${Sidebar} current=${ownPart(route.value, "s")} belongsTo=${shownExecution.value?.session_id} onClose=${() => setDrawer(false)} onShortcuts=${() => setHelp(true)} />
      <div class="shade" onClick=${() => setDrawer(false)}></div>
      <main id="main" tabindex="-1" inert=${isCovered}>
        <button type="button" class="icon-button drawer-button only-phone" aria-label="Conversations" aria-expanded=${String(isDrawerOpen)} onClick=${() => setDrawer(true)}><${Icon} name="menu" /></button>
        <${View} hash=${route.value} />
      </main>
    </div>
    ${hasHelp && html`<${Shortcuts} onClose=${() => setHelp(false)} />`}`;
};

const Root = () => (signInWanted.value === null ? html`<${Page} />` : html`<${SignIn} />`);

render(html`<${Root} />`, document.getElementById("app"));
