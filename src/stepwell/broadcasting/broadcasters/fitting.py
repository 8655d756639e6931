"""Envelopes made small enough for transports that take only so many bytes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

SHORTEST_CLIP = 128
"""Texts up to this length are never clipped: they are names, words and times."""

_CUT = "\u2026"


def fitted(
    envelope: Mapping[str, Any], fits: Callable[[Mapping[str, Any]], bool]
) -> dict[str, Any]:
    """The envelope if it fits; else with its longest payload texts clipped, and ``truncated`` set.

    Ids and short texts stay as they are. Where clipped texts are not enough, the lists of the
    payload and the arguments of a call lose their last entries; no other field goes. What still
    does not fit is given back at its smallest.

    >>> small = fitted({"payload": {"content": "a" * 500}}, lambda it: len(str(it)) < 250)
    >>> small["payload"]["truncated"], small["payload"]["content"][-3:]
    (True, 'aa…')
    """
    whole = dict(envelope)
    if fits(whole):
        return whole

    def clipped(length: int, entries: int | None = None) -> dict[str, Any]:
        payload = _clipped(envelope.get("payload", {}), length, entries)
        return {**whole, "payload": {**payload, "truncated": True}}

    if fits(clipped(SHORTEST_CLIP)):
        longest = _longest_text(envelope.get("payload", {}))
        return clipped(_largest(SHORTEST_CLIP, longest, lambda length: fits(clipped(length))))
    most = _most_entries(envelope.get("payload", {}))
    return clipped(
        SHORTEST_CLIP, _largest(0, most, lambda entries: fits(clipped(SHORTEST_CLIP, entries)))
    )


def _largest(low: int, high: int, fits: Callable[[int], bool]) -> int:
    """The largest number that fits; the smallest if none does.

    It comes from below with growing steps, since to try a number costs as much as it is large.
    """
    step = 1
    while low + step < high and fits(low + step):
        step *= 2
    high = min(high, low + step)
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _clipped(value: Any, length: int, entries: int | None, *, in_args: bool = False) -> Any:
    match value:
        case str():
            return value if len(value) <= length else value[: length - 1] + _CUT
        case Mapping():
            items = list(cast("Mapping[str, Any]", value).items())
            if in_args:
                return {
                    name: _clipped(part, length, entries, in_args=True)
                    for name, part in items[:entries]
                }
            return {
                name: part
                if name.endswith("_id")
                else _clipped(part, length, entries, in_args=name == "args")
                for name, part in items
            }
        case list() | tuple():
            parts = cast("Sequence[Any]", value)[:entries]
            return [_clipped(part, length, entries, in_args=in_args) for part in parts]
        case _:
            return value


def _longest_text(value: Any) -> int:
    return (
        len(value) if isinstance(value, str) else max(map(_longest_text, _parts(value)), default=0)
    )


def _most_entries(value: Any) -> int:
    parts = _parts(value)
    return max(len(parts), *map(_most_entries, parts)) if parts else 0


def _parts(value: Any) -> Sequence[Any]:
    match value:
        case Mapping():
            return list(cast("Mapping[str, Any]", value).values())
        case list() | tuple():
            return cast("Sequence[Any]", value)
        case _:
            return ()
