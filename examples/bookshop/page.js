// The page of the bookshop: orders, a thread with the assistant over the AI SDK's stream protocol,
// and for staff what waits for approval. No framework, no build.

const find = (id) => document.getElementById(id);
const chat = crypto.randomUUID();

async function json(path, options) {
  const response = await fetch(path, options);
  if (!response.ok) throw new Error((await response.json()).detail ?? response.statusText);
  return response.json();
}

function line(text, kind) {
  const paragraph = document.createElement("p");
  paragraph.className = kind;
  paragraph.textContent = text;
  find("thread").append(paragraph);
  return paragraph;
}

async function showShop() {
  let shop;
  try {
    shop = await json("/orders");
  } catch {
    find("login").hidden = false;
    return;
  }
  find("shop").hidden = false;
  find("name").textContent = `${shop.user} (${shop.role})`;
  find("orders").replaceChildren(
    ...shop.orders.map((order) => {
      const row = document.createElement("tr");
      const refund = order.refunded_by ? `refunded for ${order.refunded_by}` : "";
      for (const value of [order.id, order.title, order.amount.toFixed(2), refund]) {
        row.insertCell().textContent = value;
      }
      return row;
    }),
  );
  if (shop.role === "staff") await showWaiting();
}

async function showWaiting() {
  find("staff").hidden = false;
  const { items } = await json("/assistant/agent/executions?waiting=true");
  find("waiting").replaceChildren(
    ...items.flatMap((execution) =>
      execution.pending.map((question) => {
        const item = document.createElement("li");
        item.textContent = `${execution.user_id}: ${question.prompt} `;
        for (const [label, approved] of [["Allow", true], ["Deny", false]]) {
          const button = document.createElement("button");
          button.textContent = label;
          button.onclick = async () => {
            await json(`/assistant/agent/executions/${execution.id}/answer`, {
              method: "POST",
              headers: { "content-type": "application/json" },
              body: JSON.stringify({ question_id: question.question_id, answer: { approved } }),
            });
            setTimeout(showShop, 1000);
          };
          item.append(button);
        }
        return item;
      }),
    ),
  );
}

async function ask(text) {
  line(text, "user");
  const answer = line("", "assistant");
  const message = { id: crypto.randomUUID(), role: "user", parts: [{ type: "text", text }] };
  const response = await fetch("/assistant/agent/ai-sdk", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ id: chat, messages: [message], trigger: "submit-message" }),
  });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      if (!event.startsWith("data: {")) continue;
      const part = JSON.parse(event.slice("data: ".length));
      if (part.type === "text-delta") answer.textContent += part.delta;
      if (part.type === "tool-approval-request") answer.textContent += "Waiting for the staff to approve. ";
    }
  }
  await showShop();
}

find("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  ask(find("text").value).catch((error) => line(`Failed: ${error.message}`, "assistant"));
  find("text").value = "";
});
await showShop();
