"""Turns the envelopes of a session into the messages that a chat shows, as user interfaces do.

The twin of ``ui/message_list.js``, for tests and terminals: same functions, same messages, but for
numbers that only one of the languages has. A list is a value. What is shown depends on which
envelopes came, never on their order.
"""

import math
import re
from collections.abc import Collection, Sequence
from typing import Any, cast

from msgspec import Struct, field
from msgspec.structs import replace

from stepwell.journal.summaries import args_summary
from stepwell.testing.message_fold import (
    CUT_SHORT,
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

_OF_STEP = re.compile(r"([^:]*):(?:([0-9]{1,15}):)?", re.DOTALL)
MOST_AHEAD = 1_000_000
"""What is further ahead is ignored, or one broken number would make a list deaf."""


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
    entries = list.log.entries
    start = list.through if list.through >= 0 or not list.size else entries[0]["seq"]
    if 0 <= start < entry["seq"] - MOST_AHEAD:
        return replace(list, ignored=list.ignored + 1)
    ignored = list.ignored + (not is_readable(entry))
    is_tip = list.size == len(entries)
    if not is_tip and entries[list.size] is entry:  # called a second time with the same
        return replace(list, size=list.size + 1, ignored=ignored)
    log = list.log if is_tip else Log(entries[: list.size])
    log.places[entry["id"]] = list.size
    log.entries.append(entry)
    return replace(list, log=log, size=list.size + 1, ignored=ignored)


def said(list: MessageList, text: str, id: str) -> MessageList:
    """With what the user typed, shown until the stored messages have it."""
    message = {"id": id, "role": "user", "content": text}
    return replace(list, said=(*list.said, (newest(list) + 0.5, message)))


def messages(list: MessageList) -> list[Json]:
    """What to show, in order."""
    fold = _folded(list)
    current = fold.current
    views = {
        run.id: (run.first["seq"], View(fold, run, run is not current, list.steps))
        for run in fold.children_of()
    }
    word = "paused" if current is None else views[current.id][1].word
    parts: Sequence[tuple[float, Sequence[Json]]] = [
        *((seq, view.shown) for seq, view in views.values()),
        *((seq, (message,)) for seq, message in list.said),
    ]
    live = [message for _, shown in sorted(parts, key=lambda part: part[0]) for message in shown]
    go_on = {message["id"] for message in live if message["role"] == "tool"}
    history = [m for m in list.history if m.get("state") != "waiting" or m["id"] not in go_on]
    if word != "paused":  # the run goes on, so what it waited for was answered
        history = [{**m, "state": "done"} if m.get("state") == "waiting" else m for m in history]
    return [*history, *live]


def status(list: MessageList) -> str:
    """The status of the newest execution."""
    fold = _folded(list)
    return View(fold, fold.current, False, list.steps).word if fold.current else list.last


def newest(list: MessageList) -> int:
    """The newest seq that came."""
    return max(list.through, _folded(list).newest)


def missing(list: MessageList) -> list[tuple[int, int]]:
    """What never came, as pairs of first and last seq."""
    ranges = _folded(list).ranges
    start = ranges[0][0] - 1 if ranges and list.through < 0 else list.through
    ends = [start, *(last for _, last in ranges)]
    gaps = [(end + 1, first - 1) for end, (first, _) in zip(ends, ranges, strict=False)]
    return [(first, last) for first, last in gaps if first <= last]


def needs_history(list: MessageList, can_replay: bool = True) -> bool:
    """Whether to fetch the stored messages: an execution ended, or what is missing can't be sent
    again."""
    return _folded(list).has_ended or (not can_replay and bool(missing(list)))


def reconciled(
    list: MessageList, stored: Any, through: int | None = None, over: Collection[str] = ()
) -> MessageList:
    """With the stored messages in place of all up to ``through``, which is ``newest(list)`` before
    they were fetched. What the user typed stays until it is stored: under its id, or in the same
    words as a message that is new. ``over`` names executions whose stored messages are all there,
    whatever came after ``through``."""
    point = max(through, list.through) if type(through) is int else newest(list)
    fresh = from_history(stored, point)
    old = {message["id"] for message in list.history if message["role"] == "user"}
    users = [message for message in fresh.history if message["role"] == "user"]
    ids = {user["id"] for user in users}
    typed = {message["id"] for _, message in list.said}
    words = [user["content"] for user in users if user["id"] not in old | typed]
    unsaid: tuple[tuple[float, Json], ...] = ()
    for seq, message in list.said:
        if message["id"] in ids:
            continue
        if message["content"] in words:
            words.remove(message["content"])  # one stored message is one typed message
        else:
            unsaid = (*unsaid, (seq, message))
    gone = tuple(over)  # what an envelope names may be anything, also what no set can hold
    later = [
        # Of those that are over it is only known that they came.
        {"id": entry["id"], "seq": entry["seq"]} if entry.get("execution_id") in gone else entry
        for entry in list.log.entries[: list.size]
        if entry["seq"] > point
    ]
    word = status(list)
    return replace(
        fresh,
        log=Log(later),
        size=len(later),
        said=unsaid,
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

    def add_block(id: str, name: str, summary: str, of: str) -> None:
        found = _OF_STEP.match(of)
        execution = found[1] if found else ""
        step = int(found[2]) if found and found[2] else None
        blocks[id] = new_block(id, name, summary, "unknown", execution, step)
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
                    summary = call.get("summary")
                    if not isinstance(summary, str):
                        summary = args_summary(mapping_of(call.get("arguments")))
                    add_block(text_of(call.get("id")), text_of(call.get("name")), summary, id)
            case "tool":
                call_id = text_of(metadata.get("tool_call_id"))
                if call_id not in blocks:
                    add_block(call_id, text_of(metadata.get("tool_name")), "", id)
                settle(blocks[call_id], content, metadata.get("is_error") is True, metadata)
                if metadata.get("waiting") is True:
                    blocks[call_id]["state"] = "waiting"
            case "info" | "notification":
                # That of an execution which ended so stays to be seen.
                word = metadata.get("status")
                is_end = isinstance(word, str) and word in CUT_SHORT
                history.append(new_status(id, content, error=word == "failed", folded=not is_end))
            case _:
                pass
    return MessageList(history=tuple(history), steps=frozenset(steps), through=through)


def _folded(list: MessageList) -> Fold:
    """Only new entries are looked at, unless the list is an old one."""
    fold = Fold() if list.log.fold.size > list.size else list.log.fold
    for entry in list.log.entries[fold.size : list.size]:
        fold.take(entry)
    return fold
