"""Turns the envelopes of a session into the messages that a chat shows, as user interfaces do.

The twin of ``ui/message_list.js``, for tests and terminals: same functions, same messages. A list
is a value. What is shown depends on which envelopes came, never on their order.
"""

import math
from collections.abc import Sequence
from typing import Any, cast

from msgspec import Struct, field
from msgspec.structs import replace

from stepwell.broadcasting.summaries import args_summary
from stepwell.testing.message_fold import (
    Fold,
    Json,
    Log,
    is_count,
    is_name,
    is_readable,
    mapping_of,
    mappings_in,
    text_of,
)
from stepwell.testing.message_view import View, new_block, new_status, new_text, settle


class MessageList(Struct, frozen=True, kw_only=True):
    """What a client knows of a session; made and read by the functions of this module."""

    log: Log = field(default_factory=lambda: Log([]))
    size: int = 0
    history: tuple[Json, ...] = ()
    steps: frozenset[str] = frozenset()
    through: int = -1
    said: tuple[tuple[float, Json], ...] = ()
    last: str = "idle"
    ignored: int = 0
    """How many envelopes could not be read."""


def empty_list() -> MessageList:
    """A list for a session of which nothing was missed yet.

    >>> messages(said(empty_list(), "Hello", "m1"))
    [{'id': 'm1', 'role': 'user', 'content': 'Hello'}]
    """
    return from_history([], 0)


def received(list: MessageList, envelope: Any) -> MessageList:
    """With an envelope. What can't be read is ignored and counted; nothing is raised."""
    if not isinstance(envelope, dict):
        return replace(list, ignored=list.ignored + 1)
    entry = cast("Json", envelope)
    if not is_name(entry.get("id")) or not is_count(entry.get("seq")):
        return replace(list, ignored=list.ignored + 1)
    if entry["seq"] <= list.through or list.log.places.get(entry["id"], math.inf) < list.size:
        return list
    is_tip = list.size == len(list.log.entries)
    log = list.log if is_tip else Log(list.log.entries[: list.size])
    log.places[entry["id"]] = list.size
    log.entries.append(entry)
    ignored = list.ignored + (not is_readable(entry))
    return replace(list, log=log, size=list.size + 1, ignored=ignored)


def said(list: MessageList, text: str, id: str) -> MessageList:
    """With what the user typed, shown until the stored messages have it."""
    message = {"id": id, "role": "user", "content": text}
    return replace(list, said=(*list.said, (newest(list) + 0.5, message)))


def messages(list: MessageList) -> list[Json]:
    """What to show, in order."""
    fold = _folded(list)
    current = fold.current
    parts: Sequence[tuple[float, Sequence[Json]]] = [
        (run.first["seq"], View(fold, run, run is not current, list.steps).shown)
        for run in fold.children_of()
    ]
    parts = [*parts, *((seq, (message,)) for seq, message in list.said)]
    live = [message for _, shown in sorted(parts, key=lambda part: part[0]) for message in shown]
    return [*list.history, *live]


def status(list: MessageList) -> str:
    """The status of the newest execution."""
    fold = _folded(list)
    return View(fold, fold.current, False, list.steps).word if fold.current else list.last


def newest(list: MessageList) -> int:
    """The newest seq that came."""
    return max(list.through, _folded(list).newest)


def missing(list: MessageList) -> list[tuple[int, int]]:
    """What never came, as pairs of first and last seq."""
    fold = _folded(list)
    if len(fold.seqs) == fold.newest - list.through:
        return []
    seqs = sorted(fold.seqs)
    ends = [seqs[0] - 1 if seqs and list.through < 0 else list.through, *seqs]
    return [(end + 1, seq - 1) for end, seq in zip(ends, seqs, strict=False) if end + 1 < seq]


def needs_history(list: MessageList, can_replay: bool = True) -> bool:
    """Whether to fetch the stored messages: an execution ended, or what is missing can't be sent
    again."""
    return _folded(list).has_ended or (not can_replay and bool(missing(list)))


def reconciled(list: MessageList, stored: Any, through: int | None = None) -> MessageList:
    """With the stored messages in place of all up to ``through``, which is ``newest(list)`` before
    they were fetched."""
    point = newest(list) if through is None else max(through, list.through)
    fresh = from_history(stored, point)
    users = [message for message in fresh.history if message["role"] == "user"]
    ids = {user["id"] for user in users}
    last_words = {user["content"] for user in users[-len(list.said) :]}
    later = [entry for entry in list.log.entries[: list.size] if entry["seq"] > point]
    word = status(list)
    return replace(
        fresh,
        log=Log(later),
        size=len(later),
        said=tuple(
            (seq, message)
            for seq, message in list.said
            if seq > point and message["id"] not in ids and message["content"] not in last_words
        ),
        last="idle" if word == "processing" else word,
        ignored=list.ignored,
    )


def from_history(stored: Any, through: int = -1) -> MessageList:
    """A list from stored messages; ``through`` is the seq up to which they tell all, -1 if that is
    unknown.

    >>> messages(from_history([{"id": "m1", "role": "assistant", "content": "Four."}]))
    [{'id': 'm1', 'role': 'assistant', 'content': 'Four.', 'incomplete': False}]
    """
    history: list[Json] = []
    blocks: Json = {}
    steps: set[str] = set()

    def add_block(id: str, name: str, summary: str) -> None:
        blocks[id] = new_block(id, name, summary, "unknown")
        history.append(blocks[id])

    for message in mappings_in(stored):
        id, content = text_of(message.get("id")), text_of(message.get("content"))
        metadata = mapping_of(message.get("metadata"))
        # Messages of a step are named execution:step:number; these are not shown live as well.
        steps.add(id[: id.rindex(":")] if ":" in id else id)
        match message.get("role"):
            case "user":
                history.append({"id": id, "role": "user", "content": content})
            case "assistant":
                if content:
                    history.append(new_text(id, content, False))
                for call in mappings_in(metadata.get("tool_calls")):
                    summary = args_summary(mapping_of(call.get("arguments")))
                    add_block(text_of(call.get("id")), text_of(call.get("name")), summary)
            case "tool":
                call_id = text_of(metadata.get("tool_call_id"))
                if call_id not in blocks:
                    add_block(call_id, text_of(metadata.get("tool_name")), "")
                settle(blocks[call_id], content, metadata.get("is_error") is True)
            case "info" | "notification":
                history.append(new_status(id, content, error=False, folded=True))
            case _:
                pass
    return MessageList(history=tuple(history), steps=frozenset(steps), through=through)


def _folded(list: MessageList) -> Fold:
    """Only new entries are looked at, unless the list is an old one."""
    fold = Fold() if list.log.fold.size > list.size else list.log.fold
    for entry in list.log.entries[fold.size : list.size]:
        fold.take(entry)
    return fold
