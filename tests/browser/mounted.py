"""The same agents in somebody else's application: under ``/ai``, with a page of its own beside."""

from collections.abc import MutableMapping
from typing import Any

from fastapi import FastAPI

from stepwell.app.agent_app import AgentApp, Receive, Scope, Send
from tests.browser.apps import agents

PATH = "/ai"


class HostApp(AgentApp):
    """``stepwell serve`` serves an AgentApp: this one answers for its host."""

    def __init__(self) -> None:
        super().__init__(agents)
        self._inner = AgentApp.__call__
        self._host = FastAPI()
        self._host.add_api_route("/", lambda: {"page": "of the host"})
        self._host.mount(PATH, self._mounted)

    async def _mounted(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._inner(self, scope, receive, send)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one connection of the host."""
        await self._host(scope, receive, send)


app = HostApp()
