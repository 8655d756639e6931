"""Foreign code that ignores its cancellation is abandoned, and what it raises ends only itself."""

import asyncio
import logging
import signal
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from stepwell import (
    Agent,
    AgentState,
    AgentStatus,
    Cancellation,
    ContinuationEvaluation,
    ErrorPolicy,
    FunctionTool,
    HookContext,
    StopReason,
    make_hook,
)
from stepwell.events import AgentEvent
from stepwell.foreign import as_exception
from stepwell.models import ModelRequest, ModelResponse
from stepwell.state import ToolOutcome
from stepwell.testing import ScriptedModel, call
from tests.virtual_time import virtual_time

pytestmark = virtual_time

SOON = 0.05
ENOUGH = 30.0
RETRY = ErrorPolicy.retry_tool_errors(3)


class Deaf:
    """Code that ignores every cancellation until the test releases it."""

    name = "deaf"

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.released = asyncio.Event()
        self.ended = asyncio.Event()

    async def wait(self) -> str:
        self.begun.set()
        while not self.released.is_set():
            try:
                await self.released.wait()
            except BaseException:  # noqa: BLE001 - this is what is tested
                continue
        self.ended.set()
        return "late"

    async def respond(self, request: ModelRequest) -> ModelResponse:
        return ModelResponse(text=await self.wait())

    async def use_tools(self, state: AgentState) -> AgentState:
        await self.wait()
        return state

    async def hook(self, context: HookContext) -> None:
        await self.wait()


@pytest.fixture
async def deaf() -> AsyncIterator[Deaf]:
    deaf = Deaf()
    yield deaf
    deaf.released.set()
    if deaf.begun.is_set():
        await asyncio.wait_for(deaf.ended.wait(), ENOUGH)


async def cancelled(agent: Agent, deaf: Deaf) -> AgentState:
    cancellation = Cancellation()
    run = asyncio.create_task(agent.run("Go", cancellation=cancellation))
    await asyncio.wait_for(deaf.begun.wait(), ENOUGH)
    cancellation.request("enough")
    return await asyncio.wait_for(run, ENOUGH)


async def test_a_tool_that_ignores_the_cancellation_is_abandoned(
    deaf: Deaf, caplog: pytest.LogCaptureFixture
) -> None:
    agent = Agent(ScriptedModel([call("wait"), "Done."]), tools=[deaf.wait], cancel_grace=SOON)

    with caplog.at_level(logging.WARNING, "stepwell.foreign"):
        state = await cancelled(agent, deaf)
    before = state.messages[-1].text
    deaf.released.set()
    await asyncio.wait_for(deaf.ended.wait(), ENOUGH)

    [execution] = state.steps[0].step.tool_executions
    assert (state.status, execution.outcome) == (AgentStatus.CANCELLED, ToolOutcome.CANCELLED)
    assert "was abandoned" in execution.text
    assert "may still take effect" in execution.text
    assert before == state.messages[-1].text
    assert "late" not in before
    [line] = caplog.messages
    assert line.startswith("tool wait did not end within 0.05 s")


async def test_a_tool_that_ignores_its_own_timeout_is_abandoned(deaf: Deaf) -> None:
    waiting = FunctionTool(deaf.wait, timeout=SOON)
    agent = Agent(
        ScriptedModel([call("wait"), "Done."]),
        tools=[waiting],
        cancel_grace=SOON,
        error_policy=RETRY,
    )

    state = await asyncio.wait_for(agent.run("Go"), ENOUGH)

    [execution] = state.steps[0].step.tool_executions
    assert execution.outcome is ToolOutcome.TIMED_OUT
    assert "abandoned" in execution.text
    assert state.final_response == "Done."


async def test_parallel_calls_are_abandoned_each_and_the_others_keep_their_results(
    deaf: Deaf,
) -> None:
    async def look() -> str:
        await deaf.begun.wait()
        return "seen"

    model = ScriptedModel([[call("wait"), call("look")], "Done."])
    agent = Agent(model, tools=[deaf.wait, look], cancel_grace=SOON, timeout=1.0)

    state = await asyncio.wait_for(agent.run("Go"), ENOUGH)

    outcomes = [execution.outcome for execution in state.steps[0].step.tool_executions]
    assert outcomes == [ToolOutcome.CANCELLED, ToolOutcome.COMPLETED]
    assert state.stop is not None
    assert state.stop.stop_reason is StopReason.TIME_LIMIT


def as_model(deaf: Deaf) -> Agent:
    return Agent(deaf, cancel_grace=SOON)


def as_driver(deaf: Deaf) -> Agent:
    return Agent(driver=deaf, cancel_grace=SOON)


def as_hook(deaf: Deaf) -> Agent:
    hook = make_hook("before_step", deaf.hook)
    return Agent(ScriptedModel(["Hi."]), hooks=[hook], cancel_grace=SOON)


def as_tool_hook(deaf: Deaf) -> Agent:
    hook = make_hook("before_tool", deaf.hook)
    model = ScriptedModel([call("look"), "Hi."])
    return Agent(model, tools=[look_around], hooks=[hook], cancel_grace=SOON)


def look_around() -> str:
    return "seen"


@pytest.mark.parametrize("made", [as_model, as_driver, as_hook, as_tool_hook])
async def test_models_drivers_and_hooks_that_ignore_the_cancellation_are_abandoned(
    made: Callable[[Deaf], Agent], deaf: Deaf
) -> None:
    state = await cancelled(made(deaf), deaf)

    assert state.status is AgentStatus.CANCELLED


async def test_a_cancelled_task_around_the_run_ends_although_the_tool_does_not(deaf: Deaf) -> None:
    agent = Agent(ScriptedModel([call("wait"), "Done."]), tools=[deaf.wait], cancel_grace=SOON)
    run = asyncio.create_task(agent.run("Go"))
    await asyncio.wait_for(deaf.begun.wait(), ENOUGH)
    run.cancel()

    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(asyncio.shield(run), ENOUGH)


async def test_a_run_that_was_cancelled_gives_no_late_result_to_the_next_one(deaf: Deaf) -> None:
    model = ScriptedModel([call("wait", id="c1"), "Hello again."])
    agent = Agent(model, tools=[deaf.wait], cancel_grace=SOON)
    state = await cancelled(agent, deaf)
    deaf.released.set()

    after = await asyncio.wait_for(agent.run(state), ENOUGH)

    assert after.final_response == "Hello again."
    assert not any("late" in message.text for message in after.messages)


def exits(kind: type[BaseException]) -> Callable[[], None]:
    def leave() -> None:
        raise kind("no reason")

    return leave


EXITS = [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError, BaseException]


@pytest.mark.parametrize("kind", EXITS)
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
async def test_an_exit_raised_by_a_tool_is_a_failed_result(
    kind: type[BaseException], is_async: bool
) -> None:
    async def leave_soon() -> None:
        await asyncio.sleep(0)
        raise kind("no reason")

    tool = FunctionTool(leave_soon if is_async else exits(kind), name="leave")
    agent = Agent(ScriptedModel([call("leave"), "Still here."]), tools=[tool], error_policy=RETRY)

    state = await agent.run("Go")

    [execution] = state.steps[0].step.tool_executions
    assert execution.outcome is ToolOutcome.RAISED
    assert kind.__name__ in execution.text
    assert state.final_response == "Still here."


@pytest.mark.parametrize("kind", EXITS)
@pytest.mark.parametrize("trigger", ["before_step", "after_execution"])
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
async def test_an_exit_raised_by_a_hook_fails_the_run(
    kind: type[BaseException], trigger: str, is_async: bool
) -> None:
    async def leave_soon(context: HookContext) -> None:
        raise kind("no reason")

    def leave(context: HookContext) -> None:
        raise kind("no reason")

    hook = make_hook(trigger, leave_soon if is_async else leave)

    state = await Agent(ScriptedModel(["Hi."]), hooks=[hook]).run("Go")

    assert state.status is AgentStatus.FAILED


@pytest.mark.parametrize("kind", EXITS)
async def test_an_exit_raised_by_a_model_a_driver_or_a_criterion_fails_the_run(
    kind: type[BaseException],
) -> None:
    class Leaving:
        name = "leaving"

        async def respond(self, request: ModelRequest) -> ModelResponse:
            raise kind("no reason")

        async def use_tools(self, state: AgentState) -> AgentState:
            raise kind("no reason")

        def evaluate(self, state: AgentState) -> ContinuationEvaluation:
            raise kind("no reason")

    agents = [
        Agent(Leaving()),
        Agent(driver=Leaving()),
        Agent(ScriptedModel(["Hi."]), criteria=[Leaving()]),
    ]

    for agent in agents:
        state = await agent.run("Go")
        assert state.status is AgentStatus.FAILED, agent


@pytest.mark.parametrize("kind", EXITS)
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
async def test_an_exit_raised_by_a_listener_harms_no_run(
    kind: type[BaseException], is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def leave_soon(event: AgentEvent) -> None:
        raise kind("no reason")

    def leave(event: AgentEvent) -> None:
        raise kind("no reason")

    agent = Agent(ScriptedModel(["Hi."]))
    agent.wiretap(leave_soon if is_async else leave)

    state = await agent.run("Go")

    assert state.final_response == "Hi."
    assert "raised" in caplog.text


def test_a_real_ctrl_c_while_foreign_code_runs_is_passed_on() -> None:
    def raised(code: Callable[[], Any]) -> BaseException:
        try:
            code()
        except BaseException as error:  # noqa: BLE001 - the error is what is looked at
            return error
        raise AssertionError("nothing was raised")

    by_signal = raised(lambda: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        as_exception(by_signal)

    assert "KeyboardInterrupt" in str(as_exception(raised(exits(KeyboardInterrupt))))
    assert "SystemExit: 3" in str(as_exception(raised(lambda: sys.exit(3))))


def test_run_sync_returns_although_a_tool_never_ends() -> None:
    begun: list[bool] = []

    async def wait() -> None:
        begun.append(True)
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                continue

    agent = Agent(
        ScriptedModel([call("wait"), "Done."]), tools=[wait], cancel_grace=SOON, timeout=0.5
    )

    state = agent.run_sync("Go")

    assert begun
    assert state.stop is not None
    assert state.stop.stop_reason is StopReason.TIME_LIMIT
