"""Calls that wait for a person: asked once, bound to the call, run or denied as the person says."""

from typing import Any

import pytest
from msgspec.structs import replace
from pydantic import SecretStr

from stepwell import (
    Agent,
    AgentState,
    AgentStatus,
    ConfigurationError,
    ErrorPolicy,
    StopReason,
    make_hook,
    tool,
)
from stepwell.capabilities.approvals import UseApprovals
from stepwell.messages import ToolCall
from stepwell.state import Approval, ToolOutcome
from stepwell.testing import EventRecorder, MockTool, ScriptedModel, call
from tests.answers import answer_call

EDIT_NOTE = '(A person changed the arguments to {"path":"b"})\n'


def deleting(*turns: Any, **parts: Any) -> tuple[Agent, MockTool]:
    delete = MockTool("delete", handler=lambda path: f"deleted {path}")
    look = MockTool.returning("look", "three files")
    approvals = parts.pop("approvals", UseApprovals("delete"))
    model = ScriptedModel(list(turns) or [call("delete", id="c1", path="a"), "Done."])
    return Agent(model, tools=[delete, look], capabilities=[approvals], **parts), delete


def result(state: AgentState, call_id: str = "c1") -> str:
    results = [m.tool_result for m in state.messages if m.tool_result is not None]
    return next(r.content for r in results if r.call_id == call_id)


async def test_the_call_waits_and_nothing_has_run() -> None:
    agent, delete = deleting()
    events = EventRecorder()
    agent.wiretap(events)
    state = await agent.run("Delete a")

    assert delete.calls == []
    assert (state.status, state.stop.stop_reason) == (  # type: ignore[union-attr]
        AgentStatus.PAUSED,
        StopReason.INPUT_REQUIRED,
    )
    asked = state.pending[0]
    assert (asked.kind, asked.call_id, asked.tool_name) == ("approval", "c1", "delete")
    assert asked.details == {"tool": "delete", "arguments": {"path": "a"}}
    assert 'May delete run with {"path":"a"}?' in state.explain()
    assert not [e for e in events.events if type(e).__name__.startswith("ToolCall")]


@pytest.mark.parametrize("answer", [True, Approval.granted(), {"approved": True}])
async def test_an_approved_call_runs_once_as_it_was(answer: Any) -> None:
    agent, delete = deleting()
    state = await agent.run(answer_call(await agent.run("Delete a"), "c1", answer))

    assert delete.calls == [{"path": "a"}]
    assert (state.status, result(state)) == (AgentStatus.COMPLETED, "deleted a")


@pytest.mark.parametrize("answer", [Approval.denied("keep it"), {"approved": False, "message": ""}])
async def test_a_denied_call_never_runs_and_the_model_is_told(answer: Any) -> None:
    agent, delete = deleting()
    events = EventRecorder()
    agent.wiretap(events)
    state = await agent.run(answer_call(await agent.run("Delete a"), "c1", answer))

    assert delete.calls == []
    assert "a person denied this call" in result(state)
    assert state.steps[1].step.tool_executions[0].outcome is ToolOutcome.BLOCKED
    assert state.status is AgentStatus.COMPLETED
    assert "ToolCallBlocked" in [type(e).__name__ for e in events.events]


async def test_an_edited_call_runs_with_the_persons_arguments_and_the_model_is_told() -> None:
    agent, delete = deleting()
    paused = await agent.run("Delete a")
    state = await agent.run(answer_call(paused, "c1", Approval.edited({"path": "b"})))

    assert delete.calls == [{"path": "b"}]
    assert result(state) == EDIT_NOTE + "deleted b"
    assert dict(state.messages[1].tool_calls[0].arguments) == {"path": "a"}


async def test_edited_arguments_are_checked_like_any_others() -> None:
    @tool
    def delete(path: str) -> str:
        """Delete."""
        raise AssertionError(path)

    model = ScriptedModel([call("delete", id="c1", path="a"), "Done."])
    agent = Agent(model, tools=[delete], capabilities=[UseApprovals("delete")], max_retries=3)
    paused = await agent.run("Delete a")
    state = await agent.run(answer_call(paused, "c1", Approval.edited({"pth": "b"})))

    assert "unknown arguments: pth" in result(state)


async def test_an_approval_is_used_up_by_its_call() -> None:
    turns = [call("delete", id="c1", path="a"), call("delete", id="c2", path="a"), "Done."]
    agent, delete = deleting(*turns)
    paused = await agent.run("Delete a")
    again = await agent.run(answer_call(paused, "c1", True))

    assert len(delete.calls) == 1
    assert [p.call_id for p in again.pending] == ["c2"]


async def test_an_approval_does_not_hold_for_other_arguments() -> None:
    path = "a"

    def rewrites(context: Any) -> Any:
        if context.call.name != "delete":
            return None
        arguments = {"path": path}
        return context.with_call(ToolCall(id="", name="delete", arguments=arguments))

    agent, delete = deleting(hooks=[make_hook("before_tool", rewrites)])
    paused = await agent.run("Delete a")
    path = "everything"
    state = await agent.run(answer_call(paused, "c1", True))

    assert delete.calls == []
    assert state.pending[0].details["arguments"] == {"path": "everything"}


async def test_calls_that_need_no_approval_run_meanwhile() -> None:
    turns = [
        [
            call("delete", id="c1", path="a"),
            call("look", id="c2"),
            call("delete", id="c3", path="b"),
        ],
        "Done.",
    ]
    agent, delete = deleting(*turns)
    paused = await agent.run("Delete a and b")

    assert [p.call_id for p in paused.pending] == ["c1", "c3"]
    assert result(paused, "c2") == "three files"
    answered = answer_call(answer_call(paused, "c1", True), "c3", Approval.denied("not b"))
    state = await agent.run(answered)
    assert delete.calls == [{"path": "a"}]
    assert [result(state, c) for c in ("c1", "c2", "c3")] == [
        "deleted a",
        "three files",
        "Error: Blocked: a person denied this call: not b",
    ]


async def test_a_function_may_choose_the_calls() -> None:
    approvals = UseApprovals(when=lambda call: call.arguments.get("path") == "b")
    turns = [call("delete", id="c1", path="a"), call("delete", id="c2", path="b"), "Done."]
    agent, delete = deleting(*turns, approvals=approvals)
    state = await agent.run("Delete both")

    assert delete.calls == [{"path": "a"}]
    assert [p.call_id for p in state.pending] == ["c2"]


@pytest.mark.parametrize(
    ("rule", "note"),
    [
        (lambda call: 1 / 0 > 0, "The approval rule failed: ZeroDivisionError: division by zero"),
        (lambda call: None, "The approval rule returned NoneType, not True or False"),
        (
            lambda call: call.arguments["amount"] > 100,
            "The approval rule failed: KeyError: 'amount'",
        ),
    ],
)
async def test_a_rule_that_can_not_tell_means_that_a_person_is_asked(rule: Any, note: str) -> None:
    agent, delete = deleting(approvals=UseApprovals(when=rule))
    state = await agent.run("Delete a")

    assert (delete.calls, state.status) == ([], AgentStatus.PAUSED)
    assert state.pending[0].details == {
        "tool": "delete",
        "arguments": {"path": "a"},
        "note": note,
    }
    assert note in state.pending[0].prompt
    state = await agent.run(state.with_answer(state.pending[0], True))
    assert (delete.calls, state.status) == ([{"path": "a"}], AgentStatus.COMPLETED)


async def test_an_async_rule_decides() -> None:
    async def is_b(call: ToolCall) -> bool:
        return call.arguments["path"] == "b"

    turns = [call("delete", id="c1", path="a"), call("delete", id="c2", path="b"), "Done."]
    agent, delete = deleting(*turns, approvals=UseApprovals(when=is_b))
    state = await agent.run("Delete both")

    assert delete.calls == [{"path": "a"}]
    assert [p.call_id for p in state.pending] == ["c2"]


@pytest.mark.parametrize("given", [{}, {"amount": "180"}, {"amount": 200.0}])
async def test_a_rule_sees_the_arguments_as_the_tool_gets_them(given: dict[str, Any]) -> None:
    paid: list[int] = []

    @tool
    def refund(order: int, amount: int = 200) -> str:
        """Refund.

        Args:
            order: Which.
            amount: In EUR.
        """
        paid.append(amount)
        return "refunded"

    rule = UseApprovals(when=lambda call: call.arguments["amount"] > 100)
    turns = [call("refund", id="c1", order=7, **given), "Done."]
    agent = Agent(ScriptedModel(turns), tools=[refund], capabilities=[rule])
    state = await agent.run("Refund it")

    assert paid == []
    assert "note" not in state.pending[0].details
    await agent.run(state.with_answer(state.pending[0], True))
    assert paid == [int(given.get("amount", 200))]


async def test_a_call_that_its_tool_refuses_is_not_asked_for() -> None:
    @tool
    def refund(amount: int) -> str:
        """Refund.

        Args:
            amount: In EUR.
        """
        return "refunded"

    asked: list[ToolCall] = []
    rule = UseApprovals(when=lambda call: bool(asked.append(call)))
    turns = [call("refund", id="c1", amount="a lot"), call("unknown", id="c2"), "Done."]
    policy = ErrorPolicy.retry_tool_errors(3)
    agent = Agent(ScriptedModel(turns), tools=[refund], capabilities=[rule], error_policy=policy)
    state = await agent.run("Refund it")

    assert (asked, state.pending) == ([], ())
    assert "amount" in result(state)


async def test_no_hook_rewrites_a_call_behind_the_approval() -> None:
    def to_root(context: Any) -> Any:
        return context.with_call(replace(context.call, arguments={"path": "/"}))

    late = make_hook("before_tool", to_root, priority=-1_000_000)
    agent, delete = deleting(hooks=[late])
    state = await agent.run("Delete a")

    assert state.pending[0].details["arguments"] == {"path": "/"}
    await agent.run(state.with_answer(state.pending[0], True))
    assert delete.calls == [{"path": "/"}]


def test_names_and_patterns_that_match_no_tool_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"no tool is called 'delte'.*delete, look"):
        deleting(approvals=UseApprovals("delte"))
    deleting(approvals=UseApprovals("del*"))
    with pytest.raises(ConfigurationError, match="name the tools"):
        UseApprovals()
    with pytest.raises(ConfigurationError, match=r"names of tools.*write UseApprovals\("):
        UseApprovals(["delete"])  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="pass a function of the call"):
        UseApprovals(when=True)  # type: ignore[arg-type]


async def test_a_secret_argument_is_not_kept_and_must_be_given_again() -> None:
    ran: list[str] = []

    @tool
    def sign_in(password: SecretStr) -> str:
        """Sign in."""
        ran.append(password.get_secret_value())
        return "in"

    model = ScriptedModel([call("sign_in", id="c1", password="canary-77"), "Done."] * 2)
    agent = Agent(model, tools=[sign_in], capabilities=[UseApprovals("sign_in")], max_retries=3)
    paused = await agent.run("Sign in")

    assert "canary-77" not in repr(paused)
    state = await agent.run(answer_call(paused, "c1", True))
    assert "must be given again" in result(state)
    edited = answer_call(paused, "c1", Approval.edited({"password": "canary-77"}))
    state = await agent.run(edited)
    assert ran == ["canary-77"]
    assert "canary-77" not in repr(state)


def test_a_prompt_that_is_clipped_says_so_and_the_details_are_whole() -> None:
    script = [call("delete", id="c1", path="x" * 2000 + "; rm -rf /")]
    agent = Agent(
        ScriptedModel(script),
        tools=[MockTool.returning("delete", "gone")],
        capabilities=[UseApprovals("delete")],
    )
    asked = agent.run_sync("Go").pending[0]
    left = len('{"path":""}') + 2000 + len("; rm -rf /") - 1000
    assert asked.prompt.endswith(f"x... [{left:,} more characters]?")
    assert asked.details["arguments"]["path"].endswith("; rm -rf /")
