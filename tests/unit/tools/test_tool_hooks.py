"""Hooks around tool calls: refuse, rewrite, substitute, rewrite results, and raise."""

import asyncio
import json
from typing import Any

import pytest

from stepwell import (
    Agent,
    AgentState,
    AgentStatus,
    ErrorPolicy,
    HookContext,
    InputRequired,
    StopReason,
    ToolCall,
    ToolFailure,
    ToolOutput,
    make_hook,
)
from stepwell.continuation import AgentStop
from stepwell.state import ToolOutcome
from stepwell.testing import EventRecorder, MockTool, ScriptedModel, call


async def run_hooked(
    trigger: str,
    function: Any,
    tools: list[MockTool],
    calls: list[ToolCall],
    recorder: EventRecorder | None = None,
) -> AgentState:
    agent = Agent(
        ScriptedModel([calls, "ok"]),
        tools=tools,
        hooks=[make_hook(trigger, function)],
        error_policy=ErrorPolicy.retry_tool_errors(3),
    )
    if recorder is not None:
        agent.wiretap(recorder)
    return await agent.run("Go")


async def test_a_hook_rewrites_a_call_and_its_id_stays() -> None:
    def rewrite(context: HookContext) -> HookContext:
        return context.with_call(ToolCall(id="other", name="add", arguments={"a": 2}))

    add = MockTool("add", lambda a: a * 10)
    recorder = EventRecorder()
    state = await run_hooked("before_tool", rewrite, [add], [call("add", id="c1", a=1)], recorder)
    execution = state.steps[0].step.tool_executions[0]

    assert add.calls == [{"a": 2}]
    assert (execution.call.id, execution.call.arguments) == ("c1", {"a": 2})
    assert execution.value == 20
    started = [e for e in recorder.events if type(e).__name__ == "ToolCallStarted"]
    assert started[0].args == {"a": 2}
    result = state.messages[2].tool_result
    assert result is not None
    assert result.call_id == "c1"


async def test_a_rewritten_call_is_checked_like_any_other() -> None:
    def add(a: int) -> int:
        return a

    def rewrite(context: HookContext) -> HookContext:
        return context.with_call(call("add", a="many"))

    state = await run_hooked("before_tool", rewrite, [add], [call("add", a=1)])  # type: ignore[list-item]

    assert state.steps[0].step.tool_executions[0].outcome is ToolOutcome.INVALID


async def test_a_hook_substitutes_a_result_and_the_tool_does_not_run() -> None:
    add = MockTool.returning("add", 3)
    recorder = EventRecorder()
    state = await run_hooked(
        "before_tool", lambda c: c.with_result({"cached": True}), [add], [call("add")], recorder
    )
    execution = state.steps[0].step.tool_executions[0]

    assert add.calls == []
    assert (execution.outcome, execution.value) == (ToolOutcome.COMPLETED, {"cached": True})
    assert json.loads(execution.text) == {"cached": True}
    assert recorder.names.count("ToolCallStarted") == 1
    assert recorder.names.count("ToolCallCompleted") == 1


async def test_none_can_be_substituted_as_a_result() -> None:
    add = MockTool.returning("add", 3)
    state = await run_hooked("before_tool", lambda c: c.with_result(None), [add], [call("add")])

    assert add.calls == []
    assert state.steps[0].step.tool_executions[0].text == "null"


async def test_a_substituted_result_answers_also_for_an_unknown_tool() -> None:
    state = await run_hooked("before_tool", lambda c: c.with_result("hi"), [], [call("ghost")])

    assert state.steps[0].step.tool_executions[0].text == "hi"


async def test_a_hook_can_make_a_call_wait_for_a_person() -> None:
    pay = MockTool.returning("pay", "paid")
    state = await run_hooked(
        "before_tool",
        lambda c: c.with_result(InputRequired(prompt="Pay?")),
        [pay],
        [call("pay", id="c1")],
    )

    assert state.status is AgentStatus.PAUSED
    assert [(p.prompt, p.call_id) for p in state.pending] == [("Pay?", "c1")]
    assert pay.calls == []


async def test_a_hook_rewrites_a_result() -> None:
    def redact(context: HookContext) -> HookContext:
        assert context.execution is not None
        return context.with_result(str(context.execution.value).replace("hunter2", "***"))

    recorder = EventRecorder()
    state = await run_hooked(
        "after_tool", redact, [MockTool.returning("read", "pw hunter2")], [call("read")], recorder
    )

    assert state.messages[2].text == "pw ***"
    assert "hunter2" not in repr(state.steps[0].step)
    assert "hunter2" not in repr(recorder.events)


async def test_a_hook_turns_an_error_into_a_result_and_back() -> None:
    recovered = await run_hooked(
        "after_tool",
        lambda c: c.with_result("cached"),
        [MockTool.raising("x", OSError())],
        [call("x")],
    )
    refused = await run_hooked(
        "after_tool",
        lambda c: c.with_result(ToolFailure("not good enough")),
        [MockTool.returning("x", "hm")],
        [call("x")],
    )

    assert not recovered.had_errors
    assert recovered.messages[2].text == "cached"
    assert refused.messages[2].text == "Error: not good enough"
    assert refused.steps[0].step.tool_executions[0].outcome is ToolOutcome.FAILED


async def test_metadata_of_a_rewritten_result_is_kept() -> None:
    state = await run_hooked(
        "after_tool",
        lambda c: c.with_result(ToolOutput(value="v", metadata={"noted": 1}, cost=2.0)),
        [MockTool.returning("x", "hm")],
        [call("x")],
    )

    assert state.messages[2].text == "v"
    assert state.metadata.get("noted") == 1
    assert state.cost == 2.0


async def test_state_changes_of_hooks_around_tools_are_kept_and_seen_by_the_next() -> None:
    def count(context: HookContext) -> HookContext:
        seen = context.state.metadata.get("seen", 0)
        return context.with_state(context.state.with_metadata({"seen": seen + 1}))

    for trigger in ("before_tool", "after_tool"):
        state = await run_hooked(
            trigger, count, [MockTool.returning("x", 1)], [call("x"), call("x"), call("x")]
        )
        assert state.metadata["seen"] == 3


async def test_only_the_blocked_call_of_a_batch_is_blocked() -> None:
    def guard(context: HookContext) -> HookContext | None:
        assert context.call is not None
        return context.block("no") if context.call.name == "pay" else None

    pay, look = MockTool.returning("pay", 1), MockTool.returning("look", 2)
    state = await run_hooked("before_tool", guard, [pay, look], [call("pay"), call("look")])
    outcomes = [e.outcome for e in state.steps[0].step.tool_executions]

    assert outcomes == [ToolOutcome.BLOCKED, ToolOutcome.COMPLETED]
    assert (len(pay.calls), len(look.calls)) == (0, 1)


@pytest.mark.parametrize("trigger", ["before_tool", "after_tool"])
async def test_a_hook_that_raises_fails_the_run_and_loses_no_result(trigger: str) -> None:
    def broken(context: HookContext) -> HookContext | None:
        assert context.call is not None
        if context.call.id == "c2":
            raise ValueError("hook broke")
        return None

    calls = [call("x", id="c1"), call("x", id="c2")]
    state = await run_hooked(trigger, broken, [MockTool.returning("x", 1)], calls)
    step = state.steps[0].step

    assert state.status is AgentStatus.FAILED
    assert "hook broke" in state.explain()
    assert [e.call.id for e in step.tool_executions] == ["c1", "c2"]
    assert len(step.messages) == 3
    assert [error.exception for error in step.errors] == ["HookError"]


@pytest.mark.parametrize("trigger", ["before_tool", "after_tool"])
async def test_a_hook_that_stops_keeps_its_reason_and_every_call_has_a_result(trigger: str) -> None:
    def stop(context: HookContext) -> None:
        raise AgentStop(StopReason.GUARD, "too dear")

    state = await run_hooked(
        trigger, stop, [MockTool.returning("x", 1)], [call("x", id="c1"), call("x", id="c2")]
    )

    assert state.stop is not None
    assert state.stop.stop_reason is StopReason.GUARD
    assert len(state.steps[0].step.tool_executions) == 2
    assert not state.had_errors


async def test_a_substitute_that_is_no_json_is_an_error_result_not_a_lost_step() -> None:
    loop: list[Any] = []
    loop.append(loop)
    state = await run_hooked(
        "before_tool", lambda c: c.with_result(loop), [MockTool.returning("x", 1)], [call("x")]
    )

    assert len(state.steps[0].step.tool_executions) == 1
    assert state.steps[0].step.tool_executions[0].is_error


async def test_a_question_put_in_place_of_a_result_pauses_the_run() -> None:
    state = await run_hooked(
        "after_tool",
        lambda c: c.with_result(InputRequired(prompt="Is that right?")),
        [MockTool.returning("x", 1)],
        [call("x", id="c1")],
    )

    assert state.status is AgentStatus.PAUSED
    assert [(p.prompt, p.call_id) for p in state.pending] == [("Is that right?", "c1")]


async def test_calls_rewritten_to_a_tool_that_is_not_parallel_run_one_by_one() -> None:
    running: list[str] = []
    most: list[int] = []

    async def act() -> str:
        running.append("x")
        most.append(len(running))
        await asyncio.sleep(0)
        running.pop()
        return "ok"

    alone = MockTool("alone", act, parallel=False)
    calls = [call("free"), call("free")]
    await run_hooked(
        "before_tool",
        lambda c: c.with_call(call("alone")),
        [alone, MockTool.returning("free", 1)],
        calls,
    )

    assert most == [1, 1]
