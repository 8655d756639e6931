"""A cancellation that comes while a hook runs ends the hook, and loses nothing that happened."""

import asyncio
from typing import Any

import pytest

from stepwell import Agent, AgentStatus, Cancellation, StopReason, make_hook
from stepwell.testing import MockTool, ScriptedModel, call

TOKENS = 15
"""What one turn of the scripted model uses."""


class Setting:
    """An agent whose hook hangs, and cancels the run when it does."""

    def __init__(self, trigger: str, *, at_tool: str | None = None) -> None:
        self.cancellation = Cancellation()
        self.pay = MockTool("pay", lambda: "paid", parallel=False)
        self.check = MockTool("check", lambda: "checked", parallel=False)

        async def hang(context: Any) -> None:
            if at_tool in (None, context.call and context.call.name):
                self.cancellation.request("enough")
                await asyncio.Event().wait()

        self.agent = Agent(
            ScriptedModel([[call("pay"), call("check")], "done"]),
            tools=[self.pay, self.check],
            hooks=[make_hook(trigger, hang, name="hanging")],
        )

    async def run(self) -> Any:
        async with asyncio.timeout(90):
            return await self.agent.run("Pay.", cancellation=self.cancellation)


@pytest.mark.parametrize(
    ("trigger", "at_tool", "outcomes"),
    [
        ("after_inference", None, ["not_run", "not_run"]),
        ("before_tool", "pay", ["not_run", "not_run"]),
        ("before_tool", "check", ["completed", "not_run"]),
        ("after_tool", "pay", ["completed", "not_run"]),
        ("after_tool", "check", ["completed", "completed"]),
        ("after_step", None, ["completed", "completed"]),
    ],
)
async def test_what_was_said_run_and_paid_is_kept(
    trigger: str, at_tool: str | None, outcomes: list[str]
) -> None:
    setting = Setting(trigger, at_tool=at_tool)
    state = await setting.run()
    assert (state.status, state.stop.stop_reason) == (
        AgentStatus.CANCELLED,
        StopReason.USER_REQUESTED,
    )
    assert [e.outcome for e in state.steps[0].step.tool_executions] == outcomes
    assert outcomes.count("completed") == len(setting.pay.calls) + len(setting.check.calls)
    assert state.usage.total_tokens == TOKENS
    assert "hanging was running and was cancelled" in state.explain()


@pytest.mark.parametrize("trigger", ["after_tool", "after_step", "on_stop", "after_execution"])
async def test_hooks_that_begin_after_a_cancellation_run_to_their_end(trigger: str) -> None:
    cancellation = Cancellation()

    async def hang() -> None:
        cancellation.request("enough")
        await asyncio.Event().wait()

    async def save(context: Any) -> Any:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return context.with_state(context.state.with_metadata({"saved": True}))

    agent = Agent(
        ScriptedModel([call("hang")]),
        tools=[MockTool("hang", hang)],
        hooks=[make_hook(trigger, save)],
    )
    state = await agent.run("Go.", cancellation=cancellation)
    assert (state.status, state.step_count) == (AgentStatus.CANCELLED, 1)
    assert state.metadata["saved"]


async def test_a_before_step_hook_does_not_keep_a_run_from_wrapping_up() -> None:
    agent = Agent(
        ScriptedModel(lambda request: call("dig") if request.tools else "sand, only sand"),
        tools=[MockTool.returning("dig", "sand")],
        hooks=[make_hook("before_step", lambda context: None)],
        max_steps=2,
        at_limit="wrap_up",
    )
    state = await agent.run("Dig.")
    assert (state.final_response, state.step_count) == ("sand, only sand", 3)
    assert state.stop.stop_reason is StopReason.STEPS_LIMIT


async def test_a_request_made_after_the_end_is_not_kept_for_later() -> None:
    hook = make_hook("after_execution", lambda context: context.request_step("too late"))
    state = await Agent(ScriptedModel(["done"]), hooks=[hook]).run("Go.")
    assert state.status is AgentStatus.COMPLETED
    assert state.execution.continue_requests == ()


async def test_a_hook_that_cancels_itself_is_named() -> None:
    async def odd(_context: Any) -> None:
        raise asyncio.CancelledError

    agent = Agent(ScriptedModel(["done"]), hooks=[make_hook("before_step", odd, name="odd")])
    state = await agent.run("Go.")
    assert (state.status, state.stop.resolved_by) == (AgentStatus.FAILED, "odd")


async def test_a_cancellation_between_two_parallel_calls_loses_no_result() -> None:
    """Found by the property test: nothing is guarded just then, and the backstop cut the batch."""
    cancellation = Cancellation()

    def pay() -> str:
        cancellation.request("enough")
        return "paid"

    tools = [MockTool("pay", pay), MockTool.returning("check", "checked")]
    model = ScriptedModel([[call("pay"), call("check")]])
    agent = Agent(model, tools=tools, max_parallel_tools=1)
    state = await agent.run("Pay.", cancellation=cancellation)
    assert (state.status, state.usage.total_tokens) == (AgentStatus.CANCELLED, TOKENS)
    outcomes = [e.outcome for e in state.steps[0].step.tool_executions]
    assert outcomes == ["completed", "not_run"]
