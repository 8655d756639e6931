"""Replays of executions that were cut off, steered, or forked from others."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from stepwell import Agent, tool
from stepwell.app import AgentApp, NewMessage, Principal
from stepwell.clock import SystemClock
from stepwell.hooks import HookContext, HookTrigger, make_hook
from stepwell.messages import ToolCall
from stepwell.models import ModelRequest, ModelResponse, ResponseEnd, StreamPart
from stepwell.scope import RunScope
from stepwell.sessions.intake.intake import NewSession
from stepwell.sessions.records import Execution, WhenBusy
from stepwell.testing import call
from stepwell.tools import ToolContext
from tests.integration.cli.test_replay import NEVER, ran, replay, script

pytestmark = pytest.mark.usefixtures("replay_database")

ADA = Principal(user_id="ada")


@tool
async def nap(seconds: float) -> str:
    """Sleep."""
    await asyncio.sleep(seconds)
    return "slept"


class JumpingClock(SystemClock):
    """An agent's time, which jumps to the deadline: the way there may take as long as it does."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self._ahead

    def jump_to_the_deadline(self, scope: RunScope) -> None:
        left = scope.seconds_left
        assert left
        self._ahead += left
        scope.set_deadline(0)


class FallsAsleep:
    """A model that calls a tool once and then takes longer than anybody waits."""

    name = "sleepy"

    def __init__(self) -> None:
        self.turns = 0
        self.sleeps = asyncio.Event()

    async def respond(self, request: ModelRequest) -> ModelResponse:
        self.turns += 1
        if self.turns == 1:
            return ModelResponse(
                tool_calls=(ToolCall(id="a", name="nap", arguments={"seconds": 0}),)
            )
        self.sleeps.set()
        await asyncio.sleep(30)
        return ModelResponse(text="too late")

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        yield ResponseEnd(await self.respond(request))


async def until_over(app: AgentApp, id: str) -> None:
    await until(app, id, lambda row: row.status.is_terminal)


async def until(app: AgentApp, id: str, fits: Callable[[Execution], bool]) -> None:
    async with asyncio.timeout(90):
        while True:
            row = await app.services.store.read(lambda tx: tx.execution(id))
            if row is not None and fits(row):
                return
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("at_limit", ["stop", "wrap_up"])
async def test_a_deadline_in_a_tool_is_met_again(at_limit: str, tmp_path: Path):
    clock = JumpingClock()

    @tool
    async def oversleep(context: ToolContext) -> str:
        """Sleep for longer than the run has."""
        clock.jump_to_the_deadline(context.state.scope)
        await asyncio.sleep(30)
        return "slept"

    limits: dict[str, Any] = {"timeout": 60.0, "at_limit": at_limit}
    turns = (call("oversleep"), "Done.")
    id = await ran(Agent(script(*turns), tools=[oversleep], clock=clock, **limits), tmp_path)
    done = await replay(id, Agent(NEVER, tools=[oversleep], **limits), tmp_path)
    assert done.is_same, done
    assert done.steps[0].now.evaluation_for("Deadline") is not None


async def test_a_deadline_in_a_model_call_is_met_again(tmp_path: Path):
    clock, model, scopes = JumpingClock(), FallsAsleep(), list[RunScope]()

    @tool(name="nap")
    async def short_nap(seconds: float, context: ToolContext) -> str:
        """Sleep."""
        scopes.append(context.state.scope)
        return "slept"

    running = asyncio.create_task(
        ran(Agent(model, tools=[short_nap], timeout=60.0, clock=clock), tmp_path)
    )
    await asyncio.wait_for(model.sleeps.wait(), 90)
    clock.jump_to_the_deadline(scopes[0])
    id = await running
    done = await replay(id, Agent(NEVER, tools=[short_nap], timeout=60.0), tmp_path)
    assert done.is_same, done
    assert len(done.steps) == 1


async def test_a_person_cancels_at_the_same_place(tmp_path: Path):
    model = FallsAsleep()
    app = AgentApp({"agent": Agent(model, tools=[nap])}, db=f"sqlite:///{tmp_path}/replay.db")
    async with app.running():
        sent = await app.services.intake.send_message(ADA, NewMessage(content="Go"))
        assert sent.execution is not None
        await asyncio.wait_for(model.sleeps.wait(), 90)
        await app.services.lifecycle.cancel(sent.execution.id, reason="enough")
        await until_over(app, sent.execution.id)
    done = await replay(sent.execution.id, Agent(NEVER, tools=[nap]), tmp_path)
    assert done.is_same, done


async def test_messages_that_came_while_it_ran_are_seen_again_and_forks_begin_later(
    tmp_path: Path,
):
    began, was_hurried = asyncio.Event(), asyncio.Event()

    @tool
    async def rest() -> str:
        """Say that it is begun, and last until the second message is there."""
        began.set()
        await asyncio.wait_for(was_hurried.wait(), 90)
        return "rested"

    turns = (call("rest"), call("nap", seconds=0.01), "Done.", "Done as well.")
    agent = Agent(script(*turns), tools=[nap, rest])
    app = AgentApp({"agent": agent}, db=f"sqlite:///{tmp_path}/replay.db")
    async with app.running():
        services, steers = app.services, NewSession(when_busy=WhenBusy.STEER)
        sent = await services.intake.send_message(ADA, NewMessage(content="Go", new_session=steers))
        assert sent.execution is not None
        await asyncio.wait_for(began.wait(), 90)
        await services.intake.send_message(
            ADA, NewMessage(content="Hurry", session_id=sent.session.id)
        )
        was_hurried.set()
        await until_over(app, sent.execution.id)
        forked = await services.lifecycle.fork(ADA, sent.execution.id, step_number=2)
        assert forked.execution is not None
        await until_over(app, forked.execution.id)
    seen: list[int] = []

    def looks(context: HookContext) -> None:
        seen.append(sum(message.is_user() for message in context.state.messages))

    curious = Agent(NEVER, tools=[nap, rest], hooks=[make_hook(HookTrigger.AFTER_STEP, looks)])
    done = await replay(sent.execution.id, curious, tmp_path)
    assert done.is_same, done
    assert seen == [1, 2, 2]
    fork = await replay(forked.execution.id, Agent(NEVER, tools=[nap, rest]), tmp_path)
    assert fork.is_same, fork
    assert (fork.notes, [step.number for step in fork.steps]) == (("it begins behind step 2",), [3])
