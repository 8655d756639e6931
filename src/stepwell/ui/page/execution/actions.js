/** What can be done with an execution: cancel it, grant it more, fork from one of its steps. */

import { post } from "../api.js";
import { BudgetForm, grant } from "../budget.js";
import { html, useId, useRef, useState } from "../html.js";
import { isOpen } from "./formats.js";
import { Failure } from "./notes.js";
import { pathOf } from "./trace.js";

/** Runs one request at a time and keeps what went wrong. */
const useRequest = () => {
  const [state, setState] = useState({ isBusy: false, problem: null });
  const run = async (work) => {
    setState({ isBusy: true, problem: null });
    try {
      await work();
      setState({ isBusy: false, problem: null });
    } catch (problem) {
      setState({ isBusy: false, problem });
    }
  };
  return { ...state, run };
};

/** @param {{execution: object, stepNumber: number | null}} props */
export const ForkForm = ({ execution, stepNumber = null }) => {
  const [text, setText] = useState("");
  const { isBusy, problem, run } = useRequest();
  const field = useRef(null);
  const id = useId();
  const needsMessage = problem?.code === "message_needed";
  const fork = (event) => {
    event.preventDefault();
    run(async () => {
      const said = text.trim() === "" ? {} : { message: text };
      const from = stepNumber === null ? {} : { step_number: stepNumber };
      try {
        const sent = await post(pathOf(execution.id, "fork"), { ...from, ...said });
        location.hash = `#/s/${encodeURIComponent(sent.session.id)}`;
      } catch (refused) {
        field.current?.focus();
        throw refused;
      }
    });
  };
  return html`<form class="x-form" onSubmit=${fork}>
    <p class="x-muted">Starts a new conversation from the state ${
      stepNumber === null ? "at the end" : `after step ${stepNumber}`}. This conversation does not change.</p>
    <label for=${id}>Message for the new conversation${needsMessage ? " (required: the state is complete)"
      : " (optional if it was still running)"}</label>
    <textarea id=${id} ref=${field} rows="2" value=${text} onInput=${(event) => setText(event.currentTarget.value)}
      aria-invalid=${needsMessage}></textarea>
    ${problem && html`<${Failure} problem=${problem} />`}
    <p><button class="x-button x-primary" disabled=${isBusy}>Fork</button></p>
  </form>`;
};

const ResumeForm = ({ execution, asked, reason, reload }) => {
  const { isBusy, problem, run } = useRequest();
  const resume = (body) => run(async () => {
    await grant(execution.id, { ...body, ...(asked && { question_id: asked.question_id }) });
    await reload();
  });
  return html`<div class="x-form">
    <${BudgetForm} reason=${reason} isBusy=${isBusy} problem=${problem} onGrant=${resume} />
    ${problem && html`<${Failure} problem=${problem} />`}
  </div>`;
};

const Cancel = ({ execution, reload }) => {
  const [isAsking, setAsking] = useState(false);
  const { isBusy, problem, run } = useRequest();
  const cancel = () => run(async () => {
    await post(pathOf(execution.id, "cancel"), { reason: "cancelled on the execution page" });
    setAsking(false);
    await reload();
  });
  if (execution.cancel_requested) return html`<span class="x-muted" role="status">Being cancelled …</span>`;
  return html`<span class="x-row">
    ${isAsking ? html`<span>Cancel this execution?</span>
      <button type="button" class="x-button x-danger" disabled=${isBusy} onClick=${cancel}>Yes, cancel</button>
      <button type="button" class="x-button" disabled=${isBusy} onClick=${() => setAsking(false)}>No</button>`
    : html`<button type="button" class="x-button" onClick=${() => setAsking(true)}>Cancel</button>`}
    ${problem && html`<${Failure} problem=${problem} />`}
  </span>`;
};

const isSubagent = (execution) => Boolean(execution.parent_execution_id);

/** @param {{trace: object, reload: Function}} props */
export const Actions = ({ trace, reload }) => {
  const { execution, stop } = trace;
  const [shown, setShown] = useState(null);
  if (isSubagent(execution)) return null;
  const waits = stop?.waits_for ?? [];
  const asked = waits.find((one) => one.kind === "budget");
  const wantsBudget = execution.status === "paused" && (waits.length === 0 || asked !== undefined);
  const canFork = execution.last_snapshot_id !== null;
  const toggle = (name) => setShown(shown === name ? null : name);
  const button = (name, words) => html`<button type="button" class="x-button" aria-expanded=${shown === name}
    onClick=${() => toggle(name)}>${words}</button>`;
  if (!isOpen(execution.status) && !canFork) return null;
  return html`<section class="x-actions" aria-label="Actions">
    <div class="x-row">
      ${isOpen(execution.status) && html`<${Cancel} execution=${execution} reload=${reload} />`}
      ${wantsBudget && button("resume", "Grant more budget")}
      ${canFork && button("fork", "Fork")}
    </div>
    ${shown === "resume" && wantsBudget && html`<${ResumeForm} execution=${execution} asked=${asked} reason=${stop?.reason} reload=${reload} />`}
    ${shown === "fork" && canFork && html`<${ForkForm} execution=${execution} />`}
  </section>`;
};
