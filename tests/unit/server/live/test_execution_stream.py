"""An execution as its log tells it, for AG-UI and the AI SDK: also one that changed its worker."""

import asyncio
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

from stepwell.agent import Agent
from stepwell.journal.status import ExecutionStatus
from stepwell.messages import Message
from stepwell.models import ModelResponse
from stepwell.protocols.ag_ui import AgUiTranslator
from stepwell.protocols.ai_sdk import AiSdkTranslator
from stepwell.protocols.client_stream import ClientTranslator
from stepwell.server.live.execution_stream import ExecutionStream, FollowedExecution
from stepwell.server.live.feeds import Feeds
from stepwell.server.settings import ServerSettings
from stepwell.sessions.ports import session_topic
from stepwell.sessions.records import (
    Execution,
    MessageRole,
    SessionMessage,
    StoredEntry,
)
from stepwell.state import AgentState
from stepwell.testing import FakeClock, MockTool, ScriptedModel, call
from stepwell.testing.clock import DEFAULT_START
from tests.unit.protocols.ag_ui_rules import checked
from tests.unit.server.live.logs import LogInMemory

Json = dict[str, Any]
USAGE = {"prompt": 1, "completion": 1, "total": 2, "cached": 0, "reasoning": 0}
ASKED = SessionMessage(
    id="m1",
    tenant_id="default",
    session_id="s1",
    role=MessageRole.USER,
    content="Hello",
    created_at=DEFAULT_START,
)


class World(LogInMemory):
    """A log with one execution, its states and its row."""

    def __init__(self, *states: AgentState, status: ExecutionStatus) -> None:
        super().__init__()
        self.states = {str(number): state for number, state in enumerate(states, 1)}
        self.row = Execution(
            id="e1",
            tenant_id="default",
            agent_type="helper",
            definition_hash="",
            session_id="s1",
            status=status,
            error_message="Set aside: the worker died 3 times" if not states else None,
            last_snapshot_id=str(len(states)) if states else None,
            created_at=DEFAULT_START,
            updated_at=DEFAULT_START,
        )

    def tell(self, type: str, execution: str = "e1", **payload: Any) -> None:
        self.newest += 1
        whose = {"agent_id": "whoever", "parent_execution_id": None, "parent_tool_call_id": None}
        self.events.append(
            StoredEntry(
                tenant_id="default",
                session_id="s1",
                seq=self.newest,
                type=f"agent.{type}",
                payload={**whose, **payload},
                created_at=DEFAULT_START + timedelta(seconds=self.newest),
                execution_id=execution,
            )
        )
        self.bus.publish(session_topic("s1"))

    def begin(self, step: int) -> None:
        self.tell("step.started", step_number=step, message_count=1, available_tools=[])

    def chunk(self, step: int, index: int, content: str, *, last: bool = False) -> None:
        text = {"content": content, "chunk_index": index, "is_complete": last}
        self.tell("stream.chunk", step_number=step, **text)

    def end(self, step: int) -> None:
        done = {"has_tool_calls": False, "errors": 0, "error_messages": [], "duration_ms": 1.0}
        self.tell("step.completed", step_number=step, finish_reason="stop", usage=USAGE, **done)

    def status(self, word: str, execution: str = "e1", **more: Any) -> None:
        before = {"previous_status": "processing", "step_count": 1}
        self.tell("status", execution, status=word, **before, **more)

    async def intent(self, execution_id: str, /) -> None:
        return None

    async def execution(self, execution_id: str, /) -> Execution | None:
        return self.row if execution_id == self.row.id else None

    async def state_of(self, snapshot_id: str) -> AgentState:
        return self.states[snapshot_id]

    async def state_at(self, execution_id: str, step: int) -> AgentState:
        assert execution_id == "e1"
        return self.states[str(step)]

    async def told(self, translator: ClientTranslator) -> list[Json]:
        """What a client is told of it, to the end."""
        feeds = Feeds(self.as_store, FakeClock(), ServerSettings())
        services = cast("Any", SimpleNamespace(store=self.as_store, reader=self))
        followed = FollowedExecution(session_id="s1", execution_id="e1", after=0, message=ASKED)
        stream = ExecutionStream(services, followed, translator)
        told: list[Json] = []
        async with await feeds.subscribe("s1", 0) as subscription, asyncio.timeout(90):
            async for some in stream.batches(subscription, 1.0):
                told += some
        await feeds.close()
        return told

    async def as_ag_ui(self) -> list[Json]:
        told = await self.told(AgUiTranslator("t", "r"))
        checked(told)
        return told

    async def as_ai_sdk(self) -> list[Json]:
        return await self.told(AiSdkTranslator("a1"))


async def states_of(*script: Any, **given: Any) -> list[AgentState]:
    """The states after each step of a run as the runner would store them."""
    agent = Agent(ScriptedModel([*script]), **given)
    state = AgentState.empty(agent_id="agent").with_message(Message.user("Hello", id="m1"))
    begun = state.with_execution_started("e1", DEFAULT_START)
    return [reached async for reached in agent.iterator(begun)]


def types(told: list[Json]) -> list[str]:
    return [one["type"] for one in told]


async def taken_over(then: str = "A whole answer.") -> World:
    """A worker that died in the middle of its first step, and one that did it all."""
    world = World(*await states_of(then), status=ExecutionStatus.COMPLETED)
    world.status("processing")
    world.begin(1)
    world.chunk(1, 0, "A wh")
    world.begin(1)
    world.chunk(1, 0, then, last=True)
    world.end(1)
    world.status("completed", last_response=then)
    return world


async def test_a_page_that_can_take_back_shows_a_step_that_began_anew_once() -> None:
    told = await (await taken_over()).as_ag_ui()
    assert types(told).count("RUN_STARTED") == 1
    snapshot = next(n for n, one in enumerate(told[2:], 2) if one["type"] == "MESSAGES_SNAPSHOT")
    assert types(told[:snapshot])[-3:] == [
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "STEP_FINISHED",
    ]
    assert [one["id"] for one in told[snapshot]["messages"]] == ["m1"]
    said = [one["delta"] for one in told[snapshot:] if one["type"] == "TEXT_MESSAGE_CONTENT"]
    assert said == ["A whole answer."]
    whole = [one for one in told if one["type"] == "MESSAGES_SNAPSHOT"][-1]["messages"]
    assert [(one["role"], one["content"]) for one in whole] == [
        ("user", "Hello"),
        ("assistant", "A whole answer."),
    ]
    assert types(told)[-1] == "RUN_FINISHED"


async def test_one_that_can_not_is_sent_what_goes_beyond_what_it_has() -> None:
    told = await (await taken_over()).as_ai_sdk()
    said = [one["delta"] for one in told if one["type"] == "text-delta"]
    assert said == ["A wh", "ole answer."]
    assert types(told).count("text-end") == types(told).count("text-start") == 1
    assert types(told)[-1] == "finish"


async def test_text_that_another_attempt_changes_is_marked_as_superseded() -> None:
    told = await (await taken_over(then="Another one.")).as_ai_sdk()
    texts = [one for one in told if one["type"].startswith(("text-", "data-stepwell-super"))]
    first, second = (one["id"] for one in texts if one["type"] == "text-start")
    assert [(one["type"], one["id"], one.get("delta")) for one in texts] == [
        ("text-start", first, None),
        ("text-delta", first, "A wh"),
        ("text-end", first, None),
        ("data-stepwell-superseded", first, None),
        ("text-start", second, None),
        ("text-delta", second, "Another one."),
        ("text-end", second, None),
    ]
    assert texts[2]["providerMetadata"] == {"stepwell": {"superseded": True}}


async def test_text_of_an_attempt_that_made_calls_stays_if_the_stored_step_has_it() -> None:
    tools = [MockTool.returning("look", {"found": 3})]
    turn = ModelResponse(text="I look.", tool_calls=(call("look", id="c1", at="home"),))
    states = await states_of(turn, "Done.", tools=tools)
    world = World(*states, status=ExecutionStatus.COMPLETED)
    one = {"tool_name": "look", "tool_call_id": "c1"}
    done = {"outcome": "completed", "success": True, "error": None, "duration_ms": 1.0}
    world.begin(1)
    world.chunk(1, 0, "I look.", last=True)
    world.tell("tool.started", step_number=1, args_summary="at: 'home'", **one)
    world.begin(1)  # another worker goes on with the turn that is stored
    world.tell("tool.started", step_number=1, args_summary="at: 'home'", **one)
    world.tell("tool.completed", result_summary="...", **one, **done)
    world.end(1)
    world.begin(2)
    world.chunk(2, 0, "Done.", last=True)
    world.end(2)
    world.status("completed")
    told = await world.as_ai_sdk()
    assert [one["delta"] for one in told if one["type"] == "text-delta"] == ["I look.", "Done."]
    assert types(told).count("tool-input-available") == 1
    assert types(told).count("tool-output-available") == 1
    assert not [one for one in told if "superseded" in one["type"] or "error" in one["type"]]


async def test_calls_of_which_the_ledger_knows_nothing_more_are_told_from_the_stored_step() -> None:
    tools = [MockTool.returning("look", {"found": 3})]
    states = await states_of(call("look", id="c1", at="home"), "Done.", tools=tools)
    world = World(*states, status=ExecutionStatus.COMPLETED)
    world.begin(1)
    one = {"tool_name": "look", "tool_call_id": "c1"}
    world.tell("tool.started", step_number=1, args_summary="at: 'home'", **one)
    done = {"outcome": "completed", "success": True, "error": None, "duration_ms": 1.0}
    world.tell("tool.completed", result_summary="...", **one, **done)
    world.end(1)
    world.begin(2)
    world.end(2)
    world.status("completed")
    told = await world.as_ai_sdk()
    [given] = [one["input"] for one in told if one["type"] == "tool-input-available"]
    [got] = [one["output"] for one in told if one["type"] == "tool-output-available"]
    assert (given, got) == ({"at": "home"}, {"found": 3})
    assert [one["delta"] for one in told if one["type"] == "text-delta"] == ["Done."]


async def test_an_execution_without_a_state_of_its_end_is_told_as_failed() -> None:
    world = World(status=ExecutionStatus.FAILED)
    world.status("failed", error_message="Set aside")
    [*_, end] = await world.as_ag_ui()
    assert (end["type"], end["message"]) == ("RUN_ERROR", "Set aside: the worker died 3 times")


async def test_subagents_are_told_beside_their_call_and_cut_off_with_it() -> None:
    world = World(*await states_of("Done."), status=ExecutionStatus.COMPLETED)
    child = {"agent_id": "c", "parent_execution_id": "e1", "parent_tool_call_id": "c1"}
    world.begin(1)
    world.status("processing", "child", agent_name="scout", **child)
    text = {"content": "Hm", "chunk_index": 0, "is_complete": False, "step_number": 1}
    world.tell("stream.chunk", "child", **child, **text)
    world.begin(1)
    again = {**child, "agent_id": "c2"}
    world.status("processing", "child2", agent_name="scout", **again)
    world.status("completed", "child2", last_response="Found.", **again)
    world.status("processing", "stranger")
    world.end(1)
    world.status("completed")
    told = [one for one in await world.as_ag_ui() if "SUBAGENT" in one["type"]]
    assert [(one["type"], one["subagentRunId"]) for one in told] == [
        ("SUBAGENT_STARTED", "c"),
        ("SUBAGENT_ERROR", "c"),
        ("SUBAGENT_STARTED", "c2"),
        ("SUBAGENT_FINISHED", "c2"),
    ]
    assert told[-1]["result"] == "Found."


async def test_a_stream_whose_beginning_is_gone_says_so() -> None:
    world = await taken_over()
    world.forget(up_to=3)
    [*_, end] = await world.as_ag_ui()
    assert (end["type"], end["code"]) == ("RUN_ERROR", "reset")
