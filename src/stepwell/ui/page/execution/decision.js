/** Every vote of a decision, with its numbers. */

import { revealed } from "../hidden_text.js";
import { html } from "../html.js";
import { shortValue } from "./formats.js";

const SIGNS = { forbid: "⊘", request: "→", allow_stop: "■", allow: "·" };

const words = (decision) => String(decision ?? "").toLowerCase();

// 0.8077713849997963 says no more than 0.807771.
const rounded = (value) =>
  typeof value === "number" && !Number.isInteger(value) ? Number(value.toPrecision(6)) : value;

export const Numbers = ({ numbers }) => {
  const entries = Object.entries(numbers ?? {});
  if (entries.length === 0) return html`<span class="x-none">–</span>`;
  return html`<dl class="x-numbers">${entries.map(([name, value]) =>
    html`<div><dt>${revealed(name)}</dt><dd>${revealed(shortValue(rounded(value), 200))}</dd></div>`)}</dl>`;
};

const VoteRow = ({ vote }) => html`<tr class=${vote.is_decisive ? "x-decisive" : ""}
    data-vote=${vote.criterion}>
  <td data-name="Vote"><span class="x-vote" data-decision=${words(vote.decision)}><span aria-hidden="true">${
    SIGNS[words(vote.decision)] ?? "·"}</span></span>${vote.decision}</td>
  <th scope="row" data-name="Criterion">${revealed(vote.criterion)}</th>
  <td data-name="Reason" class="x-reason">${revealed(vote.reason)}</td>
  <td data-name="Numbers"><${Numbers} numbers=${vote.numbers} /></td>
</tr>`;

const Group = ({ name, votes }) =>
  votes.length === 0 ? null : html`<tbody>
    <tr class="x-group"><th colspan="4" scope="rowgroup">${name}</th></tr>
    ${votes.map((vote, place) => html`<${VoteRow} key=${place} vote=${vote} />`)}
  </tbody>`;

/** @param {{votes: object[], label: string}} props - the votes as trace.stop has them */
export const Votes = ({ votes, label }) => {
  if (votes.length === 0) return html`<p class="x-note">No criterion has voted.</p>`;
  const decisive = votes.filter((vote) => vote.is_decisive);
  const others = votes.filter((vote) => !vote.is_decisive);
  return html`<div class="x-scroll" tabindex="0" role="group" aria-label=${label}>
    <table class="x-table x-votes">
      <thead><tr><th scope="col">Vote</th><th scope="col">Criterion</th>
        <th scope="col">Reason</th><th scope="col">Numbers</th></tr></thead>
      <${Group} name="★ The deciding vote" votes=${decisive} />
      <${Group} name=${decisive.length > 0 ? "Other votes:" : "Votes:"} votes=${others} />
    </table>
  </div>`;
};

/** The evaluations of a step's decision in the shape of votes. */
export const votesOf = (decision) =>
  (decision?.evaluations ?? []).map((one, place, all) => ({
    criterion: one.criterion,
    decision: one.decision,
    reason: one.reason,
    numbers: one.context,
    is_decisive: one.criterion === decision.resolved_by
      && all.findIndex((other) => other.criterion === decision.resolved_by) === place,
  }));
