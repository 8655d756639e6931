"""An agent that is run through crashes, and what it did: for the tests of recovery."""

from collections.abc import Sequence
from typing import Any

from stepwell.agent import Agent
from stepwell.messages import ToolCall
from stepwell.models import ModelRequest
from stepwell.sessions.reading import Reader
from stepwell.sessions.settings import SessionSettings
from stepwell.testing import ScriptedModel, call
from stepwell.tools import FunctionTool, ToolContext
from tests.integration.sessions.world import Crash, CrashingStore, World

Turns = Sequence[str | Sequence[ToolCall]]
QUICK = SessionSettings(flush_seconds=5.0, max_crashes=50)
"""Without chatter in between, so that writes can be counted."""

TURNS: Turns = (
    [call("look", id="a1", at="x"), call("pay", id="a2", at="y")],
    [call("save", id="b1", at="z")],
    "All done.",
)
FIRST_STEP = ("call.begin", "call.begin", "call.end", "call.end", "step")
WRITES = ("start", *FIRST_STEP, "call.begin", "call.end", "step", "finish")


class Tried:
    """An agent whose tools note what they did; the model's words follow from the conversation, so
    that asking it again gives the same."""

    def __init__(self, turns: Turns = TURNS) -> None:
        self.ran: list[tuple[str, str]] = []
        self._turns = turns
        self.asked = 0
        tools = [
            FunctionTool(self._noting("look"), name="look", effect="pure"),
            FunctionTool(self._noting("save"), name="save", effect="idempotent"),
            FunctionTool(self._noting("pay"), name="pay", effect="external"),
        ]
        self.agent = Agent(ScriptedModel(self._turn), tools=tools)

    def _noting(self, name: str) -> Any:
        async def note(at: str, context: ToolContext) -> str:
            "Note it."
            self.ran.append((name, context.idempotency_key))
            return f"{name} at {at}"

        return note

    def _turn(self, request: ModelRequest) -> Any:
        self.asked += 1
        answered = sum(1 for message in request.messages if message.is_assistant())
        return self._turns[answered]

    def times(self, name: str) -> int:
        return sum(1 for ran, _ in self.ran if ran == name)


async def taken_over(here: World, id: str, crashes: Sequence[tuple[int, bool]]) -> int:
    """Run it with these crashes, one per attempt; how many of them happened."""
    happened = 0
    for at, after in crashes:
        row = await here.execution(id)
        if row.status.is_over:
            break
        store = CrashingStore(here.store, at=at, after=after)
        try:
            await here.run(id, store=store, dead=happened > 0)
        except Crash:
            happened += 1
    row = await here.execution(id)
    if not row.status.is_over:
        await here.run(id, dead=happened > 0)
    return happened


async def conversation(here: World) -> list[Any]:
    session = await here.session()
    assert session.last_snapshot_id is not None
    state = await Reader(here.store).state_of(session.last_snapshot_id)
    return [(m.id, m.role, m.parts) for m in state.messages]
