/** What to say when there is nothing to show, and why. */

import { html } from "../html.js";

const explained = (problem, id) => {
  if (problem.status === 404) {
    return {
      headline: "Execution not found",
      words: `Execution ${id} does not exist here, or it belongs to someone else. It may have been deleted with its session.`,
    };
  }
  if (problem.status === 401) {
    return { headline: "Sign in to see this execution", words: "The server needs an API key." };
  }
  if (problem.status === 403) {
    return { headline: "You do not have access to this execution", words: problem.detail };
  }
  if (problem.status === 0) {
    return { headline: "The server does not respond", words: problem.detail };
  }
  return {
    headline: "The execution could not be loaded",
    words: problem.detail ?? String(problem.message ?? problem),
  };
};

/** @param {{problem: object, id: string, retry: Function, isStale: boolean}} props */
export const ProblemNote = ({ problem, id, retry, isStale }) => {
  const { headline, words } = explained(problem, id);
  const what = isStale ? html`<p>This is the last version that was loaded.</p>` : null;
  return html`<section class="x-problem" role="alert">
    ${isStale ? html`<strong>${headline}</strong>` : html`<h1>${headline}</h1>`}
    <p>${words}</p>${what}
    <p class="x-row"><button type="button" class="x-button" onClick=${retry}>Try again</button>
      <a class="x-button" href="#/">All conversations</a></p>
  </section>`;
};

/** A line in place of a list that is empty. */
export const Nothing = ({ children }) => html`<p class="x-note">${children}</p>`;

/** Why the states of an execution can't be shown, or null if they are kept. */
export const whyNoStates = (execution) => {
  const at = execution.metadata?.states_removed;
  if (at === undefined) return null;
  return `The states were removed by retention at ${at}; messages, decision and output are kept.`;
};

/** Something that went wrong with a part of the page. */
export const Failure = ({ problem }) =>
  html`<p class="x-failure" role="alert">${problem.detail ?? String(problem.message ?? problem)}</p>`;
