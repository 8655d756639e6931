"""The slim snapshot of a state: its schema, its bounds, and a conversation that goes on from it."""

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from msgspec.structs import replace

from stepwell import Agent, AgentState, AgentStatus, Message, ToolCall, UseUserInput
from stepwell.errors import ConfigurationError
from stepwell.messages import FilePart, ImagePart, Role, TextPart, ThinkingPart, ToolResult
from stepwell.serialization import CanSerializeAgentState
from stepwell.serialization.slim import SlimAgentStateSerializer
from stepwell.serialization.slim_config import SlimSerializationConfig
from stepwell.testing import FakeClock, MockTool, ScriptedModel, SequentialIds, call
from tests.answers import answer_call

AT = datetime(2026, 1, 16, 10, 0, 0, 123456, tzinfo=UTC)


def slim(state: AgentState, **settings: Any) -> dict[str, Any]:
    document = SlimAgentStateSerializer(SlimSerializationConfig(**settings)).serialize(state)
    json.dumps(document, allow_nan=False).encode()
    return document


def restored(document: dict[str, Any]) -> AgentState:
    through_text = json.loads(json.dumps(document, allow_nan=False))
    return SlimAgentStateSerializer().deserialize(through_text)


def said(*messages: Message) -> AgentState:
    return AgentState.empty(agent_id="agent-1", at=AT).with_messages(messages)


def result_of(call_id: str, content: str = "ok", *, is_error: bool = False) -> Message:
    return Message.tool(
        ToolResult(call_id=call_id, tool_name="read", content=content, is_error=is_error)
    )


def contents(document: dict[str, Any]) -> list[str]:
    return [message["content"] for message in document["messages"]]


def exchange(*ids: str) -> list[Message]:
    calls = [ToolCall(id=i, name="read", arguments={"path": i}) for i in ids]
    return [Message.assistant("reading", calls), *(result_of(i, f"text {i}") for i in ids)]


async def run_with_tools() -> AgentState:
    agent = Agent(
        ScriptedModel([call("read", id="c1", path="a.txt"), "It says hello."]),
        tools=[MockTool.returning("read", "hello")],
        clock=FakeClock(AT),
        new_id=SequentialIds(),
    )
    return await agent.run("What does a.txt say?")


def test_b098_the_presets_have_the_numbers_of_the_schema() -> None:
    config = SlimSerializationConfig
    assert config.minimal() == config(
        max_messages=20,
        max_steps=0,
        max_content_length=500,
        include_tool_results=False,
        include_steps=False,
        include_continuation_trace=False,
        redact_tool_args=False,
    )
    assert config.standard() == config(
        max_messages=50,
        max_steps=20,
        max_content_length=2000,
        include_tool_results=True,
        include_steps=True,
        include_continuation_trace=False,
        redact_tool_args=False,
    )
    assert config.full() == config(
        max_messages=100,
        max_steps=50,
        max_content_length=5000,
        include_tool_results=True,
        include_steps=True,
        include_continuation_trace=True,
        redact_tool_args=False,
    )
    assert config() == config.standard()


@pytest.mark.parametrize("field", ["max_messages", "max_steps", "max_content_length"])
@pytest.mark.parametrize("value", [-1, 1.5, True, "20", None])
def test_a_bound_that_is_no_whole_number_is_refused(field: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=rf"{field} .* give a whole number, 0 or more"):
        SlimSerializationConfig(**{field: value})


def test_a_flag_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"include_steps .* give True or False"):
        SlimSerializationConfig(include_steps="no")  # type: ignore[arg-type]


def test_a_serializer_wants_a_config() -> None:
    with pytest.raises(ConfigurationError, match="give a SlimSerializationConfig"):
        SlimAgentStateSerializer({"max_messages": 3})  # type: ignore[arg-type]


def test_the_serializer_is_one_of_the_formats() -> None:
    serializer: CanSerializeAgentState = SlimAgentStateSerializer()
    assert serializer.deserialize(serializer.serialize(said())).agent_id == "agent-1"


async def test_a_run_is_shown_in_the_schema_of_the_snapshot() -> None:
    state = await run_with_tools()
    document = slim(state, include_continuation_trace=True)
    assert state.execution is not None
    assert document["agent_id"] == state.agent_id
    assert document["parent_agent_id"] is None
    assert document["status"] == "completed"
    assert document["step_count"] == 2
    assert document["usage"] == {
        "prompt": 20,
        "completion": 10,
        "total": 30,
        "cached": 0,
        "reasoning": 0,
    }
    assert document["execution"] == {
        "id": state.execution.id,
        "count": 1,
        "created_at": "2026-01-16T10:00:00.123456Z",
        "started_at": "2026-01-16T10:00:00.123456Z",
        "updated_at": "2026-01-16T10:00:00.123456Z",
        "cumulative_seconds": 0.0,
    }
    asked, calling, result, answer = state.messages
    assert document["messages"] == [
        {"id": asked.id, "role": "user", "content": "What does a.txt say?", "metadata": {}},
        {
            "id": calling.id,
            "role": "assistant",
            "content": "",
            "metadata": {
                "tool_calls": [{"id": "c1", "name": "read", "arguments": {"path": "a.txt"}}]
            },
        },
        {
            "id": result.id,
            "role": "tool",
            "content": "hello",
            "metadata": {"tool_call_id": "c1", "tool_name": "read", "is_error": False},
        },
        {"id": answer.id, "role": "assistant", "content": "It says hello.", "metadata": {}},
    ]
    assert document["steps"] == [
        {
            "step_number": 1,
            "type": "tool_execution",
            "has_tool_calls": True,
            "finish_reason": "tool_calls",
            "errors": 0,
            "usage": {"total": 15},
            "duration_ms": 0.0,
            "tool_calls": [{"id": "c1", "name": "read"}],
        },
        {
            "step_number": 2,
            "type": "final_response",
            "has_tool_calls": False,
            "finish_reason": "stop",
            "errors": 0,
            "usage": {"total": 15},
            "duration_ms": 0.0,
            "tool_calls": [],
        },
    ]
    assert document["last_continuation"] == {
        "should_continue": False,
        "stop_reason": "completed",
        "resolved_by": state.outcome.resolved_by if state.outcome else None,
    }
    assert document["metadata"] == {}


async def test_a_failed_step_is_shown_as_an_error_with_its_time() -> None:
    clock = FakeClock(AT)

    def slow() -> str:
        """Takes its time and fails."""
        clock.advance(1.2505)
        raise ValueError("no")

    agent = Agent(ScriptedModel([call("slow"), "Sorry."]), tools=[slow], clock=clock)
    document = slim(await agent.run("Go"))
    first = document["steps"][0]
    assert (first["type"], first["errors"], first["duration_ms"]) == ("error", 1, 1250.5)
    assert document["messages"][2]["metadata"]["is_error"] is True
    assert document["execution"]["cumulative_seconds"] == pytest.approx(1.2505)


async def test_b096_only_the_newest_steps_are_kept_with_their_true_numbers() -> None:
    state = await run_with_tools()
    assert [step["step_number"] for step in slim(state, max_steps=1)["steps"]] == [2]
    assert slim(state, max_steps=0)["steps"] == []
    assert slim(state, include_steps=False)["steps"] == []
    assert slim(state, max_steps=0)["step_count"] == 2


async def test_the_decision_is_shown_only_if_asked_for() -> None:
    assert slim(await run_with_tools())["last_continuation"] is None
    assert slim(said(), include_continuation_trace=True)["last_continuation"] is None


def test_b093_content_is_cut_by_characters_and_ends_with_dots() -> None:
    document = slim(
        said(*(Message.user(text) for text in ("hello", "hell", "", "🙂🙂🙂🙂🙂"))),
        max_content_length=4,
    )
    assert contents(document) == ["hell...", "hell", "", "🙂🙂🙂🙂..."]
    assert contents(slim(said(Message.user("a"), Message.user("")), max_content_length=0)) == [
        "...",
        "",
    ]


def test_texts_in_arguments_and_metadata_are_cut_as_well() -> None:
    long = {"deep": [{"text": "x" * 9}], "short": "abcd", "number": 123456789}
    asks = Message.assistant("", [ToolCall(id="c", name="read", arguments=long)])
    state = said(asks, result_of("c")).with_metadata({"note": long})
    document = slim(state, max_content_length=4)
    cut = {"deep": [{"text": "xxxx..."}], "short": "abcd", "number": 123456789}
    assert document["messages"][0]["metadata"]["tool_calls"][0]["arguments"] == cut
    assert document["metadata"] == {"note": cut}


def test_newest_messages_win() -> None:
    state = said(*(Message.user(str(n)) for n in range(5)))
    assert contents(slim(state, max_messages=2)) == ["3", "4"]
    assert contents(slim(state, max_messages=5)) == ["0", "1", "2", "3", "4"]
    assert contents(slim(state, max_messages=0)) == []


@pytest.mark.parametrize(
    ("most", "kept"),
    [
        (7, ["go", "reading", "text a", "text b", "so far", "reading", "text c"]),
        (6, ["reading", "text a", "text b", "so far", "reading", "text c"]),
        (5, ["so far", "reading", "text c"]),
        (4, ["so far", "reading", "text c"]),
        (3, ["so far", "reading", "text c"]),
        (2, ["reading", "text c"]),
    ],
)
def test_a_call_is_never_parted_from_its_results(most: int, kept: list[str]) -> None:
    state = said(
        Message.user("go"), *exchange("a", "b"), Message.assistant("so far"), *exchange("c")
    )
    assert contents(slim(state, max_messages=most)) == kept


def test_the_bound_gives_way_for_the_newest_group() -> None:
    state = said(Message.user("go"), *exchange("a", "b", "c"))
    assert len(slim(state, max_messages=2)["messages"]) == 4
    assert slim(state, max_messages=0)["messages"] == []


def test_an_id_that_is_used_again_does_not_tie_older_messages() -> None:
    state = said(*exchange("same"), Message.user("more"), *exchange("same"))
    assert contents(slim(state, max_messages=3)) == ["more", "reading", "text same"]


def test_a_message_with_several_results_is_shown_as_one_each() -> None:
    calls = [ToolCall(id=i, name="read") for i in "ab"]
    results = [ToolResult(call_id=i, tool_name="read", content=i) for i in "ab"]
    state = said(Message.assistant("", calls), Message.of(Role.TOOL, results, id="m"))
    document = slim(state)
    assert [message["id"] for message in document["messages"][1:]] == ["m", "m.2"]
    back = restored(document).messages
    assert [m.tool_result.call_id for m in back if m.tool_result] == ["a", "b"]


def test_tool_results_can_be_left_out() -> None:
    state = said(*exchange("a"), Message.assistant("done"))
    assert contents(slim(state, include_tool_results=False)) == [
        "reading",
        "[tool result omitted]",
        "done",
    ]


def test_images_and_files_are_named_and_thinking_is_left_out() -> None:
    data = "QUJD" * 100
    message = Message.user(
        [
            TextPart("Look "),
            TextPart("here:"),
            ImagePart(data=data, media_type="image/png"),
            ImagePart(url=f"data:image/png;base64,{data}"),
            FilePart(url="https://example.org/a?signature=canary", name="a.pdf"),
            TextPart("and tell"),
        ]
    )
    thinking = Message.of(Role.ASSISTANT, [ThinkingPart("canary", "canary"), TextPart("A cat.")])
    document = slim(said(message, thinking))
    assert contents(document) == [
        "Look here:\n[image image/png]\n[image]\n[file a.pdf]\nand tell",
        "A cat.",
    ]
    assert "QUJD" not in json.dumps(document)
    assert "canary" not in json.dumps(document)


def test_b095_redaction_reduces_calls_to_id_and_name() -> None:
    asks = Message.assistant(
        "",
        [
            ToolCall(id="a", name="read", arguments={"path": "canary"}, signature="canary"),
            ToolCall(id="b", name="write", malformed='{"canary'),
        ],
    )
    document = slim(said(asks, result_of("a"), result_of("b")), redact_tool_args=True)
    assert document["messages"][0]["metadata"] == {
        "tool_calls": [{"id": "a", "name": "read"}, {"id": "b", "name": "write"}]
    }
    assert "canary" not in json.dumps(document)
    assert [c.arguments for c in restored(document).messages[0].tool_calls] == [{}, {}]


def test_b095_redaction_reaches_calls_that_an_application_noted() -> None:
    noted = [
        {"id": "a", "function": {"name": "read", "arguments": '{"canary": 1}'}},
        {"id": "b", "name": "write", "args": "canary"},
        {"canary": 1},
        "canary",
    ]
    message = replace(Message.assistant("hi"), metadata={"tool_calls": noted})
    document = slim(said(message), redact_tool_args=True)
    shown = document["messages"][0]["metadata"]["tool_calls"]
    assert shown == [
        {"id": "a", "name": "read"},
        {"id": "b", "name": "write"},
        {"id": None, "name": "unknown"},
        {"id": None, "name": "unknown"},
    ]
    back = restored(document).messages[0]
    assert back.tool_calls == ()
    assert back.metadata == {"tool_calls": shown}


def test_noted_calls_of_no_known_shape_are_redacted_whole() -> None:
    message = replace(Message.assistant("hi"), metadata={"tool_calls": {"canary": 1}})
    shown = slim(said(message), redact_tool_args=True)["messages"][0]["metadata"]
    assert shown == {"tool_calls": "[redacted]"}


def test_b099_times_are_kept_to_the_microsecond_and_told_in_utc() -> None:
    east = timezone(timedelta(hours=5, minutes=30))
    state = replace(
        said(),
        created_at=AT.astimezone(east),
        updated_at=AT + timedelta(microseconds=1),
        parent_agent_id="parent",
        cumulative_seconds=45.2,
        execution_count=3,
    )
    document = slim(state)
    assert document["execution"]["created_at"] == "2026-01-16T10:00:00.123456Z"
    assert document["execution"]["id"] is None
    assert restored(document) == state


async def test_b099_what_restores_is_the_conversation_not_the_execution() -> None:
    state = (await run_with_tools()).with_metadata({"topic": {"id": 7}})
    back = restored(slim(state))
    assert back == replace(state, execution=None)
    assert back.status is AgentStatus.IN_PROGRESS


async def test_a_conversation_goes_on_from_a_slim_snapshot() -> None:
    back = restored(slim(await run_with_tools(), redact_tool_args=True, max_content_length=5))
    model = ScriptedModel([call("read", id="c2", path="b.txt"), "It says hello too."])
    agent = Agent(model, tools=[MockTool.returning("read", "hello")])
    state = await agent.run(back.with_user_message("And b.txt?"))
    assert state.unwrap() == "It says hello too."
    assert state.step_count == 2
    assert state.execution_count == 2
    assert [m.role for m in model.requests[0].messages][-5:] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
    ]


async def test_the_result_of_a_call_that_waits_says_so() -> None:
    turns = [
        call("user_input", id="q", question="First?"),
        call("user_input", id="q", question="Second?"),
    ]
    agent = Agent(ScriptedModel(turns), capabilities=[UseUserInput()])
    paused = await agent.run("Go.")
    paused = await agent.run(answer_call(paused, "q", "one"))
    slim = SlimAgentStateSerializer()
    document = slim.serialize(paused)

    tools = [m["metadata"] for m in document["messages"] if m["role"] == "tool"]
    assert [metadata.get("waiting") for metadata in tools] == [None, True]
    loaded = slim.deserialize(document)
    assert [dict(m.metadata) for m in loaded.messages if m.is_tool()] == [{}, {}]
