/** The stored states of an execution: two of them compared, and each as a whole. */

import { get } from "../api.js";
import { kindOf, stringify } from "../exact_json.js";
import { revealed } from "../hidden_text.js";
import { html, useEffect, useId, useMemo, useState } from "../html.js";
import { CopyButton } from "../markdown_copy.js";
import { differences, summary } from "./differences.js";
import { JsonTree, LongText, usePages } from "./folding.js";
import { moment } from "./formats.js";
import { Failure, Nothing, whyNoStates } from "./notes.js";
import { useSeen } from "./seen.js";
import { pathOf } from "./trace.js";

const DIFFERENCES_PER_PAGE = 100;
const KINDS = { added: ["+", "added"], removed: ["−", "removed"], changed: ["~", "changed"] };
const IN_ORDER = Object.keys(KINDS);

const stepName = ({ step_number: number }) => (number === 0 ? "Before the first step" : `After step ${number}`);

const nameOf = (snapshot) => {
  const final = snapshot.is_final ? ", final" : "";
  return `${stepName(snapshot)}${final} · ${moment(snapshot.created_at)}`;
};

/** The answer of a path, read again when path or version change; what was read before stays. */
const useAnswer = (path, version = "", read = get) => {
  const [state, setState] = useState({ path: null, answer: null, problem: null });
  useEffect(() => {
    if (path === null) return undefined;
    let isWanted = true;
    read(path).then(
      (answer) => isWanted && setState({ path, answer, problem: null }),
      (problem) => isWanted && setState({ path, answer: null, problem }),
    );
    return () => {
      isWanted = false;
    };
  }, [path, version]);
  return state.path === path ? state : { answer: null, problem: null };
};

/** A list as a whole, part by part. */
const getAll = async (path) => {
  const items = [];
  let cursor = "";
  while (cursor !== null) {
    const page = await get(`${path}?limit=200${cursor && `&cursor=${encodeURIComponent(cursor)}`}`);
    items.push(...page.items);
    cursor = page.next;
  }
  return { items };
};

const Value = ({ value }) =>
  html`<${LongText} text=${typeof value === "string" ? value : stringify(value, 2)} most=${400} label="Value" />`;

const isShort = (value) => (stringify(value) ?? "").length <= 60 && !["object", "list"].includes(kindOf(value));

const Difference = ({ one }) => {
  const [sign, word] = KINDS[one.kind];
  if (one.kind === "changed" && isShort(one.before) && isShort(one.after)) {
    return html`<li data-kind=${one.kind}>
      <p class="x-difference"><span class="x-sign" aria-hidden="true">${sign}</span> <span class="x-muted">${word}</span> <code>${revealed(one.path)}</code>${": "}
        <code>${revealed(stringify(one.before))}</code> → <code>${revealed(stringify(one.after))}</code></p></li>`;
  }
  return html`<li data-kind=${one.kind}>
    <p class="x-difference"><span class="x-sign" aria-hidden="true">${sign}</span> <span class="x-muted">${word}</span> <code>${revealed(one.path)}</code></p>
    ${one.kind !== "added" && html`<div class="x-before">${one.kind === "changed" && html`<span class="x-muted">before</span>`}<${Value} value=${one.before} /></div>`}
    ${one.kind !== "removed" && html`<div class="x-after">${one.kind === "changed" && html`<span class="x-muted">after</span>`}<${Value} value=${one.after} /></div>`}
  </li>`;
};

const Differences = ({ before, after }) => {
  const { found, isCut } = useMemo(() => {
    // Around the state itself there is only the checksum. What a step added comes before counters and times.
    const compared = differences(before.body ?? before, after.body ?? after);
    return { ...compared, found: compared.found.toSorted((one, other) => IN_ORDER.indexOf(one.kind) - IN_ORDER.indexOf(other.kind)) };
  }, [before, after]);
  const { shown, bar } = usePages(found, DIFFERENCES_PER_PAGE);
  return html`<div data-diff>
    <p role="status">${summary(found)}${isCut && " (only the first are shown)"}</p>${bar}
    <ul class="x-plain x-differences">${shown.map((one) => html`<${Difference} key=${`${one.kind} ${one.path}`} one=${one} />`)}</ul>
  </div>`;
};

const download = (name, value) => {
  const address = URL.createObjectURL(new Blob([stringify(value, 2)], { type: "application/json" }));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
};

const Whole = ({ snapshot, state }) => {
  const text = () => stringify(state, 2);
  return html`<div>
    <p class="x-row"><${CopyButton} text=${text} what="the whole state" />
      <button type="button" class="md-copy" onClick=${() => download(`state-after-step-${snapshot.step_number}.json`, state)}>Download</button></p>
    <div class="x-json"><${JsonTree} value=${state} isOpen=${true} /></div>
  </div>`;
};

const Choice = ({ label, snapshots, chosen, choose }) => {
  const id = useId();
  return html`<label for=${id}>${label} <select id=${id} value=${chosen}
    onChange=${(event) => choose(event.currentTarget.value)}>${snapshots.map((one) =>
      html`<option key=${one.id} value=${one.id} selected=${one.id === chosen}>${nameOf(one)}</option>`)}</select></label>`;
};

const Compared = ({ execution, snapshots }) => {
  const last = snapshots.at(-1);
  // What is compared stays while more states come: each is as large as the whole conversation.
  const [chosen, setChosen] = useState({ before: null, after: last.id });
  const [isWhole, setWhole] = useState(false);
  const after = snapshots.find((one) => one.id === chosen.after) ?? last;
  const neighbour = snapshots[Math.max(0, snapshots.indexOf(after) - 1)];
  const before = snapshots.find((one) => one.id === chosen.before) ?? neighbour;
  const old = useAnswer(pathOf(execution.id, `snapshots/${encodeURIComponent(before.id)}`));
  const fresh = useAnswer(pathOf(execution.id, `snapshots/${encodeURIComponent(after.id)}`));
  const problem = old.problem ?? fresh.problem;
  const isRead = old.answer !== null && fresh.answer !== null;
  const isAlone = snapshots.length === 1;
  return html`${isAlone ? html`<${Nothing}>Only the state ${stepName(last).toLowerCase()} is stored, so there is nothing to compare.<//>`
    : html`<div class="x-choices">
      <${Choice} label="From" snapshots=${snapshots} chosen=${before.id} choose=${(id) => setChosen({ ...chosen, before: id })} />
      <${Choice} label="To" snapshots=${snapshots} chosen=${after.id} choose=${(id) => setChosen({ before: null, after: id })} />
      ${after !== last && html`<button type="button" class="x-button"
        onClick=${() => setChosen({ before: null, after: last.id })}>The newest two</button>`}
    </div>`}
    ${problem && html`<${Failure} problem=${problem} />`}
    ${!problem && !isRead && html`<p class="x-note" role="status">Loading the states …</p>`}
    ${isRead && html`${!isAlone && html`<${Differences} key=${`${before.id} ${after.id}`} before=${old.answer.state} after=${fresh.answer.state} />`}
      <details class="x-fold" open=${isWhole} onToggle=${(event) => setWhole(event.currentTarget.open)}>
        <summary>The whole state after step ${after.step_number}</summary>
        ${isWhole && html`<${Whole} key=${after.id} snapshot=${after} state=${fresh.answer.state} />`}</details>`}`;
};

/** @param {{execution: object, stepCount: number}} props - the list is read again when it has grown */
export const Snapshots = ({ execution, stepCount }) => {
  const { place, isSeen } = useSeen();
  const path = isSeen ? pathOf(execution.id, "snapshots") : null;
  const { answer, problem } = useAnswer(path, `${stepCount} ${execution.status}`, getAll);
  const snapshots = answer?.items ?? [];
  const gone = whyNoStates(execution);
  return html`<section aria-labelledby="x-snapshots" ref=${place}>
    <h2 id="x-snapshots">Snapshots</h2>
    ${problem && html`<${Failure} problem=${problem} />`}
    ${answer === null && !problem && html`<p class="x-note" role="status">Loading …</p>`}
    ${answer !== null && snapshots.length === 0 && html`<${Nothing}>${gone ?? "No state is stored yet."}<//>`}
    ${snapshots.length > 0 && html`<${Compared} execution=${execution} snapshots=${snapshots} />`}
  </section>`;
};
