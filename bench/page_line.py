"""An application whose live line is as fast as wanted: ``stepwell serve bench.page_line:app``.

Everything is the real server, but for the events of a session: they are 2,000 chunks of an answer
in the names of the execution that runs there, at 500 a second, behind a silence to measure an idle
page in. (The real line puts chunks together before it tells them.)
"""

import asyncio
import json
from collections.abc import Iterator, MutableMapping
from typing import Any

from stepwell import Agent, tool
from stepwell.app.agent_app import AgentApp, Receive, Scope, Send
from stepwell.clock import SystemClock
from stepwell.testing import ScriptedModel, call

CHUNKS = 2000
PER_SECOND = 500
IDLE_SECONDS = 2.0
_PART = """## Part {number}

The harbour of part {number} has **three** quays; the *second* one is `{number}` metres deep: see
the [tide tables](https://example.org/tides/{number}) before you enter it at night.

1. the old quay, which is **dry** at low tide
2. the new quay
   - with a crane, and a second one

| quay | depth | light |
|---|---|---|
| old | {number} m | green |
| new | 11 m | red |

```python
def depth(quay: str) -> int:
    return {{"old": {number}, "new": 11}}[quay]
```

"""


def answer() -> list[str]:
    """The chunks: about six characters each, as models give them."""
    text = "".join(_PART.format(number=number) for number in range(1, 40))
    chunks = [text[start : start + 6] for start in range(0, 6 * CHUNKS, 6)]
    assert len(chunks) == CHUNKS
    assert all(chunks)
    return chunks


def envelopes(session: str, execution: str, after: int) -> Iterator[dict[str, Any]]:
    """What a client of that session is told: the execution begins, then the chunks."""
    chunks = answer()
    payloads: list[tuple[str, dict[str, Any]]] = [
        ("agent.status", {"status": "processing", "previous_status": "idle"}),
        ("agent.step.started", {"step_number": 1}),
    ]
    for index, content in enumerate(chunks):
        chunk = {"step_number": 1, "chunk_index": index, "content": content}
        payloads.append(("agent.stream.chunk", {**chunk, "is_complete": index + 1 == CHUNKS}))
    for seq, (type_, payload) in enumerate(payloads, after + 1):
        yield {
            "id": f"fast-{seq}",
            "seq": seq,
            "type": type_,
            "session_id": session,
            "execution_id": execution,
            "timestamp": "2026-01-01T00:00:00.000Z",
            "payload": {"parent_execution_id": None, **payload},
        }


class FastLineApp(AgentApp):
    """The real application, but for one route."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        path = str(scope.get("path", ""))
        if scope["type"] == "http" and path.endswith("/events"):
            await self._tell(path.split("/")[-2], scope, receive, send)
        else:
            await super().__call__(scope, receive, send)

    async def _tell(self, session: str, scope: Scope, receive: Receive, send: Send) -> None:
        unfinished = await self.services.store.read(lambda tx: tx.unfinished(session))
        query = bytes(scope["query_string"]).decode()
        after = int(query.partition("after=")[2].partition("&")[0] or 0)
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [(b"content-type", b"text/event-stream")],
            }
        )
        telling = asyncio.create_task(_told(send, session, unfinished[0].id, after))
        try:
            while (await receive())["type"] != "http.disconnect":
                pass
        finally:
            telling.cancel()


async def _told(send: Send, session: str, execution: str, after: int) -> None:
    clock = SystemClock()
    await _write(send, b"retry: 1000\n\n")
    await asyncio.sleep(IDLE_SECONDS)
    begun = clock.monotonic()
    for place, envelope in enumerate(envelopes(session, execution, after)):
        # By the clock, not by pauses: those would add up.
        early = begun + place / PER_SECOND - clock.monotonic()
        if early > 0:
            await asyncio.sleep(early)
        line = f"id: {envelope['seq']}\ndata: {json.dumps(envelope)}\n\n"
        await _write(send, line.encode())
    # As long as the client stays; a line that ends would be opened again.
    await asyncio.sleep(3600)


async def _write(send: Send, body: bytes) -> None:
    message: MutableMapping[str, Any] = {"type": "http.response.body", "body": body}
    await send({**message, "more_body": True})


@tool
async def wait(seconds: float) -> str:
    """Keep the execution running while its answer is told."""
    await asyncio.sleep(seconds)
    return "waited"


app = FastLineApp({"fast": Agent(ScriptedModel(lambda _: call("wait", seconds=250)), tools=[wait])})
