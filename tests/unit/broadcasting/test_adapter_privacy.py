"""Whose runs an adapter tells, where several users share one agent."""

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

import pytest

from stepwell import Agent, AgentState, InputRequired
from stepwell.broadcasting import AgentEventEnvelopeAdapter
from stepwell.broadcasting.broadcasters.recorder import RecordingBroadcaster
from stepwell.broadcasting.config import BroadcastConfig
from stepwell.capabilities.subagents import UseSubagents
from stepwell.errors import ConfigurationError
from stepwell.events import (
    AgentExecutionStarted,
    AgentFinished,
    AgentStepStarted,
    ToolCallCompleted,
)
from stepwell.models import ModelRequest
from stepwell.specs.registry import AgentRegistry
from stepwell.specs.spec import AgentSpec
from stepwell.testing import MockTool, ScriptedModel, call
from tests.answers import answer_call
from tests.unit.broadcasting.following import Followed, assert_in_order


class Shared:
    """An agent that many talk to. It looks once and then repeats what its user said, and it stands
    still in its first tool call until it may go on."""

    def __init__(self) -> None:
        self.looks = asyncio.Event()
        self.goes_on = asyncio.Event()
        self.agent = Agent(ScriptedModel(self._turn), tools=[MockTool("look", self._look)])

    async def _look(self) -> str:
        self.looks.set()
        await self.goes_on.wait()
        return "x"

    def _turn(self, request: ModelRequest) -> Any:
        said = [message.text for message in request.messages if message.is_user()][-1]
        is_answer = any(message.is_tool() for message in request.messages)
        return f"{said} it is." if is_answer else call("look")


class User:
    """Somebody with a channel of their own."""

    def __init__(self, name: str) -> None:
        self.screen = RecordingBroadcaster()
        self.adapter = AgentEventEnvelopeAdapter(self.screen, name, f"{name}-1")

    @property
    def answers(self) -> list[str]:
        statuses = (envelope["payload"] for envelope in self.screen.of_type("agent.status"))
        return [status["last_response"] for status in statuses if status["last_response"]]

    def agent_ids(self) -> set[str]:
        return {envelope["payload"]["agent_id"] for envelope in self.screen.envelopes}


async def flushed(*users: User) -> None:
    await asyncio.gather(*(user.adapter.flush() for user in users))


@pytest.mark.parametrize("is_bound", [True, False])
async def test_a_run_that_is_under_way_is_not_told_to_who_comes_later(is_bound: bool) -> None:
    shared, alice, bob = Shared(), User("alice"), User("bob")
    shared.agent.wiretap(alice.adapter.wiretap())
    first = asyncio.create_task(shared.agent.run("Red"))
    await shared.looks.wait()
    state = shared.agent.new_state("Blue")
    shared.agent.wiretap(bob.adapter.wiretap(state if is_bound else None))
    shared.goes_on.set()
    await first
    await shared.agent.run(state)
    await flushed(alice, bob)

    assert alice.answers == ["Red it is."]
    assert bob.answers == ["Blue it is."]
    assert bob.agent_ids() == {state.agent_id}
    assert_in_order(bob.screen.envelopes)


async def test_runs_at_once_are_told_to_the_adapters_of_their_states() -> None:
    shared, alice, bob = Shared(), User("alice"), User("bob")
    shared.goes_on.set()
    red, blue = shared.agent.new_state("Red"), shared.agent.new_state("Blue")
    shared.agent.wiretap(bob.adapter.wiretap(blue))
    shared.agent.wiretap(alice.adapter.wiretap(red))
    await asyncio.gather(shared.agent.run(red), shared.agent.run(blue))
    await flushed(alice, bob)

    assert (alice.answers, bob.answers) == (["Red it is."], ["Blue it is."])
    assert (alice.agent_ids(), bob.agent_ids()) == ({red.agent_id}, {blue.agent_id})


async def test_a_bound_adapter_stays_bound_after_reset() -> None:
    shared, alice = Shared(), User("alice")
    shared.goes_on.set()
    state = shared.agent.new_state("Red")
    shared.agent.wiretap(alice.adapter.wiretap(state))
    state = await shared.agent.run(state)
    alice.adapter.reset("alice-2")
    await shared.agent.run("Blue")
    await shared.agent.run(state.with_user_message("Green"))
    await flushed(alice)

    assert alice.answers == ["Red it is.", "Green it is."]
    assert {e["execution_id"] for e in alice.screen.envelopes} == {"alice-1", "alice-2"}


async def test_the_subagents_of_a_bound_state_are_told_and_those_of_others_are_not() -> None:
    def turn(request: ModelRequest) -> Any:
        is_reader = request.context.messages[-1].text == "reader"
        is_answer = is_reader or any(message.is_tool() for message in request.messages)
        return "Read." if is_answer else call("spawn_subagent", subagent="reader", prompt="Go.")

    reader = AgentSpec(name="reader", description="Reads.", system_prompt="reader")
    capabilities = [UseSubagents(AgentRegistry([reader]))]
    agent = Agent(ScriptedModel(turn), system_prompt="main", capabilities=capabilities)
    alice, bob = User("alice"), User("bob")
    states = agent.new_state("Red"), agent.new_state("Blue")
    for user, state in zip((alice, bob), states, strict=True):
        agent.wiretap(user.adapter.wiretap(state))
    await asyncio.gather(*(agent.run(state) for state in states))
    await flushed(alice, bob)

    for user in (alice, bob):
        names = [e["payload"]["agent_name"] for e in user.screen.of_type("agent.step.started")]
        assert sorted(names, key=str) == [None, None, "reader"]
        assert_in_order(user.screen.envelopes)
    assert not alice.agent_ids() & bob.agent_ids()


async def test_what_is_no_state_is_refused_with_what_to_write() -> None:
    user = User("alice")

    with pytest.raises(ConfigurationError, match=r"write agent\.wiretap\(adapter\.wiretap\(\)\)"):
        user.adapter.wiretap("alice")  # type: ignore[arg-type]


async def test_a_wiretap_that_was_not_called_says_so_and_harms_no_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    agent, user = Agent(ScriptedModel(["Hi."])), User("alice")
    agent.wiretap(user.adapter.wiretap)  # type: ignore[arg-type]

    state = await agent.run("Go.")

    assert state.final_response == "Hi."
    assert "was given AgentExecutionStarted" in caplog.text
    assert "write agent.wiretap(adapter.wiretap())" in caplog.text


async def test_the_adapter_is_a_listener_itself() -> None:
    agent, user = Agent(ScriptedModel(["Hi."])), User("alice")
    stop = agent.wiretap(user.adapter)
    await agent.run("Go.")
    stop()
    await flushed(user)

    assert user.answers == ["Hi."]
    assert user.adapter.delivered == len(user.screen.envelopes)


async def test_after_reset_in_the_middle_of_a_run_its_other_steps_are_not_told() -> None:
    for wiring in ("wiretap", "steps alone"):
        shared, user = Shared(), User("alice")
        if wiring == "wiretap":
            shared.agent.wiretap(user.adapter)
        else:
            shared.agent.on_event(AgentStepStarted, user.adapter.on_agent_step_started)
            shared.agent.on_event(AgentFinished, user.adapter.on_agent_finished)
        run = asyncio.create_task(shared.agent.run("Red"))
        await shared.looks.wait()
        user.adapter.reset("alice-2")
        shared.goes_on.set()
        await run
        await flushed(user)

        assert user.answers == []
        assert {e["execution_id"] for e in user.screen.envelopes} == {"alice-1"}
        await shared.agent.run("Blue")
        await flushed(user)
        assert user.answers == ["Blue it is."]


def statuses(followed: Followed, execution_id: str) -> list[tuple[str, str]]:
    told = followed.payloads("agent.status", execution_id)
    return [(status["previous_status"], status["status"]) for status in told]


async def test_reset_ends_an_execution_that_waits() -> None:
    asks = MockTool.returning("ask", InputRequired(prompt="Which colour?"))
    followed = Followed(Agent(ScriptedModel([call("ask", id="c1"), "Blue."]), tools=[asks]))
    state = await followed.run()

    followed.adapter.reset("e2")
    await followed.run(answer_call(state, "c1", "blue"))

    assert statuses(followed, "e1")[-1] == ("paused", "stopped")
    stopped = followed.payloads("agent.status", "e1")[-1]
    assert stopped["stop_reason"] == "stop_requested"
    assert stopped["reason"] == "it was no longer broadcast: the adapter was reset before its end"
    assert statuses(followed, "e2") == [("idle", "processing"), ("processing", "completed")]
    assert_in_order(followed.envelopes)


async def test_reset_in_the_middle_closes_what_was_open() -> None:
    turns = [call("look"), "Not told.", "Told."]
    followed = Followed(
        Agent(ScriptedModel(turns), tools=[MockTool("look", lambda: reset())]),
        BroadcastConfig.minimal(),
    )

    def reset() -> str:
        followed.adapter.reset("e2")
        return "x"

    await followed.run()
    assert followed.types[-2:] == ["tool.completed", "status"]
    await followed.run()

    assert followed.statuses("e1") == ["processing", "stopped"]
    assert followed.statuses("e2") == ["processing", "completed"]
    assert followed.payloads("agent.status")[-1]["last_response"] == "Told."
    assert_in_order(followed.envelopes)


async def test_reset_before_and_after_a_run_tells_nothing() -> None:
    followed = Followed(Agent(ScriptedModel(["Hi."])))
    followed.adapter.reset("e2")
    await followed.run()
    followed.adapter.reset("e3")
    await followed.adapter.flush()

    assert followed.statuses(None) == ["processing", "completed"]


async def test_an_event_that_comes_twice_is_told_once() -> None:
    once, twice = eventful("once"), eventful("twice")
    agent = twice.agent
    agent.wiretap(twice.adapter)
    agent.on_event(AgentExecutionStarted, twice.adapter.on_agent_execution_started)
    agent.on_event(AgentStepStarted, twice.adapter.on_agent_step_started)
    agent.on_event(ToolCallCompleted, twice.adapter.on_tool_call_completed)
    agent.on_event(AgentFinished, twice.adapter.on_agent_finished)

    await once.run()
    await twice.run()

    assert twice.types == once.types
    assert twice.statuses(None) == ["processing", "completed"]
    assert_in_order(twice.envelopes)


def eventful(word: str) -> Followed:
    return Followed(
        Agent(ScriptedModel([call("look"), word]), tools=[MockTool.returning("look", "x")])
    )


async def test_a_second_run_without_reset_is_warned_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    followed = Followed(Agent(ScriptedModel(["One.", "Two.", "Three."])))
    for _ in range(3):
        await followed.run()

    (warning,) = warnings(caplog.records)
    assert "the adapter serves e1; call reset() before its next run" in warning


async def test_other_runs_at_once_are_warned_of_unless_the_adapter_is_bound(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for state in (None, AgentState.empty()):
        shared, alice = Shared(), User("alice")
        shared.agent.wiretap(alice.adapter.wiretap(state))
        runs: list[asyncio.Task[AgentState]] = []
        for text in ("Red", "Blue"):
            shared.looks.clear()
            runs.append(asyncio.create_task(shared.agent.run(text)))
            await shared.looks.wait()
        shared.goes_on.set()
        await asyncio.gather(*runs)

    (warning,) = warnings(caplog.records)
    assert "agent.wiretap(adapter.wiretap(state))" in warning


def warnings(records: Iterable[logging.LogRecord]) -> list[str]:
    return [record.getMessage() for record in records if record.levelno == logging.WARNING]


async def test_a_first_step_has_to_do_where_nothing_else_is_wired() -> None:
    agent, user = Agent(ScriptedModel(["Hi."])), User("alice")
    agent.on_event(AgentStepStarted, user.adapter.on_agent_step_started)
    agent.on_event(AgentFinished, user.adapter.on_agent_finished)
    await agent.run("Go.")
    await flushed(user)

    assert user.answers == ["Hi."]
