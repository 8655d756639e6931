// A chat of the real AI SDK, told what to do by lines of JSON on its standard input.
//
//   {"api": url, "id": chat, "auto": bool, "stopAfter": n}   begins a chat
//   {"send": {"text": ...}} | {"output": {...}} | {"approve": {...}} | {"regenerate": true}
//   {"validate": [chunk, ...]}                               checks chunks against the schema
//
// Each line is answered by one line: the messages, the status, errors, data parts and requests.
import { createInterface } from "node:readline";
import {
  AbstractChat,
  DefaultChatTransport,
  lastAssistantMessageIsCompleteWithApprovalResponses,
  lastAssistantMessageIsCompleteWithToolCalls,
  readUIMessageStream,
  uiMessageChunkSchema,
} from "ai";

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

function begin({ api, id, auto, stopAfter }) {
  seen = { errors: [], data: [], finishes: [], requests: 0, toolCalls: [] };
  let parts = 0;
  chat = new Chat({
    id,
    transport: new DefaultChatTransport({
      api,
      fetch: (...request) => {
        seen.requests += 1;
        return seen.requests > 20 ? Promise.reject(new Error("endless")) : fetch(...request);
      },
    }),
    onError: (error) => seen.errors.push(error.message),
    onToolCall: ({ toolCall }) => void seen.toolCalls.push(toolCall.toolName),
    onFinish: ({ isAbort, isError, isDisconnect, finishReason }) =>
      seen.finishes.push({ isAbort, isError, isDisconnect, finishReason }),
    onData: (part) => {
      seen.data.push(part);
      parts += 1;
      if (parts === stopAfter) void chat.stop();
    },
    sendAutomaticallyWhen: auto
      ? (options) =>
          lastAssistantMessageIsCompleteWithToolCalls(options) ||
          lastAssistantMessageIsCompleteWithApprovalResponses(options)
      : undefined,
  });
}

// What adds outputs and approvals sends without being awaited, so wait until the chat is at rest.
async function atRest() {
  do {
    await new Promise((resolve) => setTimeout(resolve, 20));
  } while (chat.status === "submitted" || chat.status === "streaming");
}

async function validated(chunks) {
  const schema = uiMessageChunkSchema();
  const wrong = [];
  for (const chunk of chunks) {
    const checked = await schema.validate(chunk);
    if (!checked.success) wrong.push({ chunk, error: String(checked.error) });
  }
  const errors = [];
  let message;
  const stream = ReadableStream.from(chunks);
  for await (const state of readUIMessageStream({
    stream,
    onError: (error) => errors.push(error.message),
  })) {
    message = state;
  }
  return { wrong, errors, message };
}

async function obey(command) {
  if (command.validate) return await Promise.all(command.validate.map(validated));
  if (command.api) begin(command);
  else if (command.send) await chat.sendMessage(command.send);
  else if (command.output) await chat.addToolOutput(command.output);
  else if (command.approve) await chat.addToolApprovalResponse(command.approve);
  else if (command.regenerate) await chat.regenerate();
  await atRest();
  return { messages: chat.messages, status: chat.status, ...seen };
}

for await (const line of createInterface({ input: process.stdin })) {
  let answer;
  try {
    answer = { done: await obey(JSON.parse(line)) };
  } catch (error) {
    answer = { failed: String(error?.stack ?? error) };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
