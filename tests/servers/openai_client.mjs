// The official OpenAI client for Node.js, told what to do by lines of JSON on standard input.
//
//   {"begin": {"baseURL", "headers"}} | {"chat": {...}} | {"respond": {...}} | {"models": true}
//
// Each line is answered by one line: what the client made of it.
import { createInterface } from "node:readline";
import OpenAI from "openai";

let client;

async function chat({ headers, ...body }) {
  const made = await client.chat.completions.create(body, { headers });
  if (!body.stream) return made;
  let text = "";
  let last;
  for await (const chunk of made) {
    text += chunk.choices[0]?.delta?.content ?? "";
    last = chunk;
  }
  return { text, last };
}

async function respond({ headers, ...body }) {
  const made = await client.responses.create(body, { headers });
  if (!body.stream) return { ...made, output_text: made.output_text };
  const types = [];
  let text = "";
  let last;
  for await (const event of made) {
    types.push(event.type);
    if (event.type === "response.output_text.delta") text += event.delta;
    last = event;
  }
  return { types, text, last };
}

const actions = {
  begin({ baseURL, headers }) {
    client = new OpenAI({ baseURL, apiKey: "sw_none", defaultHeaders: headers });
    return {};
  },
  chat,
  respond,
  models: async () => (await client.models.list()).data.map((model) => model.id),
};

const lines = createInterface({ input: process.stdin });
lines.on("close", () => process.exit(0));
for await (const line of lines) {
  const [[action, given]] = Object.entries(JSON.parse(line));
  let answer;
  try {
    answer = await actions[action](given);
  } catch (error) {
    answer = { error: error.constructor.name, status: error.status, code: error.code, message: error.message };
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
}
process.exit(0);
