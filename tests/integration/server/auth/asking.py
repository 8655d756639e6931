"""Asks an ASGI app as a server would, and hangs up on answers that have no end."""

import asyncio
from typing import Any

from msgspec import Struct

_PATIENCE = 90.0


class Answer(Struct, frozen=True):
    """How it answered."""

    status: int
    headers: dict[str, str]
    body: str


async def ask(
    app: Any, method: str, path: str, headers: dict[str, str], body: bytes = b"{}"
) -> Answer:
    """One request. Of an answer that goes on and on, only its beginning is waited for."""
    sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    hung_up = asyncio.Event()
    asked = False

    async def receive() -> dict[str, Any]:
        nonlocal asked
        if not asked:
            asked = True
            return {"type": "http.request", "body": body, "more_body": False}
        await hung_up.wait()
        return {"type": "http.disconnect"}

    scope = _scope("http", path, headers, method=method)
    async with asyncio.timeout(_PATIENCE):
        call = asyncio.create_task(app(scope, receive, sent.put))
        start = await sent.get()
        found = {name.decode(): value.decode() for name, value in start["headers"]}
        text, is_over = b"", found.get("content-type", "").startswith("text/event-stream")
        while not is_over:
            message = await sent.get()
            text += message.get("body", b"")
            is_over = not message.get("more_body", False)
        hung_up.set()
        await call
    return Answer(start["status"], found, text.decode())


async def connects(app: Any, path: str, headers: dict[str, str]) -> bool:
    """Whether a WebSocket is accepted."""
    sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    incoming = iter([{"type": "websocket.connect"}])

    async def receive() -> dict[str, Any]:
        # Who has connected hangs up at once.
        return next(incoming, {"type": "websocket.disconnect", "code": 1000})

    async with asyncio.timeout(_PATIENCE):
        scope = _scope("websocket", path, headers, subprotocols=[])
        call = asyncio.create_task(app(scope, receive, sent.put))
        first = await sent.get()
        await call
    return first["type"] == "websocket.accept"


def _scope(type: str, path: str, headers: dict[str, str], **more: Any) -> dict[str, Any]:
    given = {"host": "localhost", "content-type": "application/json", **headers}
    return {
        "type": type, "asgi": {"version": "3.0"}, "http_version": "1.1", "root_path": "",
        "scheme": "http" if type == "http" else "ws", "path": path, "raw_path": path.encode(),
        "query_string": b"", "client": ("127.0.0.1", 5000), "server": ("localhost", 80),
        "headers": [(name.encode(), value.encode()) for name, value in given.items()], **more,
    }  # fmt: skip
