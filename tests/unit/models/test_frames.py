"""From bytes to messages: however the network cuts them, the messages are the same."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import json

from stepwell.errors import ModelError, ModelErrorKind
from stepwell.models.frames import Framing, JsonLines, Lines, ServerSentEvents

BOM = b"\xef\xbb\xbf"


def messages(framing: Framing, *pieces: bytes) -> list[bytes]:
    return [message for piece in pieces for message in framing.feed(piece)] + framing.end()


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(data) + 1) for place in places})
    return [data[a:b] for a, b in zip([0, *ends], [*ends, len(data)], strict=True)]


places = st.lists(st.integers(0, 10_000), max_size=12)
# Bytes that matter to a framing are common, so that every state of it is reached.
bytes_of_streams = st.lists(
    st.sampled_from(
        [
            *(b"data:", b"data: ", b"data", b"event: x", b": hi", b"id: 1", b"retry: 9"),
            *(b"\n", b"\r\n", b"\r", b"\n\n", b"\r\n\r\n", b" ", b"", BOM),
            *(b"{}", b'{"a": 1}', b"[DONE]", "ü🙂".encode(), b"\xff"),
        ]
    ),
    max_size=25,
).map(b"".join)


@given(data=bytes_of_streams, places=places)
@pytest.mark.parametrize("framing", [ServerSentEvents, JsonLines])
def test_any_cuts_give_the_same_messages(
    framing: Callable[[], Framing], data: bytes, places: list[int]
) -> None:
    whole = messages(framing(), data)

    assert messages(framing(), *cut(data, places)) == whole
    assert messages(framing(), *(data[i : i + 1] for i in range(len(data)))) == whole


payloads = st.lists(
    st.dictionaries(st.text(max_size=5), st.text(max_size=8), max_size=3).map(json.encode),
    max_size=6,
)


@given(
    sent=payloads,
    line_end=st.sampled_from([b"\n", b"\r\n"]),
    has_bom=st.booleans(),
    is_cut_short=st.booleans(),
    noise=st.sampled_from([b"", b": keep-alive", b"event: message", b"id: 7", b"retry: 5", b"x"]),
    places=places,
)
def test_what_a_server_sends_is_what_arrives(
    sent: list[bytes],
    line_end: bytes,
    has_bom: bool,
    is_cut_short: bool,
    noise: bytes,
    places: list[int],
) -> None:
    before = noise + line_end if noise else b""
    stream = b"".join(before + b"data: " + data + line_end * 2 for data in sent)
    if is_cut_short:
        stream = stream.removesuffix(line_end * 2)
    stream = (BOM if has_bom else b"") + stream

    assert messages(ServerSentEvents(), *cut(stream, places)) == sent


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"", []),
        (b"\n\n\n", []),
        (b"data: {}\n\n", [b"{}"]),
        (b"data:{}\n\n", [b"{}"]),
        (b"data:  {}\n\n", [b" {}"]),
        (b"data: one\ndata: two\n\n", [b"one\ntwo"]),
        (b"data: one\ndata:\ndata: two\n\n", [b"one\n\ntwo"]),
        (b"event: a\ndata: one\nid: 3\n\n", [b"one"]),
        (b": comment\n\ndata: one\n\n: comment\n\n", [b"one"]),
        (b"event: ping\n\ndata: one\n\n", [b"one"]),
        (b"data: one\n\n\n\ndata: two\n\n", [b"one", b"two"]),
        (b"data: one\r\n\r\ndata: two\r\n\r\n", [b"one", b"two"]),
        (b"data: one\n\ndata: two", [b"one", b"two"]),
        (b"data: one\n\ndata: two\n", [b"one", b"two"]),
        (b"data: one\n\ndata: two\r", [b"one", b"two"]),
        (b"data: one\n\ndat", [b"one"]),
        (BOM + b"data: one\n\n", [b"one"]),
        (BOM + b"data: one", [b"one"]),
        (b"dataset: one\n\ndata: two\n\n", [b"two"]),
        (b" data: one\n\n", []),
        (b"data: \xff\xfe\n\n", [b"\xff\xfe"]),
    ],
)
def test_server_sent_events(stream: bytes, events: list[bytes]) -> None:
    assert messages(ServerSentEvents(), stream) == events


def test_a_byte_order_mark_that_arrives_in_pieces_does_not_hide_the_first_event() -> None:
    assert messages(ServerSentEvents(), b"\xef", b"\xbb", b"\xbfda", b"ta: one\n\n") == [b"one"]


def test_an_event_is_told_as_soon_as_its_blank_line_is_there() -> None:
    events = ServerSentEvents()

    assert events.feed(b"data: one\n") == []
    assert events.feed(b"\ndata: tw") == [b"one"]
    assert events.feed(b"o\r\n") == []
    assert events.feed(b"\r") == []
    assert events.feed(b"\n") == [b"two"]
    assert events.end() == []


@pytest.mark.parametrize(
    ("stream", "documents"),
    [
        (b"", []),
        (b'{"a": 1}\n{"b": 2}\n', [b'{"a": 1}', b'{"b": 2}']),
        (b'{"a": 1}\r\n\r\n{"b": 2}', [b'{"a": 1}', b'{"b": 2}']),
        (b"  \n\t\n{}\n", [b"{}"]),
    ],
)
def test_json_lines(stream: bytes, documents: list[bytes]) -> None:
    assert messages(JsonLines(), stream) == documents


@pytest.mark.parametrize(
    "pieces",
    [
        [b"x" * 11],
        [b"x" * 6, b"x" * 5],
        [b"x" * 11 + b"\n"],
        [b"ok\n" + b"x" * 11],
        [b"ok\n" + b"x" * 11 + b"\nok\n"],
        [b"x" * 6, b"x" * 5 + b"\n"],
        [b"x"] * 11,
    ],
)
def test_a_line_that_is_too_long_is_an_error_however_it_arrives(pieces: list[bytes]) -> None:
    lines = Lines(longest=10)
    with pytest.raises(ModelError, match="more than 10 bytes") as raised:
        [lines.feed(piece) for piece in pieces]

    assert raised.value.kind is ModelErrorKind.TOO_LARGE
    assert raised.value.retryable is False


def test_a_line_may_be_as_long_as_the_bound() -> None:
    lines = Lines(longest=10)

    assert lines.feed(b"x" * 10) == []
    assert lines.feed(b"\n" + b"y" * 10 + b"\n") == [b"x" * 10, b"y" * 10]
    assert lines.rest() == b""


@pytest.mark.parametrize("piece", [b"data: " + b"x" * 65_536 + b"\n", b"x" * 65_536, b"data:\n"])
def test_an_event_without_an_end_is_an_error_and_not_a_memory_leak(piece: bytes) -> None:
    events = ServerSentEvents()
    data = piece * max(1, 65_536 // len(piece))
    with pytest.raises(ModelError) as raised:
        [events.feed(data) for _ in range(300)]

    assert raised.value.kind is ModelErrorKind.TOO_LARGE


def test_many_events_are_not_one_long_event() -> None:
    events = ServerSentEvents()
    event = b"data: " + b"x" * 65_536 + b"\n\n"

    assert sum(len(events.feed(event)) for _ in range(300)) == 300
