"""Stored executions read back: states, steps, traces, and forks from any step."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec import json

from stepwell.continuation import AgentStatus
from stepwell.journal.status import ExecutionStatus
from stepwell.serialization import AgentStateSerializer
from stepwell.sessions.errors import ConflictError, NotThereError, RefusedError
from stepwell.sessions.intake.intake import NewSession
from stepwell.sessions.principal import Principal
from stepwell.sessions.records import Execution, MessageRole, WhenBusy
from tests.integration.sessions.front_desk import ADA, FrontDesk, desk_at, talker

COMPLETED = ExecutionStatus.COMPLETED


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[FrontDesk]:
    """A desk over a SQLite file."""
    async with desk_at(tmp_path / "a.db") as desk:
        yield desk


async def ran(desk: FrontDesk, content: str, session_id: str | None = None) -> Execution:
    """An execution that was run as far as it goes."""
    sent = await desk.sent_and_run(content, session_id)
    assert sent.execution is not None
    return await desk.execution(sent.execution.id)


async def test_every_snapshot_is_a_whole_state(desk: FrontDesk) -> None:
    execution = await ran(desk, "add add end")
    snapshots = await desk.store.read(lambda tx: tx.snapshots(execution.id))
    assert [it.step_number for it in snapshots] == [0, 1, 2, 3]
    assert [it.is_final for it in snapshots] == [False, False, False, True]
    for snapshot in snapshots:
        data = json.decode(await desk.reader.snapshot_json(snapshot.id))
        state = AgentStateSerializer().deserialize(json.decode(json.encode(data)))
        assert state == await desk.reader.state_of(snapshot.id)
        assert state.step_count == snapshot.step_number
        assert state == await desk.reader.state_at(execution.id, snapshot.step_number)
    newest = await desk.reader.state_at(execution.id)
    assert newest.status is AgentStatus.COMPLETED


async def test_what_is_not_stored_is_said(desk: FrontDesk) -> None:
    execution = await ran(desk, "add end")
    with pytest.raises(RefusedError, match="after steps: 0, 1, 2") as caught:
        await desk.reader.state_at(execution.id, 9)
    assert caught.value.code == "step_not_stored"
    waits = await desk.send("one")
    assert waits.execution is not None
    with pytest.raises(RefusedError, match=r"\(none\)"):
        await desk.reader.state_at(waits.execution.id)
    for read in (desk.reader.state_at, desk.reader.steps, desk.reader.trace, desk.reader.state_of):
        with pytest.raises(NotThereError):
            await read("nobody")


async def test_steps_tell_what_was_called_and_decided(desk: FrontDesk) -> None:
    execution = await ran(desk, "add mail end")
    steps = await desk.reader.steps(execution.id)

    assert json.decode(json.encode(steps)) == steps
    assert [(it["number"], it["type"]) for it in steps] == [
        (1, "tool_execution"),
        (2, "tool_execution"),
    ]
    (tool,) = steps[0]["tool_executions"]
    assert (tool["name"], tool["arguments"], tool["result"]) == ("add", {"a": 0, "b": 1}, "1")
    assert (tool["outcome"], tool["error"]) == ("completed", None)
    assert steps[0]["usage"]["total_tokens"] == 15
    decision = steps[0]["decision"]
    assert decision["should_continue"]
    assert decision["resolved_by"] == "ToolCallPresenceCheck"
    limit = next(it for it in decision["evaluations"] if it["criterion"] == "StepsLimit")
    assert limit["context"] == {"current": 1, "maximum": 20}
    assert steps[1]["tool_executions"][0]["arguments"]["password"] == "[secret]"
    assert steps[1]["decision"]["stop_reason"] == "input_required"


async def test_a_trace_explains_and_holds_only_what_is_its_own(desk: FrontDesk) -> None:
    first = await ran(desk, "add end")
    assert first.session_id is not None
    second = await ran(desk, "end", first.session_id)
    trace = await desk.reader.trace(first.id)

    assert json.decode(json.encode(trace)) is not None
    assert trace["explanation"].startswith("The run ended: the work is done")
    assert trace["execution"]["id"] == first.id
    assert trace["decision"]["resolved_by"] == "ToolCallPresenceCheck"
    assert len(trace["steps"]) == 2
    assert trace["subagents"] == []
    own = [it for it in await desk.messages(first.session_id) if it.agent_execution_id == first.id]
    assert [it["id"] for it in trace["messages"]] == [it.id for it in own]
    assert trace["event_count"] == (await desk.session(first.session_id)).last_seq
    assert len((await desk.reader.trace(second.id))["steps"]) == 1
    waits = await desk.send("later", first.session_id)
    assert waits.execution is not None
    unborn = await desk.reader.trace(waits.execution.id)
    assert unborn["steps"] == []
    assert "pending" in unborn["explanation"]


async def test_a_fork_goes_on_from_any_step_and_leaves_the_old_session_alone(
    desk: FrontDesk,
) -> None:
    first = await ran(desk, "end")
    assert first.session_id is not None
    execution = await ran(desk, "add add add end", first.session_id)
    await desk.send("queued behind", first.session_id)
    before = await desk.contents(first.session_id)
    old = await desk.reader.state_at(execution.id)
    for step in (1, 2, 3):
        fork = await desk.lifecycle.fork(ADA, execution.id, step_number=step)
        assert fork.execution is not None
        assert fork.session.title == "Fork of end"
        assert fork.session.metadata["forked_from"] == {
            "execution_id": execution.id,
            "step_number": step,
        }
        assert await desk.run(fork.execution.id) is COMPLETED
        state = await desk.reader.state_at(fork.execution.id)
        assert state.agent_id != old.agent_id
        assert [it.text for it in state.messages] == [it.text for it in old.messages]
        assert len(await desk.reader.steps(fork.execution.id)) == 4
        said = await desk.contents(fork.session.id)
        assert said[:4] == [
            "user: end",
            "assistant: Answer to end",
            "user: add add add end",
            f"info: Forked from execution {execution.id} after step {step}",
        ]
        assert said[-1] == "assistant: Answer to add add add end"
    assert await desk.contents(first.session_id) == before


async def test_a_fork_of_what_is_over_wants_a_message(desk: FrontDesk) -> None:
    execution = await ran(desk, "add end")
    with pytest.raises(RefusedError, match="completed") as caught:
        await desk.lifecycle.fork(ADA, execution.id)
    assert caught.value.code == "message_needed"
    fork = await desk.lifecycle.fork(ADA, execution.id, message="add add end")
    assert fork.execution is not None
    assert fork.message.content == "add add end"
    assert await desk.reader.steps(fork.execution.id) == []
    assert await desk.run(fork.execution.id) is COMPLETED
    state = await desk.reader.state_at(fork.execution.id)
    said = [it.text for it in state.messages if it.is_user()]
    assert said == ["add end", "add add end"]
    assert len(await desk.reader.steps(fork.execution.id)) == 3
    roles = [it.role for it in await desk.messages(fork.session.id)]
    assert roles.count(MessageRole.ASSISTANT) == 2


async def test_a_fork_that_goes_on_may_be_told_something(desk: FrontDesk) -> None:
    execution = await ran(desk, "add add end")
    fork = await desk.lifecycle.fork(ADA, execution.id, step_number=1, message="end")
    assert fork.execution is not None
    await desk.run(fork.execution.id)
    state = await desk.reader.state_at(fork.execution.id)
    assert [it.text for it in state.messages if it.is_user()] == ["add add end", "end"]
    assert state.final_response == "Answer to end"


async def test_a_fork_of_a_pause_goes_on_without_the_answer(desk: FrontDesk) -> None:
    paused = await ran(desk, "ask end")
    with pytest.raises(RefusedError, match="paused"):
        await desk.lifecycle.fork(ADA, paused.id)
    bob = Principal(user_id="bob")
    fork = await desk.lifecycle.fork(bob, paused.id, message="end")
    assert fork.session.user_id == "bob"
    assert fork.execution is not None
    assert await desk.run(fork.execution.id) is COMPLETED
    state = await desk.reader.state_at(fork.execution.id)
    results = [it.text for it in state.messages if it.is_tool()]
    assert results == ["Error: no answer was given, because the run ended."]
    assert (await desk.execution(paused.id)).status is ExecutionStatus.PAUSED


async def test_a_fork_of_a_fork_has_its_messages_once(desk: FrontDesk) -> None:
    execution = await ran(desk, "add end")
    first = await desk.lifecycle.fork(ADA, execution.id, step_number=1)
    assert first.execution is not None
    await desk.run(first.execution.id)
    second = await desk.lifecycle.fork(ADA, first.execution.id, message="end")
    said = [it for it in await desk.messages(second.session.id) if it.role is MessageRole.USER]
    assert [it.content for it in said] == ["add end", "end"]


async def test_a_fork_takes_over_how_its_session_behaves(desk: FrontDesk) -> None:
    new = NewSession(when_busy=WhenBusy.REJECT, title="Mine", metadata={"colour": "red"})
    sent = await desk.send("add end", new_session=new)
    assert sent.execution is not None
    await desk.run(sent.execution.id)
    fork = await desk.lifecycle.fork(ADA, sent.execution.id, message="end")
    assert (fork.session.when_busy, fork.session.title) == (WhenBusy.REJECT, "Fork of Mine")
    assert fork.session.metadata["colour"] == "red"


async def test_a_fork_needs_its_agent(tmp_path: Path) -> None:
    async with desk_at(tmp_path / "a.db") as desk:
        execution = await ran(desk, "add end")
    async with desk_at(tmp_path / "a.db", {"another": talker()}) as desk:
        with pytest.raises(ConflictError) as caught:
            await desk.lifecycle.fork(ADA, execution.id, message="end")
        assert caught.value.code == "agent_gone"
