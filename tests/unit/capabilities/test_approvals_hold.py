"""Approvals in odd company: other hooks, other agents, repeated ids, tools that ask themselves."""

from typing import Any

import pytest
from pydantic import SecretStr

from stepwell import (
    Agent,
    AgentState,
    AgentStatus,
    HookContext,
    InputRequired,
    StepwellError,
    StopReason,
    ToolContext,
    ToolOutput,
    Tools,
    make_hook,
    tool,
)
from stepwell.capabilities.approvals import UseApprovals
from stepwell.continuation import AgentStop, StopSignal
from stepwell.drivers import ReActDriver
from stepwell.state import Approval
from stepwell.testing import MockTool, ScriptedModel, call
from stepwell.tools import ToolExecutor
from tests.answers import answer_call


def results(state: AgentState) -> list[str]:
    return [m.tool_result.content for m in state.messages if m.tool_result is not None]


def deleting() -> MockTool:
    return MockTool("delete", handler=lambda path: f"deleted {path}")


def script(*turns: Any) -> ScriptedModel:
    return ScriptedModel([*turns, "Done."])


ASKED = call("delete", id="c1", path="a")


@pytest.mark.parametrize("answer", [Approval.denied("no"), Approval.edited({"path": "b"})])
async def test_an_answer_holds_for_an_agent_that_asks_for_no_approvals(answer: Approval) -> None:
    delete = deleting()
    asks = Agent(script(ASKED), tools=[delete], capabilities=[UseApprovals("delete")])
    paused = await asks.run("Delete a")
    state = await Agent(script(), tools=[delete]).run(answer_call(paused, "c1", answer))

    assert delete.calls == ([{"path": "b"}] if answer.approved else [])
    assert state.status is AgentStatus.COMPLETED


async def test_other_hooks_judge_what_a_person_edited() -> None:
    def guard(context: HookContext) -> HookContext | None:
        is_bad = context.call is not None and context.call.arguments["path"] == "/"
        return context.block("never") if is_bad else None

    delete = deleting()
    agent = Agent(
        script(ASKED),
        tools=[delete],
        capabilities=[UseApprovals("delete")],
        hooks=[make_hook("before_tool", guard)],
    )
    paused = await agent.run("Delete a")
    state = await agent.run(answer_call(paused, "c1", Approval.edited({"path": "/"})))

    assert delete.calls == []
    assert results(state) == ["Error: Blocked: never"]


async def test_a_hook_that_rewrites_a_call_does_so_once() -> None:
    def rewrite(context: HookContext) -> HookContext:
        assert context.call is not None
        path = f"/safe/{context.call.arguments['path']}"
        return context.with_call(call("delete", path=path))

    delete = deleting()
    agent = Agent(
        script(ASKED),
        tools=[delete],
        capabilities=[UseApprovals("delete")],
        hooks=[make_hook("before_tool", rewrite)],
    )
    paused = await agent.run("Delete a")
    assert paused.pending[0].details["arguments"] == {"path": "/safe/a"}
    await agent.run(answer_call(paused, "c1", True))

    assert delete.calls == [{"path": "/safe/a"}]


async def test_what_an_edited_call_did_is_kept() -> None:
    @tool
    def note(text: str) -> ToolOutput:
        """Note."""
        return ToolOutput(value="noted", metadata={"note": text})

    @tool
    def leave(why: str) -> str:
        """Leave."""
        raise AgentStop(StopSignal(reason=StopReason.STOP_REQUESTED, message=why))

    calls = [call("note", id="c1", text="x"), call("leave", id="c2", why="x")]
    agent = Agent(script(calls), tools=[note, leave], capabilities=[UseApprovals("*")])
    paused = await agent.run("Go")
    edited = answer_call(paused, "c1", Approval.edited({"text": "y"}))
    state = await agent.run(answer_call(edited, "c2", Approval.edited({"why": "enough"})))

    assert state.metadata["note"] == "y"
    assert (state.status, state.stop and state.stop.stop_reason) == (
        AgentStatus.STOPPED,
        StopReason.STOP_REQUESTED,
    )


async def test_an_edited_call_keeps_what_other_hooks_made_of_its_result() -> None:
    hide = make_hook("after_tool", lambda c: c.with_result("(redacted)"), priority=10)
    agent = Agent(
        script(ASKED), tools=[deleting()], capabilities=[UseApprovals("delete")], hooks=[hide]
    )
    paused = await agent.run("Delete a")
    state = await agent.run(answer_call(paused, "c1", Approval.edited({"path": "b"})))

    assert results(state)[0].endswith("\n(redacted)")


async def test_a_tool_that_asks_itself_does_not_take_the_approval_for_its_answer() -> None:
    @tool
    def order(context: ToolContext) -> str | InputRequired:
        """Order."""
        if context.resumed is None:
            return InputRequired(prompt="Which?", resumes=True)
        return f"ordered {context.resumed.answer}"

    agent = Agent(script(call("order", id="c1")), tools=[order], capabilities=[UseApprovals("*")])
    asked = await agent.run("Order")
    again = await agent.run(answer_call(asked, "c1", True))
    assert [p.prompt for p in again.pending] == ["Which?"]
    state = await agent.run(answer_call(again, "c1", "tea"))

    assert results(state) == ["ordered tea"]


async def test_approved_calls_run_in_the_order_in_which_they_were_made() -> None:
    ran: list[str] = []

    @tool(parallel=False)
    def act(name: str) -> str:
        """Act."""
        ran.append(name)
        return name

    calls = [call("act", id="a", name="first"), call("act", id="b", name="second")]
    agent = Agent(script(calls), tools=[act], capabilities=[UseApprovals("act")])
    paused = await agent.run("Go")
    await agent.run(answer_call(answer_call(paused, "b", True), "a", True))

    assert ran == ["first", "second"]


async def test_a_call_id_that_comes_again_leaves_older_results_alone() -> None:
    look = MockTool.returning("look", "three files")
    turns = (call("look", id="call_0"), call("delete", id="call_0", path="a"))
    agent = Agent(script(*turns), tools=[look, deleting()], capabilities=[UseApprovals("delete")])
    paused = await agent.run("Go")
    state = await agent.run(answer_call(paused, "call_0", Approval.denied("no")))

    assert results(state) == ["three files", "Error: Blocked: a person denied this call: no"]


async def test_a_call_keeps_its_idempotency_key_while_it_waits() -> None:
    keys: list[str] = []

    @tool
    def pay(context: ToolContext) -> str | InputRequired:
        """Pay."""
        keys.append(context.idempotency_key)
        return "paid" if context.resumed else InputRequired(prompt="Sure?", resumes=True)

    agent = Agent(script(call("pay", id="c1")), tools=[pay])
    await agent.run(answer_call(await agent.run("Pay"), "c1", "yes"))

    assert len(keys) == 2
    assert keys[0] == keys[1]


async def test_calls_of_a_drivers_own_tools_are_taken_up_again() -> None:
    @tool
    def pay(context: ToolContext) -> str | InputRequired:
        """Pay."""
        return "paid" if context.resumed else InputRequired(prompt="Sure?", resumes=True)

    words = [
        '{"thought": "", "type": "call_tool", "tool": "pay", "args": {}}',
        '{"thought": "", "type": "final_answer", "answer": "Paid."}',
    ]
    driver = ReActDriver(ScriptedModel(words), ToolExecutor(Tools([pay])))
    paused = await Agent(driver=driver).run("Pay")
    state = await Agent(driver=driver).run(paused.with_answer(paused.pending[0], "yes"))

    assert results(state) == ["paid"]


@pytest.mark.parametrize("answer", [Approval(approved="no"), Approval.edited({"path": object()})])  # type: ignore[arg-type]
async def test_an_approval_that_is_none_is_refused_when_it_is_given(answer: Approval) -> None:
    agent = Agent(script(ASKED), tools=[deleting()], capabilities=[UseApprovals("delete")])
    paused = await agent.run("Delete a")

    with pytest.raises(StepwellError):
        answer_call(paused, "c1", answer)


@pytest.mark.parametrize("arguments", [None, "ls", ["a"]])
def test_edited_arguments_are_given_by_name(arguments: Any) -> None:
    with pytest.raises(StepwellError, match="by name"):
        Approval.edited(arguments)


async def test_what_a_person_mistyped_is_told_and_is_no_error_of_the_run() -> None:
    @tool
    def delete(path: str) -> str:
        """Delete."""
        raise AssertionError(path)

    agent = Agent(script(ASKED), tools=[delete], capabilities=[UseApprovals("delete")])
    paused = await agent.run("Delete a")
    state = await agent.run(answer_call(paused, "c1", Approval.edited({"pth": "b"})))

    assert (state.status, state.had_errors) == (AgentStatus.COMPLETED, False)
    assert "unknown arguments: pth" in results(state)[0]


async def test_a_plain_yes_to_a_call_with_secrets_is_told_and_is_no_error_of_the_run() -> None:
    @tool
    def sign_in(password: SecretStr) -> str:
        """Sign in."""
        raise AssertionError

    asked = call("sign_in", id="c1", password="canary-1234")
    agent = Agent(script(asked), tools=[sign_in], capabilities=[UseApprovals("sign_in")])
    paused = await agent.run("Sign in")
    assert "Pass password again with Approval.edited" in paused.pending[0].prompt
    state = await agent.run(answer_call(paused, "c1", True))

    assert (state.status, state.had_errors) == (AgentStatus.COMPLETED, False)
    assert "must be given again" in results(state)[0]
