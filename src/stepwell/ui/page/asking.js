/** What an execution waits for, answered where it is asked: questions, approvals, more budget. */

import { post } from "./api.js";
import { Icon } from "./icons.js";
import { html, useId, useState } from "./html.js";
import { Part } from "./tool_block.js";
import { clipped, shownArguments, shownValue } from "./words.js";

const OUTCOMES = ["done", "retry", "failed"];
const OUTCOME_WORDS = {
  done: "It took effect", retry: "It did not: run it again", failed: "It did not: count it as failed",
};
const BUDGETS = {
  steps_limit: ["steps", 10, "step"], token_limit: ["tokens", 10_000, "token"], time_limit: ["seconds", 60, "time"], cost_limit: ["cost", 1, "cost"],
};
const IN_PARTS = ["seconds", "cost"];

/** @param {{execution: {id: string, pending: object[]}, onAnswered: () => void}} given */
export const Asking = ({ execution, onAnswered }) => html`
  ${execution.pending.map((asked) => html`
    <${Asked} key=${`${execution.id} ${asked.call_id ?? asked.kind} ${execution.pauses ?? 0}`} execution=${execution} asked=${asked} onAnswered=${onAnswered} />`)}`;

const Asked = ({ execution, asked, onAnswered }) => {
  const [given, setGiven] = useState("");
  const [problem, setProblem] = useState("");
  const [isSending, setSending] = useState(false);
  const id = useId();

  const send = async (path, body, words) => {
    setSending(true);
    setProblem("");
    try {
      await post(`agent/executions/${encodeURIComponent(execution.id)}/${path}`, body);
      setGiven(words);
      onAnswered();
    } catch (error) {
      if (error.status === 409) {
        setGiven("It was answered elsewhere meanwhile.");
        onAnswered();
      } else {
        setProblem(`${error.detail ?? error} Nothing was changed; try again.`);
      }
    } finally {
      setSending(false);
    }
  };
  const answer = (value, words) => send("answer", { call_id: asked.call_id, answer: value }, `You answered: ${words}`);
  const Form = asked.kind === "approval" ? Approval : asked.kind === "budget" ? Budget : Question;
  const title = asked.kind === "approval" ? `May ${asked.tool_name} run?` : asked.kind === "budget" ? "A limit was reached" : "A question for you";
  if (given) return html`<div class="row asking answered" role="status"><${Icon} name="check" /> ${given}</div>`;
  return html`
    <section class="row asking" data-asking=${asked.kind} data-call-id=${asked.call_id} aria-labelledby=${id}>
      <h2 id=${id}><${Icon} name=${asked.kind === "question" ? "question" : "pause"} /> ${title}</h2>
      <${Form} asked=${asked} answer=${answer} isSending=${isSending}
        grant=${(body, words) => send("resume", body, `You granted ${words}.`)} />
      ${problem && html`<p class="problem" role="alert"><${Icon} name="alert" />${problem}</p>`}
    </section>`;
};

const isOutcome = ({ details }) =>
  Boolean(details?.began_at) && OUTCOMES.every((one) => details.options?.includes(one));

const Question = ({ asked, answer, isSending }) => {
  const [text, setText] = useState("");
  const options = Array.isArray(asked.details?.options) ? asked.details.options : [];
  const asksOutcome = isOutcome(asked);
  const submit = (event) => {
    event.preventDefault();
    if (text.trim()) void answer(text.trim(), clipped(text.trim(), 200));
  };
  return html`
    <p class="prompt">${asked.prompt}</p>
    ${asksOutcome && html`<${Part} title="Arguments" text=${shownArguments(asked.details.arguments ?? {})} label=${asked.tool_name} />`}
    ${options.length > 0 && html`
      <div class="options">
        ${options.map((one) => html`
          <button type="button" key=${shownValue(one)} class="option" disabled=${isSending} onClick=${() => answer(one, shownValue(one))}>
            ${asksOutcome ? html`<b>${one}</b> ${OUTCOME_WORDS[one]}` : shownValue(one)}
          </button>`)}
      </div>`}
    ${!asksOutcome && html`
      <form class="inline" onSubmit=${submit}>
        <input type="text" value=${text} aria-label=${options.length ? "Another answer" : "Your answer"} placeholder=${options.length ? "Or another answer" : "Your answer"}
          onInput=${(event) => setText(event.currentTarget.value)} />
        <button type="submit" disabled=${!text.trim() || isSending}>Answer</button>
      </form>`}`;
};

const Approval = ({ asked, answer, isSending }) => {
  const [reason, setReason] = useState("");
  const deny = () => {
    const message = reason.trim();
    void answer(message ? { approved: false, message } : { approved: false }, message ? `No: ${clipped(message, 200)}` : "No");
  };
  const given = asked.details?.arguments;
  const submit = (event) => {
    event.preventDefault();
    if (reason.trim()) deny();
  };
  return html`
    ${given === undefined ? html`<p class="prompt">${asked.prompt}</p>` : html`<${Part} title="With these arguments" text=${shownArguments(given)} label=${asked.tool_name} data-arguments />`}
    <form class="inline" onSubmit=${submit}>
      <button type="button" class="primary" disabled=${isSending} onClick=${() => answer({ approved: true }, "Yes")}>Allow</button>
      <button type="button" class="danger" disabled=${isSending} onClick=${deny}>Deny</button>
      <input type="text" value=${reason} aria-label="Why not (the model is told)" placeholder="Why not? The model is told" onInput=${(event) => setReason(event.currentTarget.value)} />
    </form>`;
};

const Budget = ({ asked, grant, isSending }) => {
  const [unit, usual, limit] = BUDGETS[asked.details?.stop_reason] ?? BUDGETS.steps_limit;
  const [amount, setAmount] = useState(String(usual));
  const number = Number(amount);
  const isFit = Number.isFinite(number) && number > 0 && (IN_PARTS.includes(unit) || Number.isInteger(number));
  const submit = (event) => {
    event.preventDefault();
    if (isFit) void grant({ [unit]: number }, `${amount} more ${unit}`);
  };
  return html`
    <p class="prompt">The ${limit} limit was reached. Grant more, and it goes on where it stopped.</p>
    <form class="inline" onSubmit=${submit}>
      <input type="number" class="amount" min="0" step=${IN_PARTS.includes(unit) ? "any" : "1"} value=${amount} aria-label=${`How many more ${unit}`} onInput=${(event) => setAmount(event.currentTarget.value)} />
      <span>${unit}</span>
      <button type="submit" class="primary" disabled=${!isFit || isSending}>Grant</button>
    </form>`;
};
