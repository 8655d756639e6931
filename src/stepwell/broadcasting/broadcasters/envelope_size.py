"""Truncates envelopes for transports that limit their size."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from stepwell.text import truncate

SHORTEST_CLIP = 128
"""Texts up to this length are never truncated: they are names, words and times."""


def fit_envelope(
    envelope: Mapping[str, Any], fits: Callable[[Mapping[str, Any]], bool]
) -> dict[str, Any]:
    """Return the envelope if it fits, else with its longest payload texts truncated and
    ``truncated`` set.

    Ids and short texts stay as they are. If truncated texts are not enough, the lists of the
    payload and the arguments of a call lose their last entries; all other fields stay. An envelope
    that still does not fit is returned at its smallest.

    >>> small = fit_envelope({"payload": {"content": "a" * 500}}, lambda it: len(str(it)) < 250)
    >>> small["payload"]["truncated"], small["payload"]["content"][-3:]
    (True, '...')
    """
    whole = dict(envelope)
    if fits(whole):
        return whole

    def clip(length: int, entries: int | None = None) -> dict[str, Any]:
        payload = _clip(envelope.get("payload", {}), length, entries)
        return {**whole, "payload": {**payload, "truncated": True}}

    if fits(clip(SHORTEST_CLIP)):
        longest = _longest_text(envelope.get("payload", {}))
        return clip(_largest(SHORTEST_CLIP, longest, lambda length: fits(clip(length))))
    most = _most_entries(envelope.get("payload", {}))
    return clip(
        SHORTEST_CLIP, _largest(0, most, lambda entries: fits(clip(SHORTEST_CLIP, entries)))
    )


def _largest(low: int, high: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number that fits; the smallest if none does.

    Searches from below with growing steps, since trying a number costs as much as it is large.
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


def _clip(value: Any, length: int, entries: int | None, *, in_args: bool = False) -> Any:
    match value:
        case str():
            return truncate(value, length)
        case Mapping():
            items = list(cast("Mapping[str, Any]", value).items())
            if in_args:
                return {
                    name: _clip(part, length, entries, in_args=True)
                    for name, part in items[:entries]
                }
            return {
                name: part
                if name.endswith("_id")
                else _clip(part, length, entries, in_args=name == "args")
                for name, part in items
            }
        case list() | tuple():
            parts = cast("Sequence[Any]", value)[:entries]
            return [_clip(part, length, entries, in_args=in_args) for part in parts]
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
