"""Whatever was said and whatever the bounds: a slim snapshot is JSON, stays within them, parts no
call from its result, and loads into a valid history that is shown the same again.
"""

import contextlib
import json
from collections.abc import Sequence
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepwell import AgentState, Message, ToolCall
from stepwell.errors import SerializationError
from stepwell.messages import FilePart, ImagePart, Role, TextPart, ThinkingPart, ToolResult
from stepwell.serialization.slim import SlimAgentStateSerializer
from stepwell.serialization.slim_config import SlimSerializationConfig
from stepwell.serialization.slim_values import LONGEST_NAME
from tests.examples import examples

IMAGE_DATA = "QkFTRTY0REFUQQ=="
texts = st.text(max_size=12) | st.sampled_from(["", "🙂" * 30, "é" * 40, "\ud800", "..."])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
notes = st.dictionaries(texts | st.sampled_from(["tool_calls", "source"]), values, max_size=2)
attachments = st.sampled_from(
    [
        ImagePart(data=IMAGE_DATA, media_type="image/png"),
        ImagePart(url=f"data:image/png;base64,{IMAGE_DATA}"),
        FilePart(data=IMAGE_DATA, name="a.pdf", media_type="application/pdf"),
    ]
)
arguments = st.dictionaries(texts, values, max_size=3)


@st.composite
def exchanges(draw: st.DrawFn) -> list[Message]:
    """A piece of conversation: the user, an answer, or parallel calls with their results."""
    match draw(st.integers(0, 2)):
        case 0:
            parts = draw(st.lists(texts.map(TextPart) | attachments, max_size=3))
            return [Message.user(parts, metadata=draw(notes))]
        case 1:
            parts = (ThinkingPart("hidden"), TextPart(draw(texts)))
            return [Message.of(Role.ASSISTANT, parts, metadata=draw(notes))]
        case _:
            ids = [f"c{n}" for n in range(draw(st.integers(1, 4)))]
            calls = [ToolCall(id=i, name="read", arguments=draw(arguments)) for i in ids]
            results = [
                Message.tool(
                    ToolResult(
                        call_id=i,
                        tool_name="read",
                        content=draw(texts),
                        is_error=draw(st.booleans()),
                    )
                )
                for i in draw(st.permutations(ids))
            ]
            asking = Message.of(Role.ASSISTANT, (TextPart(draw(texts)), *calls))
            return [asking, *results]


histories = st.lists(exchanges(), max_size=6).map(lambda parts: [m for p in parts for m in p])
configs = st.builds(
    SlimSerializationConfig,
    max_messages=st.integers(0, 12),
    max_content_length=st.integers(0, 20),
    include_tool_results=st.booleans(),
    redact_tool_args=st.booleans(),
)
thorough = settings(
    max_examples=examples(120), deadline=None, suppress_health_check=list(HealthCheck)
)


def check_valid(messages: Sequence[Message]) -> None:
    open_calls: set[str] = set()
    for message in messages:
        if message.tool_result is not None:
            assert message.tool_result.call_id in open_calls
            open_calls.remove(message.tool_result.call_id)
        else:
            assert not open_calls
        open_calls.update(asked.id for asked in message.tool_calls)
    assert not open_calls


def check_roles(state: AgentState) -> None:
    """A message is what its role says, whatever document it came from."""
    for message in state.messages:
        assert (message.tool_result is not None) == message.is_tool()
        assert message.is_assistant() or not message.tool_calls


def newest_group(messages: Sequence[Message]) -> int:
    """How many messages the newest one can't be parted from, itself among them."""
    size = 1
    while messages and messages[-size].is_tool():
        size += 1
    return size


def check_texts(value: Any, limit: int) -> None:
    if isinstance(value, str):
        assert len(value) <= limit + 3
    elif isinstance(value, dict):
        for item in value.values():
            check_texts(item, limit)
    elif isinstance(value, list):
        for item in value:
            check_texts(item, limit)


@thorough
@given(history=histories, metadata=notes, config=configs)
def test_a_snapshot_is_within_its_bounds_and_loads_into_a_valid_history(
    history: list[Message], metadata: dict[str, Any], config: SlimSerializationConfig
) -> None:
    check_valid(history)
    state = AgentState.empty().with_messages(history).with_metadata(metadata)
    serializer = SlimAgentStateSerializer(config)
    text = json.dumps(serializer.serialize(state), allow_nan=False, ensure_ascii=False)
    document = json.loads(text.encode())

    shown = document["messages"]
    most, limit = config.max_messages, config.max_content_length
    assert len(shown) <= max(most, newest_group(history) if most else 0)
    assert bool(shown) == bool(history and most)
    assert IMAGE_DATA not in text
    check_texts(document["metadata"], limit)
    for entry in shown:
        is_omitted = entry["role"] == "tool" and not config.include_tool_results
        assert is_omitted or len(entry["content"]) <= limit + 3
        check_texts(entry["metadata"], max(limit, LONGEST_NAME))
        is_calling = entry["role"] == "assistant" and entry.get("has_calls", True)
        for call in (entry["metadata"].get("tool_calls") or ()) if is_calling else ():
            check_texts(call.get("arguments", {}), limit)
            assert ("arguments" in call) is not config.redact_tool_args

    back = serializer.deserialize(document)
    check_valid(back.messages)
    kept = history[len(history) - len(shown) :]
    assert [m.id for m in back.messages] == [m.id for m in kept]
    assert [m.role for m in back.messages] == [m.role for m in kept]
    assert [[c.id for c in m.tool_calls] for m in back.messages] == [
        [c.id for c in m.tool_calls] for m in kept
    ]
    assert serializer.serialize(back) == document


@thorough
@given(history=histories, config=configs)
def test_as_many_messages_are_kept_as_fit(
    history: list[Message], config: SlimSerializationConfig
) -> None:
    state = AgentState.empty().with_messages(history)
    kept = len(SlimAgentStateSerializer(config).serialize(state)["messages"])
    older = history[: len(history) - kept]
    if older and config.max_messages:
        assert kept + newest_group(older) > config.max_messages


@thorough
@given(data=st.data())
def test_a_damaged_document_is_an_error_or_a_state_never_anything_else(data: st.DataObject) -> None:
    history = data.draw(histories)
    serializer = SlimAgentStateSerializer()
    document = serializer.serialize(AgentState.empty().with_messages(history))
    place: Any = document
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
            break
        place = place[key]
    if data.draw(st.booleans()):
        del place[key]
    else:
        place[key] = data.draw(values)
    with contextlib.suppress(SerializationError):
        check_roles(serializer.deserialize(document))
