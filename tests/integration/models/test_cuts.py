"""Answers cut off at every byte: each is a typed error or the whole answer, never less than that.

In process for every offset (for some of them unless the run is long), over real sockets for a
sample. The same streams in other pieces, with other line ends and with comments between are read
the same.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stepwell.errors import ModelError, ModelErrorKind
from stepwell.messages import Message
from stepwell.models import ModelRequest, ModelResponse, ResponseEnd, StreamPart
from stepwell.models.provider import ProviderModel
from stepwell.models.providers import KNOWN_PROVIDERS
from tests.examples import every, examples
from tests.servers.byte_server import Answer, ByteServer, Ending
from tests.servers.record import MODELS, RECORDINGS, WIRES
from tests.servers.weather_agent import PROVIDERS, model_at

SECONDS = 30
REQUEST = ModelRequest(messages=(Message.user("hi"),))
CUT_KINDS = {
    ModelErrorKind.DISCONNECTED,
    ModelErrorKind.INCOMPLETE_STREAM,
    ModelErrorKind.MALFORMED_RESPONSE,
    ModelErrorKind.EMPTY_RESPONSE,
}
# Its last event, which tells only more usage, may be missed: nothing says that it is to come.
NO_LAST_WORD = {"extra_usage_after_the_end.sse"}


def recordings(pattern: str) -> list[Any]:
    """The recordings whose name fits, each as a test parameter that is named after it."""
    files = sorted(file for wire in WIRES for file in (RECORDINGS / wire).glob(pattern))
    return [pytest.param(file, id=f"{file.parent.name}-{file.name}") for file in files]


def bytes_of(file: Path) -> bytes:
    """A recording."""
    return file.read_bytes()


class GivenAnswer:
    """What of an HTTP response is looked at: the body comes in pieces, then may break off."""

    status_code = 200

    def __init__(self, pieces: Iterable[bytes], media_type: str, fault: Exception | None) -> None:
        self.headers = {"content-type": media_type}
        self._pieces = pieces
        self._fault = fault

    async def aiter_bytes(self) -> AsyncIterator[bytes]:
        """The body."""
        for piece in self._pieces:
            yield piece
        if self._fault is not None:
            raise self._fault

    async def aclose(self) -> None:
        """Nothing is open."""


class GivenClient:
    """An HTTP client that answers without a network, so that every byte can be tried in time."""

    def __init__(self) -> None:
        self.pieces: Iterable[bytes] = ()
        self.media_type = "text/event-stream"
        self.fault: Exception | None = None
        self.requests = 0

    def build_request(self, *_: object, **__: object) -> None:
        """What is asked does not matter."""

    async def send(self, *_: object, **__: object) -> GivenAnswer:
        """The answer that was given."""
        self.requests += 1
        return GivenAnswer(self.pieces, self.media_type, self.fault)

    def model(self, wire: str) -> ProviderModel:
        """A model that is asked through this client."""
        client = cast("httpx2.AsyncClient", self)
        provider = replace(KNOWN_PROVIDERS[PROVIDERS[wire]], prices=None)  # looked up in no time
        return provider.model(MODELS[wire], api_key="test-key", client=client)


async def told(model: ProviderModel) -> tuple[list[StreamPart], ModelError | None]:
    """The parts of a stream, and the error that ended it. Every other exception travels."""
    parts: list[StreamPart] = []
    try:
        async for part in model.stream(REQUEST):
            parts.append(part)  # noqa: PERF401 - what came before the error counts
    except ModelError as error:
        return parts, error
    return parts, None


def answered(parts: list[StreamPart]) -> ModelResponse | None:
    """The response of a stream that ended with one."""
    return parts[-1].response if parts and isinstance(parts[-1], ResponseEnd) else None


def check(
    cut: tuple[list[StreamPart], ModelError | None], whole: tuple[list[StreamPart], Any]
) -> None:
    """What was told of a cut stream is what was told of the whole one, or begins so and fails."""
    parts, error = cut
    if error is None:
        assert parts == whole[0]
        return
    assert answered(parts) is None
    assert parts == whole[0][: len(parts)]
    if whole[1] is None or error.kind is not whole[1].kind:
        assert error.kind in CUT_KINDS
    assert error.kind is not None
    assert error.error_type
    assert str(error)


# Streams, in process


@pytest.mark.parametrize("file", recordings("*.sse"))
async def test_a_stream_cut_at_any_byte_is_whole_or_a_typed_error(file: Path):
    body = bytes_of(file)
    client = GivenClient()
    model = client.model(file.parent.name)
    client.pieces = (body,)
    whole = await told(model)
    end = body.index(b"finishReason") if file.name in NO_LAST_WORD else len(body)
    async with asyncio.timeout(SECONDS):
        sizes = range(0, end, every(7))
        for size in sizes:
            client.pieces = (body[:size],)
            check(await told(model), whole)
    assert client.requests == len(sizes) + 1


@pytest.mark.parametrize("file", recordings("*.sse"))
async def test_a_stream_that_breaks_off_is_whole_or_disconnected(file: Path):
    body = bytes_of(file)
    client = GivenClient()
    model = client.model(file.parent.name)
    client.pieces = (body,)
    whole = await told(model)
    client.fault = httpx2.RemoteProtocolError("peer closed connection")
    async with asyncio.timeout(SECONDS):
        for size in range(0, len(body), 23):
            client.pieces = (body[:size],)
            check(await told(model), whole)


@pytest.mark.parametrize("file", recordings("*.json"))
async def test_a_whole_answer_cut_at_any_byte_is_a_typed_error(file: Path):
    body = bytes_of(file).rstrip()
    client = GivenClient()
    client.media_type = "application/json"
    model = client.model(file.parent.name)
    async with asyncio.timeout(SECONDS):
        for size in range(0, len(body), every(3)):
            client.pieces = (body[:size],)
            with pytest.raises(ModelError) as plain:
                await model.respond(REQUEST)
            assert plain.value.kind in CUT_KINDS
            assert plain.value.retryable
            if size % 5 == 0:  # some servers answer a streamed request with one JSON document
                parts, error = await told(model)
                assert parts == []
                assert error is not None
                assert error.kind is plain.value.kind


# Other pieces, other line ends


RICH = [
    RECORDINGS / "chat" / "doc_parallel_tool_calls.sse",
    RECORDINGS / "chat" / "extra_crlf.sse",
    RECORDINGS / "responses" / "doc_reasoning_and_tool_calls.sse",
    RECORDINGS / "anthropic" / "doc_thinking_and_tool_use.sse",
    RECORDINGS / "gemini" / "doc_thoughts_and_function_calls.sse",
]
EVERY_RICH = pytest.mark.parametrize("file", RICH, ids=lambda file: f"{file.parent.name}")


def told_at_once(file: Path, pieces: Iterable[bytes]) -> list[StreamPart]:
    """The parts of a stream that comes in these pieces."""

    async def listen() -> list[StreamPart]:
        client = GivenClient()
        client.pieces = pieces
        parts, error = await told(client.model(file.parent.name))
        assert error is None
        return parts

    return asyncio.run(listen())


@given(data=st.data())
@settings(max_examples=examples(60), deadline=None)
@EVERY_RICH
def test_the_pieces_in_which_a_stream_arrives_do_not_matter(file: Path, data: st.DataObject):
    body = file.read_bytes()
    places = st.lists(st.integers(0, len(body)), max_size=40)
    cuts = [0, *sorted(data.draw(places)), len(body)]
    pieces = [body[start:end] for start, end in pairwise(cuts)]
    assert told_at_once(file, pieces) == told_at_once(file, [body])


@EVERY_RICH
def test_a_stream_that_comes_byte_by_byte_is_the_same(file: Path):
    body = file.read_bytes()
    pieces = [body[index : index + 1] for index in range(len(body))]
    assert told_at_once(file, pieces) == told_at_once(file, [body])


@EVERY_RICH
@pytest.mark.parametrize("size", [1, 2, 3, 5, 1000])
def test_line_ends_marks_and_comments_do_not_matter(file: Path, size: int):
    body = file.read_bytes()
    plain = body.replace(b"\r\n", b"\n")
    noisy = plain.replace(b"\n\n", b"\nretry: 10\n\n: still here\n\n\n")
    for other in (plain, plain.replace(b"\n", b"\r\n"), b"\xef\xbb\xbf" + plain, noisy):
        pieces = [other[start : start + size] for start in range(0, len(other), size)]
        assert told_at_once(file, pieces) == told_at_once(file, [body])


# Streams, over sockets


@EVERY_RICH
@pytest.mark.parametrize("ending", [Ending.COMPLETE, Ending.EOF, Ending.RESET])
async def test_a_stream_cut_on_the_wire_is_whole_or_a_typed_error(file: Path, ending: Ending):
    body, wire = bytes_of(file), file.parent.name
    offsets = [*range(0, len(body) - 30, 61), *range(len(body) - 30, len(body))]
    async with asyncio.timeout(SECONDS), ByteServer(Answer.sse(body)) as server:
        base_url = f"{server.url}/v1" if wire in ("chat", "responses") else server.url
        model = model_at(base_url, wire)
        whole = await told(model)
        assert answered(whole[0]) is not None
        for size in offsets:
            server.script(Answer.sse(body).cut_at(size, ending))
            check(await told(model), whole)
            assert len(server.requests) == 1
