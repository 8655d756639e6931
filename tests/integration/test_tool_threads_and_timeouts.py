"""Real threads, real waiting: tools that block, listeners that hang, runs that must not."""

import asyncio
import gc
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from stepwell import (
    Agent,
    AgentState,
    AgentStatus,
    Cancellation,
    ErrorPolicy,
    FunctionTool,
    StopReason,
    ToolContext,
)
from stepwell.events import AgentEvent, AgentExecutionStarted, AgentFinished, ToolCallProgressed
from stepwell.state import ToolOutcome
from stepwell.testing import EventRecorder, ScriptedModel, call

RETRY = ErrorPolicy.retry_tool_errors(3)


def seconds_now() -> float:
    return asyncio.get_running_loop().time()


async def run_within(seconds: float, agent: Agent, **options: object) -> AgentState:
    return await asyncio.wait_for(agent.run("Go", **options), seconds)  # type: ignore[arg-type]


async def test_sync_tools_of_one_response_run_at_the_same_time() -> None:
    together = threading.Barrier(4, timeout=90)

    def meet() -> int:
        together.wait()
        return threading.get_ident()

    agent = Agent(ScriptedModel([[call("meet") for _ in range(4)], "ok"]), tools=[meet])
    state = await run_within(90, agent)
    threads = {execution.value for execution in state.steps[0].step.tool_executions}

    assert len(threads) == 4
    assert threading.get_ident() not in threads


async def test_a_sync_tool_does_not_block_the_event_loop() -> None:
    begun, ticked = threading.Event(), threading.Event()

    async def tick() -> None:
        while not begun.is_set():  # noqa: ASYNC110 - a thread sets it
            await asyncio.sleep(0.01)
        for _ in range(5):
            await asyncio.sleep(0.01)
        ticked.set()

    def block() -> bool:
        begun.set()
        return ticked.wait(10)

    ticking = asyncio.create_task(tick())
    state = await run_within(90, Agent(ScriptedModel([call("block"), "ok"]), tools=[block]))
    ticking.cancel()

    assert state.steps[0].step.tool_executions[0].value is True


async def test_a_timeout_of_a_sync_tool_frees_the_run_and_tells_the_thread() -> None:
    noticed = threading.Event()

    def stubborn(context: ToolContext) -> str:
        while not context.is_cancelled:
            time.sleep(0.005)
        noticed.set()
        return "too late"

    agent = Agent(
        ScriptedModel([call("stubborn"), "ok"]),
        tools=[FunctionTool(stubborn, timeout=0.1)],
        error_policy=RETRY,
    )
    started = seconds_now()
    state = await run_within(90, agent)
    execution = state.steps[0].step.tool_executions[0]

    assert seconds_now() - started < 60
    assert execution.outcome is ToolOutcome.TIMED_OUT
    assert 0.09 < execution.duration_seconds < 60
    assert (state.status, state.final_response) == (AgentStatus.COMPLETED, "ok")
    assert await asyncio.to_thread(noticed.wait, 90)


async def test_a_late_thread_tells_nothing_after_its_call_was_given_up() -> None:
    go_on, told = threading.Event(), threading.Event()

    def stubborn(context: ToolContext) -> str:
        context.progress("in time")
        go_on.wait(90)
        context.progress("too late")
        told.set()
        return "too late"

    recorder = EventRecorder()
    agent = Agent(
        ScriptedModel([call("stubborn"), "ok"]),
        tools=[FunctionTool(stubborn, timeout=3.0)],
        error_policy=RETRY,
    )
    agent.wiretap(recorder)
    await run_within(90, agent)
    go_on.set()
    assert await asyncio.to_thread(told.wait, 90)
    await asyncio.sleep(0.05)

    assert [event.message for event in recorder.of(ToolCallProgressed)] == ["in time"]
    assert recorder.names[-1] == "AgentFinished"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_sync_tool_that_raises_a_cancellation_of_its_own_ends_the_call() -> None:
    def inner_loop() -> str:
        raise asyncio.CancelledError("an inner loop was cancelled")

    agent = Agent(ScriptedModel([call("inner_loop"), "ok"]), tools=[inner_loop], error_policy=RETRY)
    state = await run_within(90, agent)

    assert state.steps[0].step.tool_executions[0].outcome is ToolOutcome.RAISED
    assert "CancelledError" in state.steps[0].step.tool_executions[0].text
    assert state.status is AgentStatus.COMPLETED


async def test_b091_the_deadline_of_a_run_does_not_wait_for_a_sync_tool() -> None:
    release = threading.Event()

    def block() -> str:
        release.wait(300)
        return "too late"

    agent = Agent(ScriptedModel([call("block"), "never"]), tools=[block], timeout=0.3)
    started = seconds_now()
    state = await run_within(90, agent)
    release.set()

    assert seconds_now() - started < 60
    assert state.stop is not None
    assert state.stop.stop_reason is StopReason.TIME_LIMIT
    assert state.steps[0].step.tool_executions[0].outcome is ToolOutcome.CANCELLED
    assert "block" in state.explain()


async def test_a_cancellation_from_another_thread_ends_a_tool_in_flight() -> None:
    cancellation = Cancellation()
    seen: list[str] = []

    async def hang() -> str:
        threading.Timer(0.05, cancellation.request, ["closed the tab"]).start()
        try:
            await asyncio.sleep(300)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        return "never"

    agent = Agent(ScriptedModel([call("hang", id="c1"), "never"]), tools=[hang])
    state = await run_within(90, agent, cancellation=cancellation)

    assert seen == ["cancelled"]
    assert state.status is AgentStatus.CANCELLED
    assert "closed the tab" in state.explain()
    assert state.messages[2].tool_result is not None
    assert state.messages[2].tool_result.is_error


async def test_cancelling_the_task_around_a_run_passes_through() -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def hang() -> str:
        begun.set()
        try:
            await asyncio.sleep(300)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return "never"

    for calls in ([call("hang")], [call("hang"), call("hang")]):
        begun.clear()
        cancelled.clear()
        agent = Agent(ScriptedModel([calls]), tools=[hang])
        running = asyncio.create_task(agent.run("Go"))
        await asyncio.wait_for(begun.wait(), 90)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert cancelled.is_set()


async def test_a_tool_that_swallows_its_cancellation_still_timed_out() -> None:
    async def deaf() -> str:
        try:
            await asyncio.sleep(300)
        except asyncio.CancelledError:
            return "I did not hear that"
        return "never"

    agent = Agent(
        ScriptedModel([call("deaf"), "ok"]),
        tools=[FunctionTool(deaf, timeout=0.05)],
        error_policy=RETRY,
    )
    state = await run_within(90, agent)

    assert state.steps[0].step.tool_executions[0].outcome is ToolOutcome.TIMED_OUT
    assert state.status is AgentStatus.COMPLETED


async def test_a_listener_that_never_returns_holds_the_run_up_for_half_a_second_at_most(
    caplog: pytest.LogCaptureFixture,
) -> None:
    release = asyncio.Event()

    async def hang(event: AgentExecutionStarted) -> None:
        await release.wait()

    agent = Agent(ScriptedModel(["Hi."]))
    agent.on_event(AgentExecutionStarted, hang)
    started = seconds_now()
    state = await run_within(90, agent)
    spent = seconds_now() - started
    release.set()

    assert state.final_response == "Hi."
    assert spent < 60
    assert "it goes on after the run" in caplog.text


async def test_a_slow_listener_gets_all_its_events_after_the_run() -> None:
    heard: list[str] = []
    done = asyncio.Event()

    async def slow(event: AgentEvent) -> None:
        await asyncio.sleep(0.1)
        heard.append(type(event).__name__)
        if isinstance(event, AgentFinished):
            done.set()

    recorder = EventRecorder()
    agent = Agent(ScriptedModel(["Hi."]))
    agent.wiretap(recorder)
    agent.wiretap(slow)
    await run_within(90, agent)
    assert len(heard) < len(recorder.names)
    gc.collect()
    await asyncio.wait_for(done.wait(), 90)

    assert heard == recorder.names


def run_program(text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", textwrap.dedent(text)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_an_abandoned_thread_does_not_hold_up_the_end_of_the_program() -> None:
    done = run_program(
        """
        import time
        from stepwell import Agent, FunctionTool
        from stepwell.testing import ScriptedModel, call

        def block() -> str:
            time.sleep(300)
            return "never"

        agent = Agent(ScriptedModel([call("block")]), tools=[FunctionTool(block, timeout=0.1)])
        print(agent.run_sync("Go").status)
        """
    )

    assert (done.returncode, done.stdout.strip()) == (0, "failed")
    assert done.stderr == ""


def test_a_listener_left_hanging_at_the_end_of_the_program_leaves_no_noise_but_its_warning() -> (
    None
):
    done = run_program(
        """
        import asyncio
        from stepwell import Agent
        from stepwell.testing import ScriptedModel

        async def hang(event):
            await asyncio.Event().wait()

        agent = Agent(ScriptedModel(["Hi."]))
        agent.wiretap(hang)
        print(agent.run_sync("Go").final_response)
        """
    )

    assert done.stdout.strip() == "Hi."
    assert "never awaited" not in done.stderr
    assert "Traceback" not in done.stderr
