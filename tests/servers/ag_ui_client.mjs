// Runs the real AG-UI client against an agent and prints what the client made of it, as JSON.
//
//   node ag_ui_client.mjs '{"url": ..., "threadId": ..., "messages": [...], "runs": [...]}'
//
// A run may bring `say` (a user message to add), `resume` (answers to the interrupts of the run
// before) and `abortAt` (the event type at which the page leaves).
import { HttpAgent } from "@ag-ui/client";

const plan = JSON.parse(process.argv[2]);
const warnings = [];
console.warn = (...words) => warnings.push(words.join(" "));
console.error = (...words) => warnings.push(words.join(" "));

const agent = new HttpAgent({
  url: plan.url,
  threadId: plan.threadId,
  initialMessages: plan.messages,
});

async function ran(run) {
  const seen = { types: [], custom: {}, error: null, outcome: null, ended: null, live: null };
  const subscriber = {
    onEvent({ event, messages }) {
      seen.types.push(event.type);
      if (event.type === "CUSTOM") (seen.custom[event.name] ??= []).push(event.value);
      if (event.type === "RUN_FINISHED" || event.type === "RUN_ERROR") seen.ended = event;
      // What a page shows before the last snapshot puts it right.
      if (event.type !== "MESSAGES_SNAPSHOT") seen.live = structuredClone(messages);
      if (event.type === run.abortAt) agent.abortRun();
    },
    onRunFinishedEvent({ outcome }) {
      seen.outcome = outcome;
    },
    onRunFailed({ error }) {
      seen.error = String(error);
    },
  };
  if (run.say) agent.addMessage(run.say);
  try {
    const { runId } = run;
    // An answer names the call that asked, or `budget`; the client's interrupt has the id.
    const named = (name) =>
      agent.pendingInterrupts.find((one) => (one.toolCallId ?? one.reason) === name)?.id ?? name;
    const resume = run.resume?.map((one) => ({ ...one, interruptId: named(one.interruptId) }));
    const { result } = await agent.runAgent({ runId, resume }, subscriber);
    seen.result = result;
  } catch (error) {
    seen.error = String(error);
  }
  seen.messages = structuredClone(agent.messages);
  seen.interrupts = structuredClone(agent.pendingInterrupts);
  return seen;
}

const runs = [];
for (const run of plan.runs) runs.push(await ran(run));
process.stdout.write(JSON.stringify({ runs, warnings }), () => process.exit(0));
