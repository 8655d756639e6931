// The clients of AG-UI and the AI SDK as their documentation shows them, given nothing but a URL.
// Lines of JSON on standard input say what to do; each is answered by one line.
//
//   {"chat": {"name", "url", "headers", "id"}}      begins a chat of @ai-sdk/react
//   {"send": {"chat", "text", "messageId"?, "stop"?}} | {"regenerate": {"chat"}} | {"resume": {"chat"}}
//   {"approve": {"chat", ...}} | {"output": {"chat", ...}}
//   {"agent": {"name", "url", "headers", "threadId"}}   begins an HttpAgent
//   {"run": {"agent", "say"?, "resume"?, "abort"?}}
import { createInterface } from "node:readline";
import { HttpAgent } from "@ag-ui/client";
import { Chat } from "@ai-sdk/react";
import {
  DefaultChatTransport,
  lastAssistantMessageIsCompleteWithApprovalResponses,
  lastAssistantMessageIsCompleteWithToolCalls,
} from "ai";

const warnings = [];
console.warn = (...words) => warnings.push(words.join(" "));
console.error = (...words) => warnings.push(words.join(" "));

const chats = {};
const errors = {};
const agents = {};

function begin({ name, url, headers, id }) {
  errors[name] = [];
  chats[name] = new Chat({
    id,
    transport: new DefaultChatTransport({ api: url, headers }),
    sendAutomaticallyWhen: (options) =>
      lastAssistantMessageIsCompleteWithToolCalls(options) ||
      lastAssistantMessageIsCompleteWithApprovalResponses(options),
    onError: (error) => errors[name].push(error.message),
  });
  return {};
}

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
const isBusy = (chat) => chat.status === "submitted" || chat.status === "streaming";

// What adds outputs and approvals sends without being awaited, so wait until the chat is at rest.
async function atRest(name) {
  do await pause(20);
  while (isBusy(chats[name]));
  const { id, status, messages } = chats[name];
  return { id, status, messages, errors: errors[name].splice(0), warnings: warnings.splice(0) };
}

const textOf = (chat) =>
  chat.messages.at(-1)?.role === "assistant"
    ? chat.messages.at(-1).parts.map((part) => part.text ?? "").join("")
    : "";

async function send({ chat: name, text, messageId, stop }) {
  const chat = chats[name];
  const sending = chat.sendMessage({ text, messageId });
  if (stop) {
    while (!isBusy(chat)) await pause(1);
    while (isBusy(chat) && !textOf(chat).includes(stop)) await pause(5);
    await chat.stop();
  }
  await sending;
  return atRest(name);
}

async function run({ agent: name, say, resume, abort }) {
  const agent = agents[name];
  const seen = { types: [], text: "", error: null, outcome: null };
  for (const message of say ?? []) agent.addMessage({ role: "user", ...message });
  try {
    await agent.runAgent({ resume }, {
      onEvent({ event }) {
        seen.types.push(event.type);
        if (event.type === "TEXT_MESSAGE_CONTENT") seen.text += event.delta;
        if (abort && seen.text.includes(abort)) agent.abortRun();
      },
      onRunFinishedEvent({ outcome }) {
        seen.outcome = outcome;
      },
    });
  } catch (error) {
    seen.error = String(error);
  }
  const { messages, pendingInterrupts: interrupts, threadId } = agent;
  return { ...seen, threadId, messages, interrupts, warnings: warnings.splice(0) };
}

const actions = {
  chat: begin,
  send,
  regenerate: async ({ chat }) => (await chats[chat].regenerate(), atRest(chat)),
  resume: async ({ chat }) => (await chats[chat].resumeStream(), atRest(chat)),
  approve: async ({ chat, ...given }) => (await chats[chat].addToolApprovalResponse(given), atRest(chat)),
  output: async ({ chat, ...given }) => (await chats[chat].addToolOutput({ tool: "x", ...given }), atRest(chat)),
  agent: ({ name, ...given }) => ((agents[name] = new HttpAgent(given)), {}),
  run,
};

const lines = createInterface({ input: process.stdin });
// Also in the middle of an action: who gave it has left.
lines.on("close", () => process.exit(0));
for await (const line of lines) {
  const [[action, given]] = Object.entries(JSON.parse(line));
  process.stdout.write(JSON.stringify(await actions[action](given)) + "\n");
}
process.exit(0);
