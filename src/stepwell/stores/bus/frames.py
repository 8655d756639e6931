"""What travels between processes: frames of topics and deltas, small enough for one message."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from msgspec import Struct, json
from msgspec.structs import replace

from stepwell.sessions.bus import Delta

Item = TypeVar("Item", str, Delta)


class Frame(Struct, frozen=True, array_like=True):
    """One message of a bus. ``everything`` says that any topic may have news."""

    sender: str
    topics: tuple[str, ...] = ()
    deltas: tuple[Delta, ...] = ()
    everything: bool = False


def encode_frames(frame: Frame, max_bytes: int) -> list[bytes]:
    """Encode a frame as JSON, split into as many as are needed to keep to that size.

    >>> encode_frames(Frame("me", ("a", "b")), 7500)
    [b'["me",["a","b"],[],false]']
    """
    whole = json.encode(frame)
    if len(whole) <= max_bytes:
        return [whole]
    room = max_bytes - len(json.encode(Frame(frame.sender)))
    return [
        *(json.encode(Frame(frame.sender, tuple(some))) for some in _groups(frame.topics, room)),
        *(
            json.encode(Frame(frame.sender, deltas=tuple(some)))
            for some in _groups(_cut(frame.deltas, room), room)
        ),
        *([json.encode(Frame(frame.sender, everything=True))] if frame.everything else []),
    ]


def _groups(items: Iterable[Item], room: int) -> Iterator[list[Item]]:
    """Groups of items whose encoded size is at most ``room`` together."""
    some: list[Item] = []
    size = 0
    for item in items:
        more = len(json.encode(item)) + 1
        if some and size + more > room:
            yield some
            some, size = [], 0
        some.append(item)
        size += more
    if some:
        yield some


def _cut(deltas: Iterable[Delta], room: int) -> Iterator[Delta]:
    """The same deltas, long ones in pieces of at most ``room`` bytes."""
    for delta in deltas:
        if len(json.encode(delta)) + 1 <= room:
            yield delta
            continue
        # A character takes 6 bytes at most: \u0000.
        piece = max(1, (room - len(json.encode(replace(delta, text=""))) - 8) // 6)
        for start in range(0, len(delta.text), piece):
            text = delta.text[start : start + piece]
            is_last = start + piece >= len(delta.text)
            yield replace(
                delta,
                offset=delta.offset + start,
                text=text,
                is_complete=delta.is_complete and is_last,
            )
