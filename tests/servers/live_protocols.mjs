// The real clients of AG-UI and the AI SDK, told what to do by lines of JSON on standard input.
//
//   {"agBegin": {"url", "headers", "threadId"}} | {"agRun": {"say"?, "resume"?}}
//   {"aiBegin": {"api", "headers", "id"}} | {"aiSend": text} | {"aiOutput": {...}} |
//   {"aiApprove": {...}} | {"aiResume": true}
//
// Each line is answered by one line: what the client made of it.
import { createInterface } from "node:readline";
import { HttpAgent } from "@ag-ui/client";
import {
  AbstractChat,
  DefaultChatTransport,
  lastAssistantMessageIsCompleteWithApprovalResponses,
  lastAssistantMessageIsCompleteWithToolCalls,
} from "ai";

const warnings = [];
console.warn = (...words) => warnings.push(words.join(" "));
console.error = (...words) => warnings.push(words.join(" "));

let agent;

async function agRun({ say, resume }) {
  const seen = { types: [], text: "", error: null, outcome: null };
  if (say) agent.addMessage(say);
  try {
    await agent.runAgent({ resume }, {
      onEvent({ event }) {
        seen.types.push(event.type);
        if (event.type === "TEXT_MESSAGE_CONTENT") seen.text += event.delta;
      },
      onRunFinishedEvent({ outcome }) {
        seen.outcome = outcome;
      },
      onRunFailed({ error }) {
        seen.error = String(error);
      },
    });
  } catch (error) {
    seen.error = String(error);
  }
  return { ...seen, messages: agent.messages, interrupts: agent.pendingInterrupts, warnings: warnings.splice(0) };
}

class Chat extends AbstractChat {
  constructor(init) {
    const state = {
      status: "ready",
      error: undefined,
      messages: [],
      pushMessage: (message) => (state.messages = [...state.messages, structuredClone(message)]),
      popMessage: () => (state.messages = state.messages.slice(0, -1)),
      replaceMessage: (index, message) =>
        (state.messages = state.messages.with(index, structuredClone(message))),
      snapshot: (thing) => structuredClone(thing),
    };
    super({ ...init, state });
  }
}

let chat;
let seen;

function aiBegin({ api, headers, id, messages }) {
  seen = { errors: [], finishes: [], requests: [] };
  chat = new Chat({
    id,
    transport: new DefaultChatTransport({
      api,
      headers,
      fetch: async (url, init) => {
        const response = await fetch(url, init);
        seen.requests.push([init.method ?? "GET", response.status]);
        return response;
      },
    }),
    onError: (error) => seen.errors.push(error.message),
    onFinish: ({ finishReason }) => seen.finishes.push(finishReason),
    sendAutomaticallyWhen: (options) =>
      lastAssistantMessageIsCompleteWithToolCalls(options) ||
      lastAssistantMessageIsCompleteWithApprovalResponses(options),
  });
  if (messages) chat.messages = messages;
  return {};
}

// What adds outputs and approvals sends without being awaited, so wait until the chat is at rest.
async function atRest() {
  do {
    await new Promise((resolve) => setTimeout(resolve, 20));
  } while (chat.status === "submitted" || chat.status === "streaming");
  return { ...seen, status: chat.status, messages: chat.messages, warnings: warnings.splice(0) };
}

const actions = {
  async agBegin({ url, headers, threadId, messages }) {
    agent = new HttpAgent({ url, headers, threadId, initialMessages: messages });
    return {};
  },
  agRun,
  aiBegin,
  aiSend: async (text) => (await chat.sendMessage({ text }), atRest()),
  aiOutput: async (given) => (await chat.addToolOutput({ tool: "x", ...given }), atRest()),
  aiApprove: async (given) => (await chat.addToolApprovalResponse(given), atRest()),
  aiResume: async () => (await chat.resumeStream(), atRest()),
};

const lines = createInterface({ input: process.stdin });
// Also in the middle of an action: who gave it has left.
lines.on("close", () => process.exit(0));
for await (const line of lines) {
  const [[action, given]] = Object.entries(JSON.parse(line));
  process.stdout.write(JSON.stringify(await actions[action](given)) + "\n");
}
process.exit(0);
