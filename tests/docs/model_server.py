"""A small OpenAI-compatible server for the examples in the docs: it calls the first tool it is
offered once, then answers. Speaks plain and streamed chat completions.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ARGUMENTS = {"convert": {"amount": 20, "currency": "USD"}}
ANSWER = "20 euros are 25 dollars."
INVOICE = '{"number": "A-17", "total": 25.0}'


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        message = answer_to(asked)
        reason = "tool_calls" if "tool_calls" in message else "stop"
        usage = {"prompt_tokens": 40, "completion_tokens": 10, "total_tokens": 50}
        if not asked.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": reason}
            body = {"model": asked["model"], "choices": [choice], "usage": usage}
            self._send("application/json", json.dumps(body))
            return
        deltas = [{**message, "content": None}]
        deltas += [{"content": f"{word} "} for word in (message["content"] or "").split(" ")[:-1]]
        deltas += [{"content": (message["content"] or "").split(" ")[-1]}]
        chunks: list[Any] = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
        chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
        chunks.append({"choices": [], "usage": usage})
        events = [f"data: {json.dumps({'model': asked['model'], **chunk})}\n\n" for chunk in chunks]
        self._send("text/event-stream", "".join(events) + "data: [DONE]\n\n")

    def _send(self, media_type: str, text: str) -> None:
        self.send_response(200)
        self.send_header("content-type", media_type)
        self.send_header("content-length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the tests speak for it."""


def answer_to(asked: dict[str, Any]) -> dict[str, Any]:
    """A call of the first tool, then words, or JSON if that was asked for."""
    tools = asked.get("tools")
    if tools and asked["messages"][-1]["role"] != "tool":
        name = tools[0]["function"]["name"]
        function = {"name": name, "arguments": json.dumps(ARGUMENTS.get(name, {}))}
        call = {"index": 0, "id": "call_1", "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}
    return {"role": "assistant", "content": INVOICE if "response_format" in asked else ANSWER}


@contextmanager
def serving() -> Iterator[str]:
    """The base address of a running server."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
