"""Any turn that can be recorded is replayed as it was."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell import (
    FinishReason,
    Message,
    ModelError,
    ModelRequest,
    ModelResponse,
    ModelSettings,
    TextDelta,
    ThinkingDelta,
    ToolCall,
    Usage,
)
from stepwell.errors import ErrorType, ModelErrorKind
from stepwell.messages import FilePart, History, ImagePart, Role, TextPart, ThinkingPart, ToolResult
from stepwell.models import (
    CachedContext,
    ResponseEnd,
    ResponseFormat,
    StreamPart,
    ThinkingEffort,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    ToolSchema,
    UsageReport,
)
from stepwell.testing import CassetteModel
from stepwell.testing.cassette_turn import differences, matching_key
from stepwell.testing.redaction import Redaction
from tests.examples import examples


class PartsModel:
    """Streams one script after the other; an error is raised where it stands."""

    name = "parts"

    def __init__(self, *scripts: Sequence[StreamPart | Exception]) -> None:
        self.scripts = list(scripts)

    async def respond(self, request: ModelRequest) -> ModelResponse:
        *_, end = [part async for part in self.stream(request)]
        return end.response

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        for part in self.scripts.pop(0):
            await asyncio.sleep(0)
            if isinstance(part, Exception):
                raise part
            yield part


async def drained(model: Any, request: ModelRequest) -> tuple[list[StreamPart], ModelError | None]:
    """What was delivered, and the error that ended it if one did."""
    parts: list[StreamPart] = []
    try:
        async for part in model.stream(request):
            parts.append(part)  # noqa: PERF401 - what came before the error counts
    except ModelError as error:
        return parts, error
    return parts, None


def facts_of(error: ModelError | None) -> dict[str, Any]:
    assert error is not None
    return {"text": str(error), **vars(error)}


texts = st.text(max_size=12)
names = st.text("abcdefgh_", min_size=1, max_size=6)
numbers = st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
mappings = st.dictionaries(texts, values, max_size=3)
maybe = st.none() | texts
calls = st.builds(
    ToolCall, id=texts, name=names, arguments=mappings, malformed=maybe, signature=maybe
)
thoughts = st.builds(ThinkingPart, texts, maybe, maybe, maybe)
message_parts = st.one_of(
    st.builds(TextPart, texts),
    st.builds(ImagePart, url=maybe, data=maybe, media_type=maybe),
    st.builds(FilePart, url=maybe, data=maybe, media_type=maybe, name=maybe),
    thoughts,
    calls,
    st.builds(ToolResult, call_id=texts, tool_name=names, content=texts, is_error=st.booleans()),
)
messages = st.builds(
    Message,
    role=st.sampled_from(Role),
    parts=st.lists(message_parts, max_size=3).map(tuple),
    id=texts,
    metadata=mappings,
)
formats = st.none() | st.builds(
    ResponseFormat, schema=st.none() | mappings, name=names, strict=st.booleans()
)
requests = st.builds(
    ModelRequest,
    messages=st.lists(messages, max_size=3).flatmap(
        lambda said: st.sampled_from([tuple(said), said, History.of(said)])
    ),
    context=st.builds(
        CachedContext, messages=st.lists(messages, max_size=2).map(tuple), response_format=formats
    ),
    tools=st.lists(
        st.builds(
            ToolSchema, name=names, description=texts, parameters=mappings.map(MappingProxyType)
        ),
        max_size=2,
    ).map(tuple),
    response_format=formats,
    instruction=st.none() | messages,
    settings=st.builds(
        ModelSettings,
        model=st.none() | names,
        temperature=st.none() | st.floats(0, 2),
        max_tokens=st.none() | st.integers(min_value=1),
        stop=st.lists(texts, max_size=2).map(tuple),
        tool_choice=st.none() | names,
        parallel_tool_calls=st.none() | st.booleans(),
        thinking=st.none() | st.sampled_from(ThinkingEffort),
        seed=st.none() | st.integers(),
        extra_body=mappings,
        extra_headers=st.dictionaries(names, texts, max_size=2),
    ),
    seconds_left=st.none() | numbers,
)
counts = st.integers(0, 10**12)
usages = st.builds(
    Usage,
    input_tokens=counts,
    output_tokens=counts,
    cached_tokens=counts,
    cache_write_tokens=counts,
    reasoning_tokens=counts,
)
responses = st.builds(
    ModelResponse,
    text=texts,
    tool_calls=st.lists(calls, max_size=3).map(tuple),
    thinking=st.lists(thoughts, max_size=2).map(tuple),
    finish_reason=st.none() | st.sampled_from(FinishReason),
    usage=usages,
    cost=numbers,
    model=maybe,
    request_id=maybe,
)
errors = st.builds(
    ModelError,
    texts,
    kind=st.none() | st.sampled_from(ModelErrorKind),
    error_type=st.none() | st.sampled_from(ErrorType),
    retryable=st.none() | st.booleans(),
    retry_after=st.none() | numbers,
    status=st.none() | st.integers(100, 599),
    request_id=maybe,
    provider_text=maybe,
    usage=st.none() | usages,
    cost=numbers,
)
indices = st.integers(0, 3)
stream_parts = st.one_of(
    st.builds(TextDelta, texts),
    st.builds(ThinkingDelta, texts),
    st.builds(ToolCallStart, index=indices, id=texts, name=names),
    st.builds(ToolCallDelta, index=indices, arguments=texts),
    st.builds(ToolCallEnd, index=indices, call=calls),
    st.builds(UsageReport, usages),
)
turns = st.lists(
    st.tuples(
        requests,
        st.none() | st.lists(stream_parts, max_size=6),
        responses | errors,
    ),
    min_size=1,
    max_size=3,
)


async def taken(model: Any, request: ModelRequest, *, streams: bool) -> Any:
    """What came of a turn, in a form that can be compared."""
    if streams:
        parts, error = await drained(model, request)
        return parts, None if error is None else facts_of(error)
    try:
        return await model.respond(request)
    except ModelError as error:
        return facts_of(error)


@settings(deadline=None, max_examples=examples(60))
@given(turns)
def test_any_turn_is_replayed_as_it_was_recorded(turns: list[Any]) -> None:
    async def play(model: Any) -> list[Any]:
        return [
            await taken(model, request, streams=parts is not None) for request, parts, _ in turns
        ]

    scripts = [
        [*(parts or ()), ResponseEnd(end) if isinstance(end, ModelResponse) else end]
        for _, parts, end in turns
    ]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "turns.json"
        recorded = asyncio.run(play(CassetteModel(path, PartsModel(*scripts), mode="record")))
        replayed = asyncio.run(play(CassetteModel(path, mode="replay")))

    live = asyncio.run(play(PartsModel(*scripts)))
    assert recorded == live
    assert replayed == live


@settings(deadline=None, max_examples=examples(60))
@given(mappings, mappings)
def test_two_requests_are_different_turns_if_and_only_if_a_difference_can_be_shown(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    for first, second in ((one, other), (one, dict(reversed(one.items())))):
        found = list(differences(first, second))

        assert bool(found) == (matching_key(first) != matching_key(second))


@given(
    st.lists(st.sampled_from(["sk-", "abc123", "hun", "ter2", "[removed]", " ", "Bearer ", "x"])),
    st.sampled_from([(), ("hunter2",), ("hunter2", "er2[removed]")]),
)
def test_pieces_lose_together_what_the_whole_loses(
    pieces: list[str], secrets: tuple[str, ...]
) -> None:
    redaction = Redaction(secrets)
    kept = redaction.pieces(pieces)

    assert "".join(kept) == redaction.text("".join(pieces))
    assert len(kept) == len(pieces)
