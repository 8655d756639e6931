/** What an execution waits for, answered where it is asked: questions, approvals, more budget. */

import { post } from "./api.js";
import { BudgetForm, asksToAccept, grant, limitWords } from "./budget.js";
import { kindOf, parse, stringify } from "./exact_json.js";
import { focusAfterForm } from "./focus.js";
import { editableJson, revealed, revealedText } from "./hidden_text.js";
import { Icon } from "./icons.js";
import { html, useEffect, useId, useLayoutEffect, useRef, useState } from "./html.js";
import { Part } from "./tool_block.js";
import { clipped, shownArguments, shownValue } from "./words.js";

const OUTCOMES = ["done", "retry", "failed"];
const OUTCOME_WORDS = {
  done: "It took effect", retry: "It did not take effect: run it again", failed: "It did not take effect: mark it as failed",
};

/**
 * @param {{execution: {id: string, pending: object[]}, onAnswered: () => void, onChanged: (pending: object[]) => void}} given
 * `onChanged` is given what is asked now, when an answer was refused because it was to something else.
 */
export const Asking = ({ execution, onAnswered, onChanged }) => {
  const [isChanged, setChanged] = useState(false);
  const answered = () => {
    setChanged(false);
    onAnswered();
  };
  const changed = (pending) => {
    setChanged(true);
    onChanged(pending);
  };
  return html`
    ${isChanged && html`<div class="row asking changed" role="alert"><${Icon} name="alert" /> The question has changed since you saw it. Your answer was not used. Read the new question before you answer.</div>`}
    ${execution.pending.map((asked) => html`
      <${Asked} key=${asked.question_id} execution=${execution} asked=${asked} onAnswered=${answered} onChanged=${changed} />`)}`;
};

const Asked = ({ execution, asked, onAnswered, onChanged }) => {
  const [given, setGiven] = useState("");
  const [problem, setProblem] = useState(null);
  const [isSending, setSending] = useState(false);
  // A button that is disabled while its answer is sent loses the focus before the form goes.
  const isUsed = useRef(false);

  const send = async (request, words) => {
    isUsed.current = true;
    setSending(true);
    setProblem(null);
    try {
      await request();
      setGiven(words);
      onAnswered();
    } catch (error) {
      if (error.code === "question_changed") {
        onChanged(error.pending);
      } else if (error.status === 409 && !asksToAccept(error)) {
        setGiven("This question was already answered elsewhere.");
        onAnswered();
      } else {
        isUsed.current = false;
        setProblem(error);
      }
    } finally {
      setSending(false);
    }
  };
  const answer = (value, words) => {
    const path = `agent/executions/${encodeURIComponent(execution.id)}/answer`;
    return send(() => post(path, { question_id: asked.question_id, answer: value }), `You answered: ${words}`);
  };
  const Form = asked.kind === "approval" ? Approval : asked.kind === "budget" ? Budget : Question;
  const title = asked.kind === "approval" ? `Allow ${asked.tool_name} to run?` : asked.kind === "budget" ? "A limit was reached" : "A question for you";
  if (given) return html`<div class="row asking answered" role="status"><${Icon} name="check" /> ${revealed(given)}</div>`;
  return html`
    <${Frame} asked=${asked} title=${title} isUsed=${isUsed}>
      <${Form} asked=${asked} answer=${answer} isSending=${isSending} problem=${problem}
        onGrant=${(body, words) => send(() => grant(execution.id, { ...body, question_id: asked.question_id }), `You granted ${words}.`)} />
      ${problem && html`<p class="problem" role="alert"><${Icon} name="alert" />${problem.detail ?? String(problem)} Nothing was changed. Try again.</p>`}
    <//>`;
};

/** Around a form; when it goes, by an answer here or elsewhere, the focus that was in it goes on. */
const Frame = ({ asked, title, isUsed, children }) => {
  const section = useRef(null);
  const id = useId();
  useLayoutEffect(() => () => {
    const isHeld = isUsed.current || section.current?.contains(document.activeElement);
    if (isHeld) requestAnimationFrame(focusAfterForm);
  }, []);
  return html`
    <section class="row asking" ref=${section} data-asking=${asked.kind} data-question=${asked.question_id} aria-labelledby=${id}>
      <h2 id=${id}><${Icon} name=${asked.kind === "question" ? "question" : "pause"} /> <span>${revealed(title)}</span></h2>
      ${children}
    </section>`;
};

/** What a person decides on, from its top, in a box that scrolls: seen once its beginning and its end
 * have both been on the screen. Without content there is nothing to be seen. */
const useSeen = (content) => {
  const [edges, setEdges] = useState({ start: false, end: false });
  const [start, end] = [useRef(null), useRef(null)];
  const note = useId();
  useEffect(() => {
    if (!start.current) return undefined;
    const observer = new IntersectionObserver((entries) => {
      for (const { isIntersecting, target } of entries) {
        if (isIntersecting) setEdges((before) => ({ ...before, [target === end.current ? "end" : "start"]: true }));
      }
    });
    for (const edge of [start, end]) observer.observe(edge.current);
    return () => observer.disconnect();
  }, []);
  const isSeen = !content || (edges.start && edges.end);
  const part = content && html`
    <div class="to-see"><i ref=${start}></i>${content}<i ref=${end}></i></div>
    <p id=${note} class="unseen" role="status">${!isSeen && "Scroll to the end before you decide. Until then, you can only deny it."}</p>`;
  return { part, isSeen, why: isSeen ? undefined : note };
};

const argumentsPart = (given, title, label) =>
  html`<${Part} title=${title} text=${shownArguments(given)} label=${label} data-arguments />`;

const isOutcome = ({ details }) =>
  Boolean(details?.began_at) && OUTCOMES.every((one) => details.options?.includes(one));

const Question = ({ asked, answer, isSending }) => {
  const [text, setText] = useState("");
  const options = Array.isArray(asked.details?.options) ? asked.details.options : [];
  const asksOutcome = isOutcome(asked);
  const { part, isSeen, why } = useSeen(asksOutcome && argumentsPart(asked.details.arguments ?? {}, "Arguments", asked.tool_name));
  const submit = (event) => {
    event.preventDefault();
    if (text.trim()) void answer(text.trim(), clipped(text.trim(), 200));
  };
  return html`
    <p class="prompt">${revealed(asked.prompt)}</p>
    ${part}
    ${options.length > 0 && html`
      <div class="options">
        ${options.map((one) => html`
          <button type="button" key=${shownValue(one)} class="option" disabled=${isSending || !isSeen} aria-describedby=${why} onClick=${() => answer(one, shownValue(one))}>
            ${asksOutcome ? html`<b>${one}</b> ${OUTCOME_WORDS[one]}` : html`<span>${revealed(shownValue(one))}</span>`}
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
  const [isEditing, setEditing] = useState(false);
  const deny = () => {
    const message = reason.trim();
    void answer(message ? { approved: false, message } : { approved: false }, message ? `No: ${clipped(message, 200)}` : "No");
  };
  const given = asked.details?.arguments;
  const content = given === undefined ? html`<p class="prompt" tabindex="0">${revealed(asked.prompt)}</p>` : argumentsPart(given, "With these arguments", asked.tool_name);
  const { part, isSeen, why } = useSeen(content);
  const submit = (event) => {
    event.preventDefault();
    if (reason.trim()) deny();
  };
  if (isEditing) {
    return html`${part}<${Editing} given=${given} answer=${answer} isSending=${isSending} onLeave=${() => setEditing(false)} />`;
  }
  return html`
    ${asked.details?.note && html`<p class="prompt">${revealed(asked.details.note)}</p>`}
    ${part}
    <form class="inline" onSubmit=${submit}>
      <button type="button" class="primary" disabled=${isSending || !isSeen} aria-describedby=${why} onClick=${() => answer({ approved: true }, "Yes")}>Allow</button>
      ${given !== undefined && html`
        <button type="button" disabled=${isSending || !isSeen} aria-describedby=${why} onClick=${() => setEditing(true)}>Change</button>`}
      <button type="button" class="danger" disabled=${isSending} onClick=${deny}>Deny</button>
      <input type="text" value=${reason} aria-label="Reason for denying (shown to the model)" placeholder="Reason for denying (shown to the model)" onInput=${(event) => setReason(event.currentTarget.value)} />
    </form>`;
};

/** Other arguments for a call: the whole set, since they take the place of all that the model gave. */
const Editing = ({ given, answer, isSending, onLeave }) => {
  const [text, setText] = useState(() => editableJson(stringify(given, 2)));
  const [problem, setProblem] = useState("");
  const field = useRef(null);
  const note = useId();
  useEffect(() => field.current.focus(), []);
  const submit = (event) => {
    event.preventDefault();
    const { value, fault } = readObject(text);
    setProblem(fault);
    if (fault) field.current.focus();
    else void answer({ approved: true, arguments: value }, "Yes, with changed arguments");
  };
  return html`
    <form class="editing" onSubmit=${submit}>
      <textarea ref=${field} rows=${Math.min(16, text.split("\n").length + 1)} spellcheck="false" value=${text}
        aria-label="Changed arguments, as JSON" aria-describedby=${note} aria-invalid=${Boolean(problem)}
        onInput=${(event) => setText(event.currentTarget.value)}></textarea>
      <p id=${note} class="note">A JSON object with all arguments. The model sees what you changed.</p>
      ${problem && html`<p class="problem" role="alert"><${Icon} name="alert" />${problem}</p>`}
      <div class="inline">
        <button type="submit" class="primary" disabled=${isSending}>Allow with changes</button>
        <button type="button" disabled=${isSending} onClick=${onLeave}>Cancel changes</button>
      </div>
    </form>`;
};

const readObject = (text) => {
  let value;
  try {
    value = parse(text);
  } catch (error) {
    return { value, fault: `Invalid JSON: ${revealedText(error.message)}` };
  }
  return { value, fault: kindOf(value) === "object" ? "" : "The arguments must be a JSON object, such as {\"path\": \"b.txt\"}." };
};

const Budget = ({ asked, onGrant, isSending, problem }) => {
  const reason = asked.details?.stop_reason;
  return html`
    <p class="prompt">${limitWords(reason) || "A limit was reached."} Grant more to continue from there.</p>
    <${BudgetForm} reason=${reason} isBusy=${isSending} problem=${problem} onGrant=${onGrant} />`;
};
