"""The handlers that the docs show: whoever leaves ends the run."""

import asyncio
import json
from pathlib import Path
from typing import Any

from stepwell import Agent, tool
from stepwell.testing import ScriptedModel, call


def documented(page: str, until: str) -> dict[str, Any]:
    """The names that the first Python block of a page with that line defines before it."""
    text = (Path(__file__).parents[3] / "docs" / "howto" / page).read_text(encoding="utf-8")
    [block] = [b for b in text.split("```python\n") if until in b]
    names: dict[str, Any] = {}
    exec(block.split("```")[0].split(until)[0], names)
    return names


class Slow:
    """An agent whose first tool never ends by itself."""

    def __init__(self) -> None:
        self.begun, self.ended = asyncio.Event(), asyncio.Event()

        @tool
        async def work() -> str:
            """Work for ever."""
            self.begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.ended.set()
            return ""

        self.agent = Agent(ScriptedModel([call("work", id="c1"), "Done."]), tools=[work])


async def test_a_page_that_leaves_the_documented_ag_ui_handler_ends_its_run() -> None:
    slow, names = Slow(), documented("ag-ui.md", "async def ask")
    names["agent"] = slow.agent
    said = {"id": "u1", "role": "user", "content": "Hi"}
    body = json.dumps({"threadId": "t", "runId": "r", "messages": [said]}).encode()
    requests = [{"type": "http.request", "body": body}]

    async def receive() -> dict[str, Any]:
        if requests:
            return requests.pop()
        await slow.begun.wait()
        return {"type": "http.disconnect"}

    async def send(_: dict[str, Any]) -> None:
        """As servers do once the page left: nothing, and no error."""

    async with asyncio.timeout(90):
        await names["app"]({"type": "http"}, receive, send)

    assert slow.ended.is_set()


async def test_a_client_that_leaves_the_documented_ai_sdk_handler_ends_its_run() -> None:
    slow, names = Slow(), documented("ai-sdk.md", "async def main")
    names["agent"] = slow.agent
    said = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Hi"}]}
    body = names["post_chat"]({"id": "chat", "messages": [said]})
    async for piece in body:
        if b"tool-input-available" in piece:
            break
    await slow.begun.wait()
    await body.aclose()

    assert slow.ended.is_set()
