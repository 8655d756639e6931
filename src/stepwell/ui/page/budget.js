/** The form that grants an execution more of what its limits measure. */

import { post } from "./api.js";
import { html, useId, useState } from "./html.js";

/** Units: what the API calls them, how much is usual, the limit in words. By the reason of the stop. */
const BUDGETS = {
  steps_limit: ["steps", 10, "step"], token_limit: ["tokens", 10_000, "token"], time_limit: ["seconds", 60, "time"], cost_limit: ["cost", 1, "cost"],
};
const IN_PARTS = ["seconds", "cost"];
const NAMES = { steps: "steps", tokens: "tokens", seconds: "seconds", cost: "$ of cost" };
const usualOf = (unit) => Object.values(BUDGETS).find(([name]) => name === unit)[1];

const isFit = (amount, unit) => amount > 0 && Number.isFinite(amount) && (IN_PARTS.includes(unit) || Number.isSafeInteger(amount));

/** The limit that was reached in words; "" if it was none of them. */
export const limitWords = (reason) => (BUDGETS[reason] ? `The ${BUDGETS[reason][2]} limit was reached.` : "");

/** The definition of the agent has changed meanwhile: to go on all the same has to be said. */
export const asksToAccept = (problem) => (problem?.detail ?? "").includes("accept_change");

/** Throws what the server refuses. */
export const grant = (execution, body) => post(`agent/executions/${encodeURIComponent(execution)}/resume`, body);

/** @param {{reason: string, isBusy: boolean, problem: object | null, onGrant: (body: object, words: string) => void}} given */
export const BudgetForm = ({ reason, isBusy, problem, onGrant }) => {
  const [unit, setUnit] = useState((BUDGETS[reason] ?? BUDGETS.steps_limit)[0]);
  const [amount, setAmount] = useState(String(usualOf(unit)));
  const [isAccepted, setAccepted] = useState(false);
  const id = useId();
  const choose = (event) => {
    setUnit(event.currentTarget.value);
    setAmount(String(usualOf(event.currentTarget.value)));
  };
  const submit = (event) => {
    event.preventDefault();
    if (!isFit(Number(amount), unit)) return;
    onGrant({ [unit]: Number(amount), ...(isAccepted && { accept_change: true }) }, `${amount} more ${NAMES[unit]}`);
  };
  return html`
    <form class="inline" onSubmit=${submit}>
      <input type="number" class="amount" min="0" step=${IN_PARTS.includes(unit) ? "any" : "1"} inputmode="decimal" value=${amount}
        aria-label=${`Additional ${NAMES[unit]}`} onInput=${(event) => setAmount(event.currentTarget.value)} />
      <label class="sr-only" for=${id}>Unit</label>
      <select id=${id} value=${unit} onChange=${choose}>${Object.entries(NAMES).map(([name, words]) => html`<option key=${name} value=${name}>${words}</option>`)}</select>
      <button type="submit" class="primary" disabled=${isBusy || !isFit(Number(amount), unit)}>Grant</button>
      ${(asksToAccept(problem) || isAccepted) && html`<label class="check"><input type="checkbox" checked=${isAccepted}
        onChange=${(event) => setAccepted(event.currentTarget.checked)} /> Continue although the agent's definition has changed</label>`}
    </form>`;
};
