"""A claimed execution is run to its end, its pause or its hand-over, on a real database."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr

from stepwell.agent import Agent
from stepwell.broadcasting import BroadcastConfig
from stepwell.capabilities.user_input import UseUserInput
from stepwell.continuation import StopReason
from stepwell.criteria import ErrorPolicy
from stepwell.errors import ModelError
from stepwell.hooks import HookContext, make_hook
from stepwell.messages import FinishReason, ToolCall
from stepwell.models import ModelRequest, ModelResponse, StreamPart, TextDelta
from stepwell.sessions.attempt.runner import RunControl
from stepwell.sessions.occurrence import envelope_of
from stepwell.sessions.requests.lifecycle import Lifecycle
from stepwell.sessions.settings import SessionSettings
from stepwell.sessions.views.reader import Reader
from stepwell.testing import MockTool, ScriptedModel, call
from stepwell.tools import FunctionTool, ToolFailure
from tests.integration.sessions.databases import rows_as_text
from tests.integration.sessions.tried import Tried
from tests.integration.sessions.world import CrashingStore, world


def look() -> MockTool:
    return MockTool.returning("look", {"found": 3})


async def test_a_run_leaves_its_answer_its_messages_and_one_terminal_status(tmp_path: Path) -> None:
    agent = Agent(ScriptedModel([call("look", id="c1", path="a.txt"), "Three."]), tools=[look()])
    async with world(tmp_path, agent) as here:
        id = await here.send("How many?")
        assert await here.run(id) == "completed"
        row = await here.execution(id)
        assert (row.status, row.output, row.stop_reason) == ("completed", "Three.", "completed")
        assert (row.step_count, row.token_usage) == (2, 30)
        assert row.token_details["input"] == 20
        assert row.decision is not None
        votes = [vote["criterion"] for vote in row.decision["evaluations"]]
        assert "StepsLimit" in votes
        assert (row.worker_id, row.crashes) == (None, 0)
        assert row.completed_at is not None
        session = await here.session()
        assert (session.last_execution_id, session.last_snapshot_id) == (id, row.last_snapshot_id)
        texts = await here.texts()
        assert [t for t in texts if "done in" not in t] == [
            "How many?",
            "Execution started",
            "Step 1",
            "Calling look (path: 'a.txt')",
            "Step 2",
            "Three.",
        ]
        assert await here.statuses() == ["processing", "completed"]


async def test_the_journal_has_one_entry_per_occurrence_in_order(tmp_path: Path) -> None:
    agent = Agent(ScriptedModel([call("look", id="c1"), "Three."]), tools=[look()])
    async with world(tmp_path, agent) as here:
        await here.run(await here.send("How many?"))
        entries = [(it.type, it.payload.get("event_type")) for it in await here.events()]
        assert entries == [
            ("agent.status", "execution.started"),
            ("agent.step.started", "step.started"),
            ("agent.tool.started", "tool.called"),
            ("agent.tool.completed", "tool.completed"),
            ("agent.step.completed", "step.completed"),
            ("agent.step.started", "step.started"),
            ("agent.stream.chunk", None),
            ("agent.step.completed", "step.completed"),
            ("agent.status", "execution.completed"),
        ]


async def test_what_is_logged_of_a_message_is_what_is_stored(tmp_path: Path) -> None:
    async with world(tmp_path, Agent(ScriptedModel(["Hello."]))) as here:
        await here.run(await here.send("Hi"))
        [event] = await here.events("execution.completed")
        [message] = await here.messages("assistant")
        told = envelope_of(event)["payload"]
        assert told["message_id"] == message.id
        assert told["created_at"] == message.created_at.isoformat().replace("+00:00", "Z")
        assert event.message_id == message.id


async def test_executions_of_a_session_share_the_conversation(tmp_path: Path) -> None:
    model = ScriptedModel(["One.", "Two."])
    async with world(tmp_path, Agent(model)) as here:
        first, second = await here.send("First"), await here.send("Second")
        await here.run(first)
        assert here.jobs.ids == [second]
        await here.run(second)
        assert [m.text for m in model.requests[1].messages] == ["First", "One.", "Second"]
        state = await Reader(here.store).state_at(second)
        assert state.execution is not None
        assert (state.execution.id, state.execution_count) == (second, 2)


def refusing(request: ModelRequest) -> Any:
    raise ModelError("the key is wrong")


async def stops(context: HookContext) -> HookContext:
    return context.stop("enough")


ENDS: dict[str, tuple[str, str, Callable[[], Agent]]] = {
    "error": ("failed", "error", lambda: Agent(ScriptedModel(refusing))),
    "steps": (
        "stopped",
        "steps_limit",
        lambda: Agent(ScriptedModel(lambda _: call("look")), tools=[look()], max_steps=2),
    ),
    "tokens": (
        "stopped",
        "token_limit",
        lambda: Agent(ScriptedModel(lambda _: call("look")), tools=[look()], max_tokens=20),
    ),
    "cost": (
        "stopped",
        "cost_limit",
        lambda: Agent(ScriptedModel(lambda _: call("look"), cost=1.0), tools=[look()], max_cost=2),
    ),
    "retries": (
        "failed",
        "retry_limit",
        lambda: Agent(ScriptedModel(refusing), error_policy=ErrorPolicy.retry_all(2)),
    ),
    "hook": (
        "stopped",
        "stop_requested",
        lambda: Agent(
            ScriptedModel(lambda _: call("look")),
            tools=[look()],
            hooks=[make_hook("after_step", stops)],
        ),
    ),
    "finish reason": (
        "stopped",
        "finish_reason",
        lambda: Agent(
            ScriptedModel([ModelResponse(text="It", finish_reason=FinishReason.LENGTH)]),
            stop_on_finish_reasons=["length"],
        ),
    ),
    "raises": (
        "stopped",
        "steps_limit",
        lambda: Agent(
            ScriptedModel(lambda _: call("look")), tools=[look()], max_steps=1, at_limit="raise"
        ),
    ),
}


@pytest.mark.parametrize("why", ENDS)
async def test_every_end_is_told_once_and_explained(tmp_path: Path, why: str) -> None:
    status, reason, build = ENDS[why]
    async with world(tmp_path, build()) as here:
        id = await here.send("go")
        assert await here.run(id) == status
        row = await here.execution(id)
        assert (row.status, row.stop_reason) == (status, reason)
        assert row.decision is not None
        assert row.decision["stop_reason"] == reason
        assert await here.statuses() == ["processing", status]
        assert (row.error_message is not None) == (status == "failed")
        if status != "completed":
            told = await here.texts("notification")
            assert StopReason(reason) in told[-1]


async def test_a_cancellation_reaches_what_runs_and_ends_it_in_order(tmp_path: Path) -> None:
    began, cut = asyncio.Event(), False

    async def wait() -> None:
        "Wait."
        nonlocal cut
        began.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cut = True
            raise

    agent = Agent(ScriptedModel([call("wait", id="w")]), tools=[FunctionTool(wait)])
    async with world(tmp_path, agent) as here:
        id, control = await here.send("go"), RunControl()
        run = asyncio.create_task(here.run(id, control=control))
        await began.wait()
        control.cancellation.request("changed my mind")
        assert await run == "cancelled"
        assert cut
        row = await here.execution(id)
        assert (row.status, row.stop_reason) == ("cancelled", "user_requested")
        assert "changed my mind" in (await here.texts("notification"))[-1]


async def test_an_answer_that_was_cancelled_is_stored_as_incomplete(tmp_path: Path) -> None:
    stands = asyncio.Event()

    class Halfway:
        name = "halfway"

        async def respond(self, request: ModelRequest) -> ModelResponse:
            raise AssertionError("it is streamed")

        async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
            yield TextDelta("Once upon a time")
            stands.set()
            await asyncio.Event().wait()

    async with world(tmp_path, Agent(Halfway())) as here:
        id, control = await here.send("go"), RunControl()
        run = asyncio.create_task(here.run(id, control=control))
        await stands.wait()
        control.cancellation.request("enough")
        assert await run == "cancelled"
        [answer] = await here.messages("assistant")
        assert (answer.content, answer.metadata["incomplete"]) == ("Once upon a time", True)


async def test_a_wish_to_cancel_in_the_row_is_enough(tmp_path: Path) -> None:
    agent = Agent(ScriptedModel(lambda _: call("look")), tools=[look()])
    async with world(tmp_path, agent) as here:
        id = await here.send("go")

        class Wishing(CrashingStore):
            async def write(self, work: Any, /, *, name: str) -> Any:
                if name == "step":
                    lifecycle = Lifecycle(here.store, here.jobs, here.agents)
                    await lifecycle.cancel(id, reason="too slow")
                return await super().write(work, name=name)

        assert await here.run(id, store=Wishing(here.store)) == "cancelled"
        assert (await here.execution(id)).step_count <= 1


async def test_a_pause_holds_nothing_and_goes_on_with_the_answer(tmp_path: Path) -> None:
    model = ScriptedModel([call("user_input", id="q", question="Which one?"), "The red one."])
    async with world(tmp_path, Agent(model, capabilities=[UseUserInput()])) as here:
        id = await here.send("go")
        assert await here.run(id) == "paused"
        row = await here.execution(id)
        assert (row.status, row.worker_id) == ("paused", None)
        [asked] = row.questions
        assert (asked["call_id"], asked["kind"]) == ("q", "question")
        assert "Which one?" in asked["prompt"]
        [told] = await here.messages("notification")
        assert "Which one?" in told.content
        assert (await here.events("execution.paused"))[0].payload["message_id"] == told.id
        await Lifecycle(here.store, here.jobs, here.agents).answer(id, asked["question_id"], "red")
        assert await here.run(id) == "completed"
        assert (await here.execution(id)).pending == ()
        statuses = await here.events("agent.status")
        assert [(e.payload["previous_status"], e.payload["status"]) for e in statuses] == [
            ("idle", "processing"),
            ("processing", "paused"),
            ("paused", "processing"),
            ("processing", "completed"),
        ]


async def test_a_run_paused_at_a_limit_goes_on_with_more_budget(tmp_path: Path) -> None:
    turns = ScriptedModel([call("look", id="1"), call("look", id="2"), "Found."])
    agent = Agent(turns, tools=[look()], max_steps=1, at_limit="pause")
    async with world(tmp_path, agent) as here:
        id = await here.send("go")
        assert await here.run(id) == "paused"
        [asked] = (await here.execution(id)).questions
        assert asked["kind"] == "budget"
        lifecycle = Lifecycle(here.store, here.jobs, here.agents)
        await lifecycle.resume(id, question_id=asked["question_id"], steps=2)
        assert await here.run(id) == "completed"
        assert (await here.execution(id)).step_count == 3


async def test_a_run_is_handed_back_at_the_next_step_boundary(tmp_path: Path) -> None:
    control = RunControl()

    def last_words(**_: Any) -> str:
        control.hand_back()
        return "seen"

    agent = Agent(
        ScriptedModel([call("look", id="1"), "Done."]), tools=[MockTool("look", last_words)]
    )
    async with world(tmp_path, agent) as here:
        id = await here.send("go")
        assert await here.run(id, control=control) == "pending"
        row = await here.execution(id)
        assert (row.status, row.worker_id, row.step_count) == ("pending", None, 1)
        assert here.jobs.ids == [id]
        assert await here.run(id) == "completed"
        assert (await here.execution(id)).crashes == 0
        assert await here.statuses() == ["processing", "completed"]
        assert (await here.texts()).count("Step 1") == 1


async def test_streamed_text_is_logged_once_and_whole(tmp_path: Path) -> None:
    text = " ".join(f"word{n}" for n in range(300))

    class Slow(ScriptedModel):
        async def stream(self, request: ModelRequest) -> Any:
            async for part in super().stream(request):
                await asyncio.sleep(0.001)
                yield part

    settings = SessionSettings(flush_seconds=0.1)
    async with world(tmp_path, Agent(Slow([text])), settings=settings) as here:
        await here.run(await here.send("go"))
        chunks = [e.payload for e in await here.events("agent.stream.chunk")]
        assert [(it["content"], it["chunk_index"], it["is_complete"]) for it in chunks] == [
            (text, 0, True)
        ]


@pytest.mark.parametrize(
    ("words", "broadcast"),
    [(200, BroadcastConfig(max_queued=50)), (15_000, BroadcastConfig())],
    ids=["a short transport queue", "a model that never gives way"],
)
async def test_the_log_has_all_text_whatever_a_transport_could_queue(
    tmp_path: Path, words: int, broadcast: BroadcastConfig
) -> None:
    text = " ".join(f"word{n}" for n in range(words))
    settings = SessionSettings(broadcast=broadcast)
    async with world(tmp_path, Agent(ScriptedModel([text])), settings=settings) as here:
        await here.run(await here.send("go"))
        chunks = [e.payload["content"] for e in await here.events("agent.stream.chunk")]
        assert "".join(chunks) == text


class Verdict(BaseModel):
    """What was found."""

    guilty: bool


async def test_a_typed_output_is_kept_as_data(tmp_path: Path) -> None:
    agent = Agent(ScriptedModel(['{"guilty": false}']), output_type=Verdict)
    async with world(tmp_path, agent) as here:
        id = await here.send("go")
        await here.run(id)
        assert (await here.execution(id)).output == {"guilty": False}


async def test_a_state_that_cannot_be_stored_fails_and_says_why(tmp_path: Path) -> None:
    def spoil(context: HookContext) -> HookContext:
        return context.with_state(context.state.with_metadata({"lock": object()}))

    agent = Agent(
        ScriptedModel([call("look", id="1"), "Done."]),
        tools=[look()],
        hooks=[make_hook("after_step", spoil)],
    )
    async with world(tmp_path, agent) as here:
        id = await here.send("go")
        assert await here.run(id) == "failed"
        row = await here.execution(id)
        assert row.error_message is not None
        assert "lock" in row.error_message
        assert await here.statuses() == ["processing", "failed"]


async def test_a_secret_argument_is_nowhere_in_the_database(tmp_path: Path) -> None:
    def login(name: str, password: SecretStr) -> str:
        "Log in."
        return f"{name} with {password.get_secret_value()}"

    turn = ModelResponse(
        text="I use hunter2-secret.",
        tool_calls=(
            ToolCall(id="l", name="login", arguments={"name": "ada", "password": "hunter2-secret"}),
        ),
    )
    agent = Agent(ScriptedModel([turn, "In."]), tools=[FunctionTool(login)])
    async with world(tmp_path, agent) as here:
        id, seen = await here.send("go"), list[str]()

        class Looking(CrashingStore):
            async def write(self, work: Any, /, *, name: str) -> Any:
                await super().write(work, name=name)
                seen.extend(rows_as_text(tmp_path / "stepwell.db"))

        await here.run(id, store=Looking(here.store))
        assert (await here.execution(id)).status == "completed"
        assert any("agent_step_intents" in line and "ada" in line for line in seen)
        assert not any("hunter2" in line for line in seen)


async def test_an_expected_failure_of_a_tool_is_a_notification(tmp_path: Path) -> None:
    tool = MockTool.returning("look", ToolFailure("no such file"))
    agent = Agent(ScriptedModel([call("look", id="1"), "Gone."]), tools=[tool])
    async with world(tmp_path, agent) as here:
        await here.run(await here.send("go"))
        assert await here.texts("notification") == ["look failed: no such file"]


async def test_what_a_step_stores_does_not_grow_with_the_run(tmp_path: Path) -> None:
    steps, texts = 40, iter(range(1000))

    def turn(request: ModelRequest) -> Any:
        done = sum(1 for message in request.messages if message.is_tool())
        return call("look", id=f"c{done}") if done < steps - 1 else "Done."

    tool = MockTool("look", lambda **_: f"{next(texts):06}" + "x" * 2000)
    agent = Agent(ScriptedModel(turn), tools=[tool], max_steps=None, max_tokens=None, timeout=None)
    async with world(tmp_path, agent) as here:
        id = await here.send("go")
        await here.run(id)
        size = await here.store.read(lambda tx: tx.size())
        assert size.snapshot_characters < 4 * steps * 2000
        snapshots = await here.store.read(lambda tx: tx.snapshots(id))
        whole = [place for place, snapshot in enumerate(snapshots) if snapshot.is_whole]
        assert whole == [0, steps]
        sizes = [len(text) for text in await here.store.read(lambda tx: tx.chain(snapshots[-2]))]
        assert max(sizes[2:-1]) < 1.1 * min(sizes[2:-1])
        state = await Reader(here.store).state_at(id, 30)
        assert state.step_count == 30


async def test_the_note_of_a_repeated_call_is_told_to_people_as_well(tmp_path: Path) -> None:
    again = [[call("pay", id=f"c{number}", at="x")] for number in range(4)]
    async with world(tmp_path, Tried([*again, "Done."]).agent) as here:
        assert await here.run(await here.send("go")) == "completed"
        told = [e.payload["result_summary"] for e in await here.events("agent.tool.completed")]
        results = [
            message.metadata
            for message in await here.messages()
            if message.metadata.get("event_type") == "tool.completed"
        ]
    assert [result["result_summary"] for result in results] == told
    assert told[-1] == f"pay at x\n\n{results[-1]['note']}"
    assert "note" not in results[0]
