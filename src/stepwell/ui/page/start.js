/** A new conversation: which agent, what to try, and the first message. */

import { post } from "./api.js";
import { Composer, draftOf, keepDraft, newKey } from "./composer.js";
import { html, useEffect, useState } from "./html.js";
import { agents, begunHere, refresh } from "./sessions.js";
import { isScripted } from "./words.js";

export const Start = ({ go }) => {
  const { items, default: usual, isLoaded } = agents.value;
  const [chosen, setChosen] = useState(null);
  const [problem, setProblem] = useState("");
  const [isTrying, setTrying] = useState(false);
  const agent = items.find((one) => one.name === (chosen ?? usual)) ?? items[0];
  useEffect(() => {
    document.title = "New conversation · Stepwell";
  }, []);

  const send = async (content, key) => {
    const session = agent ? { agent_type: agent.name } : {};
    const sent = await post("agent/messages", { content, session }, { "idempotency-key": key });
    begunHere.add(sent.session.id);
    keepDraft(sent.session.id, draftOf("new")); // what was typed meanwhile goes on there
    keepDraft("new", "");
    void refresh();
    go(`#/s/${sent.session.id}`);
  };
  const attempt = async (example) => {
    setTrying(true);
    setProblem("");
    try {
      await send(example, newKey());
    } catch (error) {
      setProblem(`${error.detail ?? error} Nothing was sent. Try again.`);
      setTrying(false);
    }
  };
  return html`
    <div class="thread start">
      <div class="phone-bar only-phone"></div>
      <div class="scroller" tabindex="0" role="region" aria-label="New conversation">
        <div class="welcome">
          <h1>What should the agent do?</h1>
          ${items.length > 1 && html`
            <fieldset class="agents">
              <legend>Agent</legend>
              ${items.map((one) => html`
                <label key=${one.name} class=${one === agent ? "chosen" : ""}>
                  <input type="radio" name="agent" value=${one.name} checked=${one === agent} onChange=${() => setChosen(one.name)} />
                  <span>${one.name}</span>
                </label>`)}
            </fieldset>`}
          ${agent && html`
            <p class="about">
              ${items.length === 1 && html`<span class="chip">${agent.name}</span> `}
              ${isScripted(agent.model) && html`<span class="chip scripted" title="Its words are scripted: no model is asked">scripted</span> `}
              ${agent.description}
            </p>
            ${(agent.examples ?? []).length > 0 && html`
              <ul class="examples" aria-label="Things to try">
                ${agent.examples.map((one) => html`<li key=${one}><button type="button" data-example disabled=${isTrying} onClick=${() => attempt(one)}>${one}</button></li>`)}
              </ul>`}
            ${problem && html`<p class="problem" role="alert">${problem}</p>`}
            ${(agent.tools ?? []).length > 0 && html`<p class="quiet tools">Tools: ${agent.tools.join(", ")}</p>`}`}
          ${isLoaded && !items.length && html`<p>No agent is registered. Start the server with one: <code>stepwell serve my_module:app</code></p>`}
        </div>
      </div>
      <div class="foot"><${Composer} key="new" id="new" isFirst onSend=${send} placeholder="Write the first message" /></div>
    </div>`;
};
