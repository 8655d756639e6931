"""What one tool call leads to: its execution, its result message, and the step around it."""

import asyncio
import contextvars
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from stepwell import (
    Agent,
    AgentState,
    AgentStatus,
    ErrorPolicy,
    FunctionTool,
    HookContext,
    ModelResponse,
    StopReason,
    ToolCall,
    Tools,
    Usage,
    make_hook,
)
from stepwell.errors import ErrorType, ToolExecutionError
from stepwell.events import ToolCallBlocked, ToolCallCompleted
from stepwell.messages import TextPart
from stepwell.state import ToolExecution, ToolOutcome
from stepwell.testing import EventRecorder, MockTool, ScriptedModel, SequentialIds, call
from stepwell.tools import ToolExecutor

RETRY = ErrorPolicy.retry_tool_errors(3)


async def run_with(
    tools: Sequence[Any], calls: Sequence[ToolCall], *, policy: ErrorPolicy | None = RETRY
) -> AgentState:
    model = ScriptedModel([calls, "ok"])
    return await Agent(model, tools=tools, error_policy=policy, new_id=SequentialIds()).run("Go")


async def executed(function: Callable[..., Any]) -> ToolExecution:
    tool = FunctionTool(function, name="act")
    state = await run_with([tool], [call("act", id="c1")])
    return state.steps[0].step.tool_executions[0]


async def test_b161_an_unknown_tool_is_a_failed_execution_and_the_run_goes_on() -> None:
    state = await run_with([MockTool.returning("add", 3)], [call("subtract", id="c1")], policy=None)
    execution = state.steps[0].step.tool_executions[0]

    assert execution.outcome is ToolOutcome.NOT_FOUND
    assert execution.text == "Error: Tool 'subtract' not found. Available tools: add."
    assert execution.is_error
    assert execution.error is None
    assert (state.status, state.final_response) == (AgentStatus.COMPLETED, "ok")
    assert not state.had_errors


async def test_b161_without_any_tools_the_list_says_so() -> None:
    state = await run_with([], [call("add", id="c1")], policy=None)

    assert "Available tools: (none)." in state.steps[0].step.tool_executions[0].text


async def test_b162_a_tool_that_raises_is_wrapped_with_its_name() -> None:
    async def act() -> str:
        raise ValueError("no such order")

    execution = await executed(act)

    assert execution.outcome is ToolOutcome.RAISED
    assert execution.text == "Error: tool 'act' failed: ValueError: no such order"
    assert execution.error is not None
    assert (execution.error.type, execution.error.tool_name) == (ErrorType.TOOL, "act")
    assert (execution.error.exception, execution.error.message) == ("ValueError", "no such order")


class DirectDriver:
    """Runs given calls with an executor of its own, without a model."""

    def __init__(self, executor: ToolExecutor, *calls: ToolCall) -> None:
        self.executor = executor
        self.calls = calls
        self.raised: Exception | None = None

    async def use_tools(self, state: AgentState) -> AgentState:
        try:
            await self.executor.run(self.calls, state)
        except ToolExecutionError as error:
            self.raised = error
            raise
        raise AssertionError("the executor did not raise")


async def test_b162_throw_on_failure_raises_with_the_original_as_cause() -> None:
    original = ValueError("no such order")
    tools = Tools([MockTool.raising("act", original)])
    driver = DirectDriver(ToolExecutor(tools, raise_on_failure=True), call("act", id="c1"))
    state = await Agent(driver=driver).run("Go")

    assert isinstance(driver.raised, ToolExecutionError)
    assert driver.raised.tool_name == "act"
    assert "no such order" in str(driver.raised)
    assert driver.raised.__cause__ is original
    assert state.status is AgentStatus.FAILED


async def test_b162_the_message_of_a_thrown_failure_says_it_once() -> None:
    tools = Tools([MockTool.raising("act", ValueError("no such order"))])
    driver = DirectDriver(ToolExecutor(tools, raise_on_failure=True), call("act", id="c1"))
    await Agent(driver=driver).run("Go")

    assert str(driver.raised).count("failed") == 1


async def test_b164_a_blocked_call_is_told_and_shown_and_harms_nothing() -> None:
    recorder = EventRecorder()
    pay = MockTool.returning("pay", "paid")
    hook = make_hook("before_tool", lambda context: context.block("payments are off"))
    agent = Agent(ScriptedModel([call("pay", id="c1", amount=5), "ok"]), tools=[pay], hooks=[hook])
    agent.wiretap(recorder)
    state = await agent.run("Go")
    execution = state.steps[0].step.tool_executions[0]
    result = state.messages[2].tool_result

    assert execution.was_blocked
    assert execution.outcome is ToolOutcome.BLOCKED
    assert pay.calls == []
    [blocked] = recorder.of(ToolCallBlocked)
    assert (blocked.tool, blocked.call_id, blocked.reason) == ("pay", "c1", "payments are off")
    assert blocked.args == {"amount": 5}
    assert result is not None
    assert (result.content, result.is_error) == ("Error: Blocked: payments are off", True)
    assert "ToolCallStarted" not in recorder.names
    assert "ToolCallCompleted" not in recorder.names
    assert (state.status, state.had_errors) == (AgentStatus.COMPLETED, False)


async def test_b167_two_calls_make_one_assistant_message_and_two_results_in_order() -> None:
    tools = [MockTool.returning("a", "A"), MockTool.returning("b", "B")]
    model = ScriptedModel(
        [[call("a", id="c1"), call("b", id="c2")], "ok"],
        usage=Usage(input_tokens=7, output_tokens=2),
    )
    state = await Agent(model, tools=tools).run("Go")
    step = state.steps[0].step

    assert [str(message.role) for message in step.messages] == ["assistant", "tool", "tool"]
    assert [asked.id for asked in step.messages[0].tool_calls] == ["c1", "c2"]
    results = [message.tool_result for message in step.messages[1:]]
    assert [(r.call_id, r.tool_name, r.content) for r in results if r] == [
        ("c1", "a", "A"),
        ("c2", "b", "B"),
    ]
    assert [execution.call.id for execution in step.tool_executions] == ["c1", "c2"]
    assert step.usage == Usage(input_tokens=7, output_tokens=2)
    assert state.usage == Usage(input_tokens=14, output_tokens=4)


async def said_beside(text: str) -> AgentState:
    response = ModelResponse(text=text, tool_calls=(call("add", id="c1", a=1, b=[2]),))
    return await Agent(ScriptedModel([response, "ok"]), tools=[MockTool.returning("add", 3)]).run(
        "Go"
    )


@pytest.mark.parametrize("text", ['{"a": 1, "b": [2]}', ' {"b":[2],"a":1}\n', ""])
async def test_b168_b169_leaked_arguments_and_empty_text_make_no_text(text: str) -> None:
    message = (await said_beside(text)).messages[1]

    assert message.text == ""
    assert [type(part) for part in message.parts] == [ToolCall]


@pytest.mark.parametrize("text", ['{"a": 1}', "Let me add.", '{"a": 1, "b": [2]} it is', "[1]"])
async def test_b168_any_other_text_stays_before_the_calls(text: str) -> None:
    message = (await said_beside(text)).messages[1]

    assert message.text == text
    assert [type(part) for part in message.parts] == [TextPart, ToolCall]


async def test_b171_messages_of_a_step_carry_the_execution_id_and_link_by_call_id() -> None:
    state = await run_with([MockTool.returning("add", 3)], [call("add", id="c1", a=1)])
    assert state.execution is not None
    asked, result = state.messages[1], state.messages[2]

    assert asked.id.startswith(f"{state.execution.id}:")
    assert result.id.startswith(f"{state.execution.id}:")
    assert (asked.tool_calls[0].id, asked.tool_calls[0].name) == ("c1", "add")
    assert result.tool_result is not None
    assert (result.tool_result.call_id, result.tool_result.tool_name) == ("c1", "add")
    assert len({message.id for message in state.messages}) == len(state.messages)


async def test_b171_calls_without_or_with_repeated_ids_each_get_one_of_their_own() -> None:
    calls = [call("add", a=1), call("add", a=2), call("add", id="x", a=3), call("add", id="x", a=4)]
    add = MockTool("add", lambda a: a)
    state = await run_with([add], calls)
    step = state.steps[0].step
    ids = [asked.id for asked in step.tool_calls]

    assert len(set(ids)) == 4
    assert ids[2] == "x"
    assert all(len(id) <= 40 and id.replace("_", "").replace("-", "").isalnum() for id in ids)
    assert [execution.call.id for execution in step.tool_executions] == ids
    assert [execution.text for execution in step.tool_executions] == ["1", "2", "3", "4"]


# What tools raise


def raise_value_error() -> str:
    raise ValueError("bad")


def leave() -> str:
    sys.exit(3)


def stop_iterating() -> str:
    return next(iter([]))


def interrupt() -> str:
    raise KeyboardInterrupt


def silent() -> str:
    raise RuntimeError


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (raise_value_error, "ValueError: bad"),
        (leave, "SystemExit: 3"),
        (stop_iterating, "StopIteration"),
        (interrupt, "KeyboardInterrupt"),
        (silent, "RuntimeError"),
    ],
)
async def test_whatever_a_sync_tool_raises_is_a_result(
    function: Callable[[], str], said: str
) -> None:
    execution = await executed(function)

    assert execution.outcome is ToolOutcome.RAISED
    assert said in execution.text
    assert execution.error is not None
    assert execution.error.type is ErrorType.TOOL


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError("inner"), LookupError()])
async def test_whatever_an_async_tool_raises_is_a_result(error: BaseException) -> None:
    async def act() -> str:
        raise error

    execution = await executed(act)

    assert execution.outcome is ToolOutcome.RAISED
    assert type(error).__name__ in execution.text


async def test_a_tool_that_raises_a_timeout_is_a_timeout_error() -> None:
    async def act() -> str:
        raise TimeoutError("the shop is slow")

    execution = await executed(act)

    assert execution.error is not None
    assert execution.error.type is ErrorType.TIMEOUT
    assert "the shop is slow" in execution.text


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


async def test_an_exception_that_cannot_be_printed_is_still_a_result() -> None:
    async def act() -> str:
        raise UnspeakableError

    execution = await executed(act)

    assert execution.outcome is ToolOutcome.RAISED
    assert "UnspeakableError" in execution.text


class BusyError(Exception):
    retry_after = "a while"


async def test_a_foreign_retry_after_that_is_no_number_does_not_break_the_run() -> None:
    async def act() -> str:
        raise BusyError("busy")

    state = await run_with([act], [call("act", id="c1")])

    assert (state.status, state.had_errors) == (AgentStatus.COMPLETED, True)


variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


async def test_context_variables_are_visible_in_threads() -> None:
    variable.set("tenant-7")

    execution = await executed(lambda: variable.get())

    assert execution.text == "tenant-7"


async def test_a_sync_function_that_returns_an_awaitable_is_awaited() -> None:
    async def fetch() -> str:
        return "fetched"

    execution = await executed(lambda: fetch())

    assert execution.text == "fetched"


async def test_a_per_tool_timeout_cancels_the_async_tool() -> None:
    seen: list[str] = []

    async def act() -> str:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        return "never"

    state = await run_with([FunctionTool(act, timeout=0.02)], [call("act", id="c1")])
    execution = state.steps[0].step.tool_executions[0]

    assert seen == ["cancelled"]
    assert execution.outcome is ToolOutcome.TIMED_OUT
    assert "timed out after 0.02 seconds and was cancelled" in execution.text
    assert execution.error is not None
    assert (execution.error.type, execution.error.tool_name) == (ErrorType.TIMEOUT, "act")
    assert (state.status, state.final_response) == (AgentStatus.COMPLETED, "ok")


async def test_a_timeout_ends_only_the_call_it_belongs_to() -> None:
    async def slow() -> str:
        await asyncio.sleep(30)
        return "never"

    async def quick() -> str:
        return "done"

    state = await run_with(
        [FunctionTool(slow, timeout=0.02), quick], [call("slow", id="c1"), call("quick", id="c2")]
    )
    outcomes = [execution.outcome for execution in state.steps[0].step.tool_executions]

    assert outcomes == [ToolOutcome.TIMED_OUT, ToolOutcome.COMPLETED]


async def test_a_failed_call_is_completed_in_the_events_with_its_error() -> None:
    recorder = EventRecorder()
    agent = Agent(ScriptedModel([call("act", id="c1")]), tools=[MockTool.raising("act", OSError())])
    agent.wiretap(recorder)
    await agent.run("Go")
    [completed] = recorder.of(ToolCallCompleted)

    assert completed.success is False
    assert completed.error == "Error: tool 'act' failed: OSError"


@pytest.mark.parametrize("stops_at", [0, 1, 2])
async def test_a_hook_that_blocks_and_stops_stops_the_batch(stops_at: int) -> None:
    ran: list[int] = []

    def act(n: int) -> None:
        """Act."""
        ran.append(n)

    def guard(context: HookContext) -> HookContext | None:
        if context.call is None or context.call.arguments["n"] != stops_at:
            return None
        return context.block("not this one").stop("enough for today")

    calls = tuple(ToolCall(id=f"c{n}", name="act", arguments={"n": n}) for n in range(4))
    agent = Agent(
        ScriptedModel([ModelResponse(tool_calls=calls), "never"]),
        tools=[FunctionTool(act, parallel=False)],
        hooks=[make_hook("before_tool", guard)],
    )
    state = await agent.run("Go")
    executions = state.steps[0].step.tool_executions

    assert ran == list(range(stops_at))
    assert executions[stops_at].text == "Error: Blocked: not this one"
    assert [execution.text for execution in executions[stops_at + 1 :]] == [
        "Error: Not run, because the run stops: enough for today"
    ] * (3 - stops_at)
    assert state.stop is not None
    assert state.stop.stop_reason is StopReason.STOP_REQUESTED


async def test_a_hook_that_only_blocks_leaves_the_other_calls_alone() -> None:
    hook = make_hook(
        "before_tool", lambda c: c.block("no") if c.call and c.call.id == "c0" else None
    )
    calls = tuple(ToolCall(id=f"c{n}", name="act") for n in range(2))
    agent = Agent(
        ScriptedModel([ModelResponse(tool_calls=calls), "Done."]),
        tools=[MockTool.returning("act", "acted")],
        hooks=[hook],
    )
    state = await agent.run("Go")

    assert [e.text for e in state.steps[0].step.tool_executions] == ["Error: Blocked: no", "acted"]
