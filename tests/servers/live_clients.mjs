// pusher-js or Laravel Echo, told what to do by lines of JSON on its standard input.
//
//   {"begin": {"mode": "pusher" | "echo-pusher" | "echo-reverb", "key", "port", "headers", "auth", "wsPath"?}}
//   {"join": session} | {"leave": session} | {"events": n} | {"trigger": session} | {"closed": true}
//
// Each line is answered by one line.
import { createInterface } from "node:readline";
import Echo from "laravel-echo";
import Pusher from "pusher-js";

const seen = { events: [], errors: [] };
const waiting = [];
let echo;
let pusher;

const until = (holds) =>
  new Promise((resolve) => {
    waiting.push({ holds, resolve });
    look();
  });

function look() {
  for (const one of [...waiting]) {
    const found = one.holds();
    if (found === undefined || found === false) continue;
    waiting.splice(waiting.indexOf(one), 1);
    one.resolve(found);
  }
}

async function begin({ mode, key, port, headers, auth, wsPath = "" }) {
  const local = { wsHost: "127.0.0.1", wsPort: port, wsPath };
  const where = { ...local, forceTLS: false, enabledTransports: ["ws"] };
  if (mode === "pusher") {
    const channelAuthorization = { endpoint: auth, headers };
    pusher = new Pusher(key, { ...where, cluster: "", channelAuthorization });
  } else {
    const broadcaster = mode.slice("echo-".length);
    const cluster = broadcaster === "pusher" ? { cluster: "mt1" } : {};
    const options = { ...where, ...cluster, broadcaster, key, Pusher, authEndpoint: auth };
    echo = new Echo({ ...options, wssPort: port, auth: { headers } });
    pusher = echo.connector.pusher;
  }
  pusher.connection.bind("error", (error) => seen.errors.push(error?.data ?? String(error)) && look());
  pusher.connection.bind("state_change", look);
  const state = await until(() => ["connected", "failed"].includes(pusher.connection.state) && pusher.connection.state);
  return { state, socket: pusher.connection.socket_id };
}

const heard = (name, data) => {
  seen.events.push([name, data]);
  look();
};

async function join(session) {
  let outcome;
  const joined = () => ((outcome = { joined: true }), look());
  const failed = (error) => ((outcome = { joined: false, error }), look());
  if (echo) {
    const channel = echo.private(`agent.session.${session}`);
    channel.subscribed(joined).error(failed);
    channel.listen(".agent.stream.chunk", (data) => heard("agent.stream.chunk", data));
    channel.listen(".agent.status", (data) => heard("agent.status", data));
  } else {
    const channel = pusher.subscribe(`private-agent.session.${session}`);
    channel.bind("pusher:subscription_succeeded", joined);
    channel.bind("pusher:subscription_error", failed);
    channel.bind_global((name, data) => name.startsWith("pusher:") || heard(name, data));
  }
  return until(() => outcome);
}

const actions = {
  begin,
  join,
  async leave(session) {
    if (echo) echo.leave(`agent.session.${session}`);
    else pusher.unsubscribe(`private-agent.session.${session}`);
    return {};
  },
  async events(count) {
    await until(() => seen.events.length >= count);
    return { events: seen.events.splice(0) };
  },
  async trigger(session) {
    pusher.channel(`private-agent.session.${session}`).trigger("client-typing", { is: true });
    await until(() => seen.errors.length > 0);
    return { errors: seen.errors.splice(0) };
  },
  async closed() {
    await until(() => pusher.connection.state !== "connected");
    return { state: pusher.connection.state, errors: seen.errors.splice(0) };
  },
};

const lines = createInterface({ input: process.stdin });
// Also in the middle of an action: who gave it has left.
lines.on("close", () => process.exit(0));
for await (const line of lines) {
  const [[action, given]] = Object.entries(JSON.parse(line));
  process.stdout.write(JSON.stringify(await actions[action](given)) + "\n");
}
process.exit(0);
