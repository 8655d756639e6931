"""An agent that is run through crashes, and what it did: for the tests of recovery."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from stepwell.agent import Agent
from stepwell.hooks import Hook, HookContext, HookTrigger
from stepwell.messages import ToolCall
from stepwell.models import ModelRequest
from stepwell.sessions.settings import SessionSettings
from stepwell.sessions.views.reader import Reader
from stepwell.testing import ScriptedModel, call
from stepwell.tools import FunctionTool, ToolContext
from tests.integration.sessions.world import Crash, CrashingStore, World

Turns = Sequence[str | Sequence[ToolCall]]
FLUSHES = SessionSettings(flush_seconds=0.01, max_crashes=50)
QUICK = SessionSettings(flush_seconds=5.0, max_crashes=50)
"""Without chatter in between, so that writes can be counted."""

TURNS: Turns = (
    [call("look", id="a1", at="x"), call("pay", id="a2", at="y")],
    [call("save", id="b1", at="z")],
    "All done.",
)
WRITES = ("intent", "step", "intent", "step", "finish")


class Tried:
    """An agent whose tools note what they did; the model's words follow from the conversation, so
    that asking it again gives the same."""

    def __init__(self, turns: Turns = TURNS, *, when_unknown: str | None = None) -> None:
        self.ran: list[tuple[str, str]] = []
        self._turns = turns
        self.asked = 0
        tools = [
            FunctionTool(self._noting("look"), name="look", effect="pure"),
            FunctionTool(self._noting("save"), name="save", effect="idempotent"),
            FunctionTool(
                self._noting("pay"), name="pay", effect="external", when_unknown=when_unknown
            ),
            FunctionTool(self._linger, name="linger", effect="pure"),
        ]
        self.linger_until: Callable[[], Awaitable[bool]] | None = None
        self.agent = Agent(ScriptedModel(self._turn), tools=tools)

    def _noting(self, name: str) -> Any:
        async def note(at: str, context: ToolContext) -> str:
            "Note it."
            self.ran.append((name, context.idempotency_key))
            return f"{name} at {at}"

        return note

    async def _linger(self) -> str:
        "Take as long as it is told to."
        while self.linger_until is not None and not await self.linger_until():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        return "lingered"

    def _turn(self, request: ModelRequest) -> Any:
        self.asked += 1
        answered = sum(1 for message in request.messages if message.is_assistant())
        return self._turns[answered]

    def times(self, name: str) -> int:
        return sum(1 for ran, _ in self.ran if ran == name)


class Held:
    """A hook that holds the end of a step's tool calls until a flush has stored their results."""

    def __init__(self) -> None:
        self.hook = Hook(function=self._hold, triggers=frozenset({HookTrigger.AFTER_TOOL}))
        self._here: World | None = None
        self._id, self._texts = "", ("",)

    def until_stored(self, here: World, id: str, *texts: str) -> None:
        """From now on, until these texts are in the stored intent of that execution."""
        self._here, self._id, self._texts = here, id, texts

    def let_go(self) -> None:
        self._here = None

    async def _hold(self, context: HookContext) -> None:
        while self._here is not None:
            intent = await self._here.store.read(lambda tx: tx.intent(self._id))
            if intent is not None and all(text in intent.calls for text in self._texts):
                return
            await asyncio.sleep(0.005)


async def died_with_stored_results(
    here: World, held: Held, id: str, *texts: str, dead: bool = False
) -> None:
    """A worker that dies before it stores a step whose results a flush has stored."""
    held.until_stored(here, id, *texts)
    store = CrashingStore(here.store)
    store.crash_at("step", "finish")
    with pytest.raises(Crash):
        await here.run(id, store=store, settings=FLUSHES, dead=dead)
    held.let_go()


async def taken_over(here: World, id: str, crashes: Sequence[tuple[int, bool]]) -> int:
    """Run it with these crashes, one per attempt; how many of them happened."""
    happened = 0
    for at, after in crashes:
        row = await here.execution(id)
        if row.status.is_terminal:
            break
        store = CrashingStore(here.store, at=at, after=after)
        try:
            await here.run(id, store=store, dead=happened > 0)
        except Crash:
            happened += 1
    row = await here.execution(id)
    if not row.status.is_terminal:
        await here.run(id, dead=happened > 0)
    return happened


async def conversation(here: World) -> list[Any]:
    session = await here.session()
    assert session.last_snapshot_id is not None
    state = await Reader(here.store).state_of(session.last_snapshot_id)
    return [(m.id, m.role, m.parts) for m in state.messages]
