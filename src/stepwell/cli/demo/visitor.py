"""A client of the demo without a browser: HTTP and server-sent events only."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import httpx2
from msgspec import Struct, json

Json = Mapping[str, Any]
REQUEST_SECONDS = 20.0
ENDED = ("completed", "stopped", "failed", "cancelled")


class Missing(Exception):
    """Raised when a part of the demo did not happen."""


class Seen(Struct, frozen=True, kw_only=True, eq=False):
    """An execution and its events so far."""

    session: str
    execution: str
    events: tuple[Json, ...] = ()

    @property
    def status(self) -> str:
        """The last status among the events."""
        statuses = [it["payload"]["status"] for it in self.own("agent.status")]
        return statuses[-1] if statuses else "unknown"

    @property
    def last_seq(self) -> int:
        """The number of its last event."""
        return max((it["seq"] for it in self.events), default=0)

    @property
    def answer(self) -> str:
        """The final answer."""
        ends = [it["payload"] for it in self.own("agent.status")]
        answers = [it["content"] for it in ends if it.get("event_type") == "execution.completed"]
        return answers[-1] if answers else ""

    def own(self, kind: str) -> list[Json]:
        """Return its events of that type, without those of subagents."""
        return [
            it for it in self.events if it["type"] == kind and it["execution_id"] == self.execution
        ]

    def outcomes(self, tool: str) -> list[str]:
        """Return the outcomes of the calls of a tool, in order."""
        payloads = [it["payload"] for it in self.own("agent.tool.completed")]
        return [it["outcome"] for it in payloads if it["tool_name"] == tool]


class Visitor:
    """Sends messages and follows their executions."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client
        self.seen: dict[str, Seen] = {}
        """All executions with their events, by id."""

    async def page(self, path: str) -> httpx2.Response:
        """Load a file of the page."""
        return await self._client.get(path)

    async def get(self, path: str) -> Any:
        """Send GET and return the JSON response."""
        return _json_of(await self._client.get(path))

    async def post(self, path: str, body: Json) -> Any:
        """Send POST and return the JSON response."""
        return _json_of(await self._client.post(path, json=dict(body)))

    async def send(self, text: str) -> Seen:
        """Start a session with that text."""
        made = await self.post("agent/messages", {"content": text})
        return Seen(session=made["session"]["id"], execution=made["execution"]["id"])

    async def until(self, seen: Seen, *stops: str) -> Seen:
        """Follow the execution until its status or the type of an event is one of ``stops``."""
        events = list(seen.events)
        path = f"agent/sessions/{seen.session}/events"
        query: dict[str, str | int] = {"after": seen.last_seq, "execution": seen.execution}
        async with self._client.stream("GET", path, params=query) as response:
            if response.status_code != 200:
                raise Missing(f"{path} answered {response.status_code}")
            async for line in response.aiter_lines():
                if not line.startswith("data:"):
                    continue
                event = json.decode(line.removeprefix("data:"))
                events.append(event)
                if _is_stop(event, seen.execution, stops):
                    break
        now = Seen(session=seen.session, execution=seen.execution, events=tuple(events))
        self.seen[seen.execution] = now
        return now

    async def run(self, text: str) -> Seen:
        """Start a session and follow its first execution until it ends or pauses."""
        return await self.until(await self.send(text), *ENDED, "paused")

    async def answer_question(self, seen: Seen, answer: Any) -> Seen:
        """Answer the open question and follow the execution until it ends or pauses."""
        pending = (await self.get(f"agent/executions/{seen.execution}"))["pending"]
        if not pending:
            raise Missing("no open question")
        body = {"question_id": pending[0]["question_id"], "answer": answer}
        await self.post(f"agent/executions/{seen.execution}/answer", body)
        return await self.until(seen, *ENDED, "paused")

    async def trace(self, seen: Seen) -> Json:
        """Return the trace of an execution."""
        return await self.get(f"agent/executions/{seen.execution}/trace")

    async def results(self, seen: Seen, tool: str) -> list[str]:
        """Return the full results of a tool."""
        steps = cast("list[Json]", (await self.trace(seen))["steps"])
        calls = [call for step in steps for call in step["tool_executions"]]
        return [str(it["result"] or it["error"]) for it in calls if it["name"] == tool]


@asynccontextmanager
async def visitor_of(address: str) -> AsyncGenerator[Visitor]:
    """Open a visitor for the server at that address; proxies of the environment are ignored."""
    timeout = httpx2.Timeout(REQUEST_SECONDS)
    async with httpx2.AsyncClient(
        base_url=f"{address}/", timeout=timeout, trust_env=False
    ) as client:
        yield Visitor(client)


def _json_of(response: httpx2.Response) -> Any:
    if response.status_code >= 400:
        raise Missing(f"{response.url.path} answered {response.status_code}: {response.text:.200}")
    return response.json()


def _is_stop(event: Json, execution: str, stops: tuple[str, ...]) -> bool:
    if event["execution_id"] != execution:
        return False
    if event["type"] == "agent.status":
        return event["payload"]["status"] in stops
    return event["type"] in stops or event["payload"].get("event_type") in stops
