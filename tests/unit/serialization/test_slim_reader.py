"""Loading slim documents: what is wrong is said with its field, what is unknown is ignored."""

import json
from typing import Any

import pytest

from stepwell import AgentState, Message, ToolCall
from stepwell.errors import SerializationError
from stepwell.messages import ToolResult
from stepwell.serialization.slim import SlimAgentStateSerializer

SLIM = SlimAgentStateSerializer()


def document() -> dict[str, Any]:
    """As the schema shows it, with nothing of our own."""
    return {
        "agent_id": "a",
        "parent_agent_id": None,
        "status": "completed",
        "step_count": 3,
        "usage": {"prompt": 1200, "completion": 600, "total": 1800},
        "execution": {
            "started_at": "2026-01-16T10:00:00Z",
            "updated_at": "2026-01-16T10:05:00Z",
            "cumulative_seconds": 45.2,
        },
        "messages": [
            {"role": "user", "content": "hi", "metadata": {}},
            {
                "role": "assistant",
                "content": "",
                "metadata": {"tool_calls": [{"id": "c", "name": "read"}], "own": 1},
            },
            {
                "role": "tool",
                "content": "text",
                "metadata": {"tool_call_id": "c", "tool_name": "read", "own": 2},
            },
        ],
        "steps": [{"step_number": 3, "type": "final_response"}],
        "last_continuation": None,
        "metadata": {"custom_key": "custom_value"},
    }


def changed(path: str, value: Any) -> dict[str, Any]:
    """The document with another value at a place such as ``messages.0.role``."""
    data = document()
    *way, last = [int(key) if key.isdigit() else key for key in path.split(".")]
    place: Any = data
    for key in way:
        place = place[key]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return data


def test_a_document_with_nothing_but_the_schema_loads() -> None:
    state = SLIM.deserialize(document())
    assert state.agent_id == "a"
    assert state.execution is None
    assert state.created_at.isoformat() == "2026-01-16T10:00:00+00:00"
    assert state.updated_at.isoformat() == "2026-01-16T10:05:00+00:00"
    assert state.cumulative_seconds == 45.2
    assert state.metadata == {"custom_key": "custom_value"}
    user, calling, result = state.messages
    assert (user.text, user.metadata) == ("hi", {})
    assert (calling.tool_calls, calling.metadata) == ((ToolCall(id="c", name="read"),), {"own": 1})
    assert result.tool_result == ToolResult(call_id="c", tool_name="read", content="text")
    assert result.metadata == {"own": 2}
    assert len({message.id for message in state.messages}) == 3


def test_what_is_optional_may_be_left_out() -> None:
    data = document()
    for key in ("parent_agent_id", "steps", "last_continuation", "metadata"):
        del data[key]
    del data["execution"]["cumulative_seconds"]
    for message in data["messages"][:1]:
        del message["metadata"]
    state = SLIM.deserialize(data)
    assert (state.parent_agent_id, state.metadata, state.cumulative_seconds) == (None, {}, 0.0)


def test_unknown_keys_are_ignored() -> None:
    data = document() | {"new": 1}
    data["messages"][0]["new"] = 1
    data["execution"]["new"] = 1
    assert len(SLIM.deserialize(data).messages) == 3


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("agent_id", ..., "agent_id is missing; expected an id"),
        ("agent_id", "", "agent_id is ''; expected an id"),
        ("parent_agent_id", 5, "parent_agent_id is 5; expected an id"),
        ("status", "final", "status is 'final'; expected one of in_progress, completed, stopped"),
        ("status", [], "status is []; expected one of in_progress"),
        ("step_count", -1, "step_count is -1; expected a whole number, 0 or more"),
        ("step_count", True, "step_count is True; expected a whole number"),
        ("usage", None, "usage is None; expected an object"),
        ("usage.total", ..., "usage.total is missing; expected a whole number"),
        ("execution", ..., "execution is missing; expected an object"),
        ("execution.started_at", "yesterday", "execution.started_at is 'yesterday'; expected a ti"),
        ("execution.started_at", "2026-01-16T10:00:00", "execution.started_at is '2026-01-16T10"),
        ("execution.updated_at", 5, "execution.updated_at is 5; expected a time such as 2026-"),
        ("execution.updated_at", "9999-12-31T23:59:59-05:00", "execution.updated_at is '9999"),
        ("execution.created_at", "x", "execution.created_at is 'x'; expected a time"),
        ("execution.cumulative_seconds", -1, "execution.cumulative_seconds is -1; expected a numb"),
        ("execution.cumulative_seconds", float("nan"), "execution.cumulative_seconds is nan; "),
        ("execution.cumulative_seconds", 10**400, "execution.cumulative_seconds is 1000"),
        ("execution.cumulative_seconds", "1", "execution.cumulative_seconds is '1'; expected a n"),
        ("execution.count", 1.5, "execution.count is 1.5; expected a whole number"),
        ("messages", ..., "messages is missing; expected a list"),
        ("messages", {}, "messages is {}; expected a list"),
        ("messages.1", "hi", "messages[1] is 'hi'; expected an object"),
        ("messages.0.role", "robot", "messages[0].role is 'robot'; expected one of system, devel"),
        ("messages.0.role", ..., "messages[0].role is missing; expected one of system"),
        ("messages.0.content", None, "messages[0].content is None; expected a text"),
        ("messages.0.id", 7, "messages[0].id is 7; expected an id"),
        ("messages.0.metadata", [], "messages[0].metadata is []; expected an object"),
        ("messages.0.metadata", {1: 2}, "a key of messages[0].metadata is 1; expected a text"),
        ("messages.1.has_calls", "no", "messages[1].has_calls is 'no'; expected true or false"),
        ("messages.1.metadata.tool_calls", 5, "messages[1].metadata.tool_calls is 5; expected a l"),
        (
            "messages.1.metadata.tool_calls.0.id",
            None,
            "messages[1].metadata.tool_calls[0].id is None; expected an id",
        ),
        (
            "messages.1.metadata.tool_calls.0.arguments",
            [1],
            "messages[1].metadata.tool_calls[0].arguments is [1]; expected an object",
        ),
        (
            "messages.1.metadata.tool_calls.0.malformed",
            1,
            "messages[1].metadata.tool_calls[0].malformed is 1; expected a text",
        ),
        (
            "messages.2.metadata.tool_call_id",
            ...,
            "messages[2].metadata.tool_call_id is missing; expected an id",
        ),
        ("messages.2.metadata.tool_name", 1, "messages[2].metadata.tool_name is 1; expected a te"),
        ("messages.2.metadata.is_error", 0, "messages[2].metadata.is_error is 0; expected true"),
        ("steps", 1, "steps is 1; expected a list"),
        ("steps.0", None, "steps[0] is None; expected an object"),
        ("steps.0.step_number", "3", "steps[0].step_number is '3'; expected a whole number"),
        ("metadata", "x", "metadata is 'x'; expected an object"),
    ],
)
def test_a_wrong_value_is_an_error_that_names_its_field(
    path: str, value: Any, message: str
) -> None:
    with pytest.raises(SerializationError) as raised:
        SLIM.deserialize(changed(path, value))
    assert str(raised.value).startswith(message)


def test_a_value_that_can_not_be_quoted_is_named_by_its_kind() -> None:
    with pytest.raises(SerializationError, match="step_count is of type int; expected a whole"):
        SLIM.deserialize(changed("step_count", -(10**5000)))


@pytest.mark.parametrize("data", [None, [], "x", 5])
def test_what_is_no_object_is_no_document(data: Any) -> None:
    with pytest.raises(SerializationError, match=r"the document is .*; expected an object"):
        SLIM.deserialize(data)


@pytest.mark.parametrize(
    ("shape", "made"),
    [
        ({"function": {"name": "read", "arguments": '{"a": 1}'}}, {"arguments": {"a": 1}}),
        ({"name": "read", "arguments": '{"a": 1}'}, {"arguments": {"a": 1}}),
        ({"name": "read", "arguments": '{"a": '}, {"malformed": '{"a": '}),
        ({"name": "read", "arguments": "[1]"}, {"malformed": "[1]"}),
        ({"name": "read", "arguments": "\ud800"}, {"malformed": "\ud800"}),
        ({"name": "read", "arguments": None}, {}),
        ({}, {"name": "unknown"}),
    ],
)
def test_calls_load_in_the_shapes_of_providers(shape: dict[str, Any], made: dict[str, Any]) -> None:
    data = changed("messages.1.metadata.tool_calls", [{"id": "c", **shape}])
    expected = ToolCall(**{"id": "c", "name": "read", **made})
    assert SLIM.deserialize(data).messages[1].tool_calls == (expected,)


def test_malformed_arguments_survive() -> None:
    asks = Message.assistant("", [ToolCall(id="c", name="read", malformed='{"a": ')])
    result = Message.tool(ToolResult(call_id="c", tool_name="read", content="", is_error=True))
    state = AgentState.empty().with_messages([asks, result])
    assert SLIM.deserialize(json.loads(json.dumps(SLIM.serialize(state)))) == state


def test_a_loaded_state_does_not_share_what_the_caller_may_change() -> None:
    data = document()
    state = SLIM.deserialize(data)
    data["metadata"]["custom_key"] = "changed"
    data["messages"][0]["metadata"]["new"] = 1
    assert state.metadata == {"custom_key": "custom_value"}
    assert state.messages[0].metadata == {}
