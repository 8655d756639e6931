/**
 * One execution, beginning with why it stands where it does: `#/x/<execution id>`.
 */

import { html, useEffect } from "./html.js";
import { Actions } from "./execution/actions.js";
import { Events } from "./execution/events.js";
import { Facts } from "./execution/facts.js";
import { Messages } from "./execution/messages.js";
import { ProblemNote } from "./execution/notes.js";
import { Snapshots } from "./execution/snapshots.js";
import { Stop, StatusBadge } from "./execution/stop.js";
import { Subagents } from "./execution/subagents.js";
import { Timeline } from "./execution/timeline.js";
import { useTrace } from "./execution/trace.js";
import { revealedText } from "./hidden_text.js";
import { shownExecution } from "./sessions.js";
import { useTitleOf } from "./way_back.js";
import { counted } from "./words.js";

const titleOf = (trace, problem, session) => {
  const what = trace ? trace.stop?.headline ?? trace.explanation : problem?.status === 404 ? "Not found" : "";
  return [what && `Execution: ${what}`, what ? "" : "Execution", revealedText(session), "Stepwell"].filter(Boolean).join(" · ");
};

/** @param {{id: string}} props */
export const ExecutionPage = ({ id }) => {
  const { trace, row, problem, isLoading, reload } = useTrace(id);
  const execution = trace?.execution ?? row;
  const title = titleOf(trace, problem, useTitleOf(execution?.session_id));
  useEffect(() => {
    document.title = title;
  }, [title]);
  useEffect(() => {
    shownExecution.value = execution;
  }, [execution]);
  useEffect(() => () => {
    shownExecution.value = null;
  }, []);
  return html`<article class="x" data-execution=${id} aria-busy=${isLoading && trace === null}>
    ${trace === null && problem === null && html`<${Opening} row=${row} />`}
    ${problem !== null && html`<${ProblemNote} problem=${problem} id=${id} retry=${reload}
      isStale=${trace !== null} />`}
    ${trace !== null && html`<${Loaded} key=${id} trace=${trace} reload=${reload} />`}
  </article>`;
};

const Opening = ({ row }) => html`<p class="x-row x-note" role="status">${row !== null && html`<${StatusBadge}
  status=${row.status} /> ${counted(row.step_count, "step")}. `}Loading the execution …</p>`;

const Loaded = ({ trace, reload }) => {
  const { execution } = trace;
  return html`
    <${Stop} trace=${trace} />
    <${Actions} trace=${trace} reload=${reload} />
    <${Facts} trace=${trace} />
    <${Timeline} trace=${trace} />
    <${Subagents} subagents=${trace.subagents} />
    <${Messages} messages=${trace.messages} />
    <${Snapshots} execution=${execution} stepCount=${trace.steps.length} />
    <${Events} execution=${execution} />
  `;
};
