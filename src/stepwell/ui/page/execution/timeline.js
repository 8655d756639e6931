/** The steps on one axis of time; each unfolds to all that is known of it. */

import { revealed, revealedText } from "../hidden_text.js";
import { html, useMemo, useState } from "../html.js";
import { counted } from "../words.js";
import { duration, money } from "./formats.js";
import { usePages } from "./folding.js";
import { Nothing, whyNoStates } from "./notes.js";
import { axisOf, rowOf } from "./time_axis.js";
import { WholeStep } from "./whole_step.js";

const STEPS_PER_PAGE = 100;
// So that what took no time can still be seen.
const THINNEST = 0.4;

const percent = (part) => `${(100 * part).toFixed(3)}%`;

const placed = (axis, from, to) => {
  const left = axis.place(from);
  const width = Math.max(100 * (axis.place(to) - left), THINNEST);
  return { left: percent(Math.min(left, 1 - THINNEST / 100)), width: `${width.toFixed(3)}%` };
};

const isBad = (outcome) => outcome !== "" && !["completed", "pending", "answered", "blocked"].includes(outcome);

const Bars = ({ row, axis }) => html`<div class="x-bars" aria-hidden="true" style=${{ "--lanes": row.lanes }}>
  ${axis.gaps.map((gap, place) => html`<span key=${`gap ${place}`} class="x-gap"
    style=${{ left: percent(gap.left), width: percent(gap.right - gap.left) }}></span>`)}
  ${row.bars.map((bar, place) => html`<span key=${place} class="x-bar" data-kind=${bar.kind}
    data-bad=${isBad(bar.outcome)} title=${revealedText(`${bar.name}: ${duration(bar.to - bar.from)}`)}
    style=${{ ...placed(axis, bar.from, bar.to), "--lane": bar.lane }}></span>`)}
</div>`;

const toolWords = (step) => {
  const names = step.tool_executions.map((tool) => tool.name);
  if (names.length === 0) return "";
  return names.length <= 3 ? names.join(", ") : `${names.slice(0, 2).join(", ")} and ${names.length - 2} more`;
};

const Step = ({ step, row, axis, isOpen, toggle, execution }) => {
  const errors = step.errors.length;
  const id = `x-step-${step.number}`;
  return html`<li class="x-step" data-step=${step.number}>
    <button type="button" class="x-step-head" aria-expanded=${isOpen} aria-controls=${id} onClick=${toggle}>
      <span class="x-step-name">Step ${step.number}</span>
      <span class="x-step-tools"><span>${revealed(toolWords(step) || (step.text ? "answer" : "no tools"))}</span>${
        errors > 0 && html`<span class="x-bad">✕ ${counted(errors, "error")}</span>`}</span>
      <${Bars} row=${row} axis=${axis} />
      <span class="x-step-time">model ${duration(row.model)}${
        step.tool_executions.length > 0 && `, tools ${duration(row.tools)}`}</span>
    </button>
    <div id=${id} hidden=${!isOpen}>${isOpen && html`<${WholeStep} step=${step} execution=${execution} />`}</div>
  </li>`;
};

const Legend = ({ axis }) => html`<p class="x-legend">
  <span><span class="x-swatch" data-kind="model"></span> model</span>
  <span><span class="x-swatch" data-kind="tool"></span> tools</span>
  <span><span class="x-swatch" data-kind="tool" data-bad="true"></span> failed</span>
  ${axis.gaps.length > 0 && html`<span><span class="x-swatch x-gap"></span> ${
    axis.gaps.length === 1 ? `a pause of ${duration(axis.gaps[0].seconds)}, shortened`
    : `${axis.gaps.length} pauses, shortened: ${axis.gaps.slice(0, 3).map((gap) => duration(gap.seconds)).join(", ")}${
      axis.gaps.length > 3 ? " …" : ""}`}</span>`}
</p>`;

const total = (rows, name) => rows.reduce((sum, row) => sum + (Number.isFinite(row[name]) ? row[name] : 0), 0);

/** @param {{trace: object}} props */
export const Timeline = ({ trace }) => {
  const { steps, execution } = trace;
  const [open, setOpen] = useState(() => new Set());
  const rows = useMemo(() => steps.map(rowOf), [steps]);
  const { shown, bar, from } = usePages(steps, STEPS_PER_PAGE);
  const axis = useMemo(() => axisOf(rows.slice(from, from + STEPS_PER_PAGE)), [rows, from]);
  const toggle = (number) => {
    const next = new Set(open);
    if (!next.delete(number)) next.add(number);
    setOpen(next);
  };
  return html`<section aria-labelledby="x-timeline">
    <h2 id="x-timeline">Timeline</h2>
    ${steps.length === 0 ? html`<${Nothing}>${whyNoStates(execution) ?? "No step has completed yet."}<//>` : html`
      <p class="x-muted">${counted(steps.length, "step")}: model ${duration(total(rows, "model"))}, tools ${
        duration(total(rows, "tools"))}, ${money(execution.cost)}. Choose a step to see all of it.</p>
      <${Legend} axis=${axis} />${bar}
      <ol class="x-steps">${shown.map((step, place) => html`<${Step} key=${step.number} step=${step}
        row=${rows[from + place]} axis=${axis} execution=${execution} isOpen=${open.has(step.number)}
        toggle=${() => toggle(step.number)} />`)}</ol>${shown.length > 20 && bar}`}
  </section>`;
};
