"""Deadlines and cancellations reach what is in flight; these tests wait for real, but briefly."""

import asyncio
import queue
import threading
import time

import pytest

from stepwell import (
    Agent,
    AgentStatus,
    Cancellation,
    ErrorPolicy,
    ModelError,
    StopReason,
    ToolContext,
    make_hook,
)
from stepwell.errors import ErrorType
from stepwell.events import AgentFinished, AgentStepCompleted, ToolCallCompleted, ToolCallStarted
from stepwell.models import ModelResponse, ResponseEnd, TextDelta
from stepwell.state import ToolOutcome
from stepwell.testing import EventRecorder, MockTool, ScriptedModel, call

LONG = 300.0
SOON = 1.0
"""Enough to begin what the deadline is to cut off, also on a machine that is busy."""
ENOUGH = 90.0
"""Far below LONG: a run that takes less was not waiting for it."""


class Sleeper:
    """A tool body or a model that sleeps for long and notes how that ended."""

    name = "sleeper"

    def __init__(self):
        self.ended = ""
        self._begun = asyncio.Event()

    async def has_begun(self):
        await asyncio.wait_for(self._begun.wait(), ENOUGH)

    async def sleep(self):
        self._begun.set()
        try:
            await asyncio.sleep(LONG)
        except asyncio.CancelledError:
            self.ended = "cancelled"
            raise
        self.ended = "awaited"
        return "slept"

    async def respond(self, request):
        return ModelResponse(text=await self.sleep())

    async def stream(self, request):
        yield TextDelta("Well")
        yield ResponseEnd(await self.respond(request))


@pytest.fixture
def sleeper():
    return Sleeper()


@pytest.fixture(autouse=True)
def quick():
    """Fails a test that waited for what should have been cut off."""
    started = time.monotonic()  # noqa: TID251 - what is measured here is the real clock
    yield
    assert time.monotonic() - started < ENOUGH  # noqa: TID251


def with_tools(*tools, turns, **settings):
    recorder = EventRecorder()
    agent = Agent(ScriptedModel(turns), tools=tools, **settings)
    agent.wiretap(recorder)
    return agent, recorder


async def test_b091_a_deadline_cancels_a_tool_in_flight(sleeper):
    agent, recorder = with_tools(
        MockTool("nap", sleeper.sleep), turns=[call("nap"), "never"], timeout=SOON
    )

    state = await agent.run("hi")

    assert sleeper.ended == "cancelled"
    assert state.status is AgentStatus.STOPPED
    assert state.stop.stop_reason is StopReason.TIME_LIMIT
    (execution,) = state.steps[0].step.tool_executions
    assert execution.outcome is ToolOutcome.CANCELLED
    assert state.messages[-1].tool_result.is_error
    assert state.usage.total_tokens == 15
    assert len(recorder.of(AgentFinished)) == 1
    assert recorder.of(ToolCallCompleted)[0].success is False


@pytest.mark.parametrize("listens", [False, True])
async def test_b091_a_deadline_cancels_a_model_call_in_flight(sleeper, listens):
    agent = Agent(sleeper, timeout=SOON)
    recorder = EventRecorder()
    if listens:  # with a listener the model is asked to stream
        agent.wiretap(recorder)

    state = await agent.run("hi")

    assert sleeper.ended == "cancelled"
    assert state.stop.stop_reason is StopReason.TIME_LIMIT
    assert "sleeper" in state.explain()
    assert state.cumulative_seconds >= SOON


async def test_b091_a_cumulative_deadline_cancels_too(sleeper):
    agent, _ = with_tools(
        MockTool("nap", sleeper.sleep), turns=[call("nap")], cumulative_timeout=SOON
    )

    state = await agent.run("hi")

    assert sleeper.ended == "cancelled"
    assert state.stop.stop_reason is StopReason.TIME_LIMIT


async def test_b091_a_deadline_cancels_all_tools_of_a_batch(sleeper):
    other = Sleeper()
    agent, _ = with_tools(
        MockTool("nap", sleeper.sleep),
        MockTool("doze", other.sleep),
        MockTool.returning("look", "a door"),
        turns=[[call("nap"), call("look"), call("doze")]],
        timeout=SOON,
    )

    state = await agent.run("hi")

    assert (sleeper.ended, other.ended) == ("cancelled", "cancelled")
    outcomes = [execution.outcome for execution in state.steps[0].step.tool_executions]
    assert outcomes == ["cancelled", "completed", "cancelled"]


async def test_b091_a_deadline_does_not_wait_for_a_tool_in_a_thread():
    released = threading.Event()
    seen: queue.Queue[bool] = queue.Queue()

    def nap(context: ToolContext) -> str:
        """Sleep."""
        released.wait(LONG)
        seen.put(context.is_cancelled)
        return "slept"

    agent, _ = with_tools(nap, turns=[call("nap")], timeout=SOON)

    state = await agent.run("hi")
    released.set()

    assert state.stop.stop_reason is StopReason.TIME_LIMIT
    assert state.steps[0].step.tool_executions[0].outcome is ToolOutcome.CANCELLED
    assert seen.get(timeout=ENOUGH) is True


@pytest.mark.parametrize("trigger", ["before_step", "before_inference"])
async def test_b091_a_deadline_that_passes_in_a_hook_starts_no_long_model_call(sleeper, trigger):
    async def slow(context):
        await asyncio.sleep(SOON * 2)

    agent = Agent(sleeper, timeout=SOON, hooks=[make_hook(trigger, slow)])
    task = asyncio.create_task(agent.run("hi"))
    done, _ = await asyncio.wait([task], timeout=ENOUGH)
    if not done:
        task.cancel()

    assert done, "the model call went on without a deadline"
    assert task.result().stop.stop_reason is StopReason.TIME_LIMIT


async def test_b091_a_deadline_that_passes_in_a_before_tool_hook_starts_no_long_tool(sleeper):
    async def slow(context):
        await asyncio.sleep(SOON * 2)

    agent, _ = with_tools(
        MockTool("nap", sleeper.sleep),
        turns=[call("nap")],
        timeout=SOON,
        hooks=[make_hook("before_tool", slow)],
    )
    task = asyncio.create_task(agent.run("hi"))
    done, _ = await asyncio.wait([task], timeout=ENOUGH)
    if not done:
        task.cancel()

    assert done, "the tool went on without a deadline"
    assert task.result().stop.stop_reason is StopReason.TIME_LIMIT


async def test_b091_a_deadline_ends_the_wait_before_a_retry():
    limited = ModelError("slow down", error_type=ErrorType.RATE_LIMIT, retry_after=LONG)
    model = ScriptedModel([limited, "never"])
    agent = Agent(model, timeout=SOON, error_policy=ErrorPolicy.retry_all(5))

    state = await agent.run("hi")

    assert state.stop.stop_reason is StopReason.TIME_LIMIT
    assert len(model.requests) == 1


async def test_wrap_up_after_a_deadline_still_answers(sleeper):
    agent, _ = with_tools(
        MockTool("nap", sleeper.sleep),
        turns=[call("nap"), "I ran out of time."],
        timeout=SOON,
        at_limit="wrap_up",
    )

    state = await agent.run("hi")

    assert sleeper.ended == "cancelled"
    assert state.final_response == "I ran out of time."
    assert state.stop.stop_reason is StopReason.TIME_LIMIT


async def test_pause_after_a_deadline_can_go_on(sleeper):
    agent, _ = with_tools(
        MockTool("nap", sleeper.sleep),
        turns=[call("nap"), "Done."],
        timeout=SOON,
        at_limit="pause",
    )

    paused = await agent.run("hi")
    assert paused.status is AgentStatus.PAUSED
    state = await agent.run(paused.with_budget_granted(seconds=LONG))

    assert state.status is AgentStatus.COMPLETED
    assert state.final_response == "Done."


async def test_a_cancellation_reaches_a_tool_in_flight(sleeper):
    cancellation = Cancellation()
    agent, recorder = with_tools(MockTool("nap", sleeper.sleep), turns=[call("nap")])
    agent.on_event(ToolCallStarted, lambda event: cancellation.request("closed the tab"))

    state = await agent.run("hi", cancellation=cancellation)

    assert sleeper.ended == "cancelled"
    assert state.status is AgentStatus.CANCELLED
    assert state.stop.resolved_by == "user"
    assert "closed the tab" in state.explain()
    assert len(recorder.of(AgentStepCompleted)) == 1


async def test_a_cancellation_from_another_thread_reaches_a_model_call(sleeper):
    cancellation = Cancellation()
    task = asyncio.create_task(Agent(sleeper).run("hi", cancellation=cancellation))
    await sleeper.has_begun()
    # A moment later, so that the request finds an event loop that waits and has to be woken.
    timer = threading.Timer(0.05, cancellation.request, args=["enough"])
    timer.start()

    state = await task
    timer.join()

    assert sleeper.ended == "cancelled"
    assert state.status is AgentStatus.CANCELLED


async def test_cancelling_the_task_of_a_run_is_not_swallowed(sleeper):
    task = asyncio.create_task(Agent(sleeper).run("hi"))
    await sleeper.has_begun()

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert sleeper.ended == "cancelled"


async def test_cancelling_the_task_while_the_deadline_fires_is_not_swallowed(sleeper):
    agent, _ = with_tools(MockTool("nap", sleeper.sleep), turns=[call("nap")], timeout=LONG)
    cancellation = Cancellation()
    task = asyncio.create_task(agent.run("hi", cancellation=cancellation))
    await sleeper.has_begun()

    cancellation.request()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_b089_a_run_of_50_ms_is_reported_with_sub_second_precision():
    async def nap():
        await asyncio.sleep(0.05)

    agent, recorder = with_tools(MockTool("nap", nap), turns=[call("nap"), "Done."])

    started = asyncio.get_running_loop().time()
    state = await agent.run("hi")
    spent = asyncio.get_running_loop().time() - started

    assert 50 <= recorder.of(AgentFinished)[0].duration_ms <= spent * 1000 + 1
    assert 0.05 <= state.cumulative_seconds <= spent
