"""The envelopes that a client received, by execution. Used by the message list alone."""

from collections.abc import Callable, Mapping
from typing import Any, cast

from msgspec import Struct

from stepwell.journal.envelope import EnvelopeType

Json = dict[str, Any]

CUT_SHORT = ("failed", "cancelled", "stopped")
TERMINAL = ("completed", *CUT_SHORT)
STATUSES = ("idle", "processing", "paused", *TERMINAL)
BIGGEST_COUNT = 2**53 - 1
"""Of those that JavaScript counts exactly."""


def is_text(value: Any) -> bool:
    """Text, maybe empty."""
    return isinstance(value, str)


def is_name(value: Any) -> bool:
    """Text that is not empty."""
    return isinstance(value, str) and value != ""


def is_count(value: Any) -> bool:
    """A whole number that JavaScript can hold."""
    return type(value) is int and 0 <= value <= BIGGEST_COUNT


def is_time(value: Any) -> bool:
    """A span of time; NaN is none."""
    return type(value) in (int, float) and 0 <= value <= BIGGEST_COUNT


def is_status(value: Any) -> bool:
    """A word for a status."""
    return isinstance(value, str) and value in STATUSES


FIELDS: Mapping[str, Mapping[str, Callable[[Any], bool]]] = {
    EnvelopeType.STATUS: {"status": is_status},
    EnvelopeType.STEP_STARTED: {"step_number": is_count},
    EnvelopeType.STEP_COMPLETED: {"step_number": is_count},
    EnvelopeType.TOOL_STARTED: {
        "step_number": is_count,
        "tool_call_id": is_name,
        "tool_name": is_text,
    },
    EnvelopeType.TOOL_COMPLETED: {"tool_call_id": is_name, "tool_name": is_text},
    EnvelopeType.STREAM_CHUNK: {
        "step_number": is_count,
        "chunk_index": is_count,
        "content": is_text,
    },
    EnvelopeType.CONTINUATION: {},
}
"""What a payload must have to be read."""


STEPS = (EnvelopeType.STEP_STARTED, EnvelopeType.STEP_COMPLETED)

LATE_CHUNKS = 32
"""What is late is not very late: all but so many chunks are put together once."""


class Assembled(Struct, frozen=True):
    """A text as far as its first ``used`` chunks tell it."""

    used: int = 0
    next: int = 0
    content: str = ""
    is_whole: bool = False


NOTHING = Assembled()


class Text:
    """The chunks of one response, in order."""

    def __init__(self) -> None:
        self.chunks: list[Json] = []
        self.first: Json | None = None
        self._settled = NOTHING

    def add(self, chunk: Json) -> None:
        """One more chunk came."""
        at = len(self.chunks)
        while at > 0 and place(self.chunks[at - 1]) > place(chunk):
            at -= 1
        self.chunks.insert(at, chunk)
        self.first = first_of(self.first, chunk)
        if at < self._settled.used:
            self._settled = NOTHING

    def assembled(self) -> Assembled:
        """Puts the text together up to the first chunk that is missing; chunk 0 begins it anew."""
        self._settled = _up_to(self.chunks, len(self.chunks) - LATE_CHUNKS, self._settled)
        return _up_to(self.chunks, len(self.chunks), self._settled)

    def since(self, start: Json | None) -> "Text | None":
        """What was said since its step began; none if nothing was."""
        if start is None or self.first is None or place(start) < place(self.first):
            return self
        rest = Text()
        rest.chunks = [chunk for chunk in self.chunks if place(start) < place(chunk)]
        rest.first = rest.chunks[0] if rest.chunks else None
        return rest if rest.chunks else None


def _up_to(chunks: list[Json], end: int, now: Assembled) -> Assembled:
    if end <= now.used:
        return now
    pieces, next, is_whole = [now.content], now.next, now.is_whole
    for chunk in chunks[now.used : end]:
        payload = chunk["payload"]
        if payload["chunk_index"] == 0:
            pieces, next, is_whole = [], 0, False
        if payload["chunk_index"] == next:
            next += 1
            pieces.append(payload["content"])
            is_whole = payload.get("is_complete") is True
    return Assembled(end, next, "".join(pieces), is_whole)


class Run:
    """What came of one execution."""

    def __init__(self, id: str, entry: Json) -> None:
        self.id = id
        self.first = self.last = entry
        self.entries: list[Json] = []
        self.texts: dict[int, Text] = {}

    def beginnings(self) -> dict[int, Json]:
        """Where each step began last: one that another worker begins anew is told anew, unless it
        was done."""
        begun: dict[int, Json] = {}
        done: set[int] = set()
        of_steps = [entry for entry in self.entries if entry["type"] in STEPS]
        for entry in sorted(of_steps, key=place):
            number = entry["payload"]["step_number"]
            if entry["type"] == EnvelopeType.STEP_COMPLETED:
                done.add(number)
            elif number not in done:
                begun[number] = entry
        return begun


class Fold:
    """The first entries of a log, by execution."""

    def __init__(self) -> None:
        self.size = 0
        self.newest = -1
        self.has_ended = False
        self.ranges: list[list[int]] = []
        self.runs: dict[str, Run] = {}

    def take(self, entry: Json) -> None:
        """One more envelope came."""
        self.size += 1
        self._cover(entry["seq"])
        self.newest = max(self.newest, entry["seq"])
        if not is_readable(entry):
            return
        kind, payload = entry["type"], entry["payload"]
        run = self.runs.setdefault(entry["execution_id"], Run(entry["execution_id"], entry))
        run.first = first_of(run.first, entry)
        run.last = max(run.last, entry, key=place)
        if kind == EnvelopeType.STREAM_CHUNK:
            run.texts.setdefault(payload["step_number"], Text()).add(entry)
            return
        run.entries.append(entry)
        if kind == EnvelopeType.STATUS and not is_name(payload.get("parent_execution_id")):
            self.has_ended |= payload["status"] in TERMINAL

    def _cover(self, seq: int) -> None:
        """Adds a seq to the ranges of those that came."""
        ranges = self.ranges
        at = len(ranges)
        while at > 0 and ranges[at - 1][0] > seq:
            at -= 1
        if at > 0 and seq <= ranges[at - 1][1] + 1:
            ranges[at - 1][1] = max(ranges[at - 1][1], seq)
        else:
            ranges.insert(at, [seq, seq])
            at += 1
        if at < len(ranges) and ranges[at - 1][1] + 1 == ranges[at][0]:
            ranges[at - 1][1] = ranges.pop(at)[1]

    def children_of(self, parent: str = "") -> list[Run]:
        """The executions that a parent's calls began; those that a user began if there is none."""
        children = [
            run
            for run in self.runs.values()
            if text_of(run.first["payload"].get("parent_execution_id")) == parent
        ]
        return sorted(children, key=lambda run: place(run.first))

    @property
    def current(self) -> Run | None:
        """The execution that was heard of last."""
        return max(self.children_of(), key=lambda run: place(run.last), default=None)


class Log:
    """Entries are only ever added, so lists share them: each looks at the first of them."""

    def __init__(self, entries: list[Json]) -> None:
        self.entries = entries
        self.places = {entry["id"]: place for place, entry in enumerate(entries)}
        self.fold = Fold()


def is_readable(entry: Json) -> bool:
    """Whether an envelope tells something that can be shown."""
    kind, payload = entry.get("type"), entry.get("payload")
    if not isinstance(kind, str) or kind not in FIELDS or not isinstance(payload, dict):
        return False
    if not is_name(entry.get("execution_id")):
        return False
    given = cast("Json", payload)
    return all(is_fit(given.get(name)) for name, is_fit in FIELDS[kind].items())


def place(entry: Json) -> tuple[int, bytes]:
    """JavaScript compares text by its UTF-16 units."""
    return entry["seq"], entry["id"].encode("utf-16-be", "surrogatepass")


def first_of(one: Json | None, other: Json) -> Json:
    """The one that was sent first."""
    return other if one is None else min(one, other, key=place)


def text_of(value: Any) -> str:
    """The value if it is text, else none."""
    return value if isinstance(value, str) else ""


def mapping_of(value: Any) -> Json:
    """The value if it is a mapping, else an empty one."""
    return cast("Json", value) if isinstance(value, dict) else {}


def mappings_in(value: Any) -> list[Json]:
    """The mappings of a list, if it is one."""
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return [cast("Json", item) for item in items if isinstance(item, dict)]
