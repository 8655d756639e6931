"""What clients send, checked before it is read: JSON data that a state can hold, files that are
data or on the web, and a kept state that is one."""

import base64
import binascii
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import unquote_to_bytes

from msgspec import DecodeError, Struct, json

from stepwell.errors import ConfigurationError
from stepwell.protocols.client_stream import ClientInputError
from stepwell.state import AgentState

MAX_DEPTH = 100
"""So deep may lists and objects be nested; deeper ones could not be stored or sent."""

_PERCENT_ESCAPES = 10_000
"""In one data URL; each takes about a microsecond, while others wait."""

Sent = Mapping[str, Any] | bytes | str
"""What a client sent, as JSON or decoded."""


def read_json(sent: Sent) -> Mapping[str, Any]:
    """The object that was sent. Raises ``ClientInputError``, which names the field.

    >>> read_json('{"id": 1}')
    {'id': 1}
    """
    try:
        data: Any = json.decode(sent) if isinstance(sent, bytes | str) else sent
    except (DecodeError, UnicodeError, RecursionError) as error:
        raise ClientInputError(f"the input is not JSON: {error}") from None
    if not isinstance(data, Mapping):
        raise ClientInputError(f"the input is a {type(data).__name__}; it must be a JSON object")
    check_json(data)
    return cast("Mapping[str, Any]", data)


def check_json(value: Any, where: str = "") -> None:
    """That a state can hold the value: JSON data, not too deep, in whole characters.

    >>> check_json({"parts": [{"text": "half \\ud83d"}]}, "messages[0]")
    Traceback (most recent call last):
    stepwell.protocols.client_stream.ClientInputError: messages[0].parts[0].text holds half a \
character (a lone surrogate)
    """
    left: list[tuple[Any, _Place, int]] = [(value, _Place(where), 0)]
    while left:
        item, place, depth = left.pop()
        if depth > MAX_DEPTH:
            raise ClientInputError(f"{place!s:.200} is nested more than {MAX_DEPTH} levels deep")
        match item:
            case None | bool() | float():
                pass
            case str():
                if not _is_whole(item):
                    raise _half_character(str(place))
            case int():
                if not -(2**63) <= item < 2**64:
                    raise ClientInputError(f"{place} is a whole number of more than 64 bits")
            case Mapping():
                members = cast("Mapping[Any, Any]", item).items()
                for key, member in members:
                    if not isinstance(key, str):
                        raise ClientInputError(f"{place or 'the input'} has a key that is no text")
                    if not _is_whole(key):
                        raise _half_character(f"a key of {place or 'the input'}")
                    left.append((member, _Place(key, place), depth + 1))
            case list() | tuple():
                members = enumerate(cast("list[Any]", item))
                left += [(member, _Place(i, place), depth + 1) for i, member in members]
            case _:
                raise ClientInputError(f"{place} is a {type(item).__name__}, which is no JSON")


class _Place(Struct, frozen=True):
    """Where a value is; written out only for an error."""

    last: str | int
    within: "_Place | None" = None

    def __bool__(self) -> bool:
        return bool(str(self))

    def __str__(self) -> str:
        if self.within is None:
            return str(self.last)
        if isinstance(self.last, int):
            return f"{self.within}[{self.last}]"
        return f"{self.within}.{self.last:.80}" if self.within else f"{self.last:.80}"


def _is_whole(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _half_character(place: str) -> ClientInputError:
    return ClientInputError(f"{place} holds half a character (a lone surrogate)")


def check_previous(previous: Any) -> None:
    """That what is given as the kept state is one."""
    if not isinstance(previous, AgentState | None):
        raise ConfigurationError(
            f"previous is {previous!r:.80}; give the AgentState that was kept, or None"
        )


def url_and_data(url: str, where: str) -> tuple[str | None, str | None]:
    """The address of a file on the web, or the data in a data URL; nothing else is fetched."""
    if url.startswith("data:"):
        return None, _data_of(url, where)
    if url.startswith(("https://", "http://")):
        return url, None
    raise ClientInputError(f"{where} is {url!r:.80}; it must begin with data:, https:// or http://")


def checked_base64(data: str, where: str) -> str:
    """The data, if they are base64."""
    try:
        base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ClientInputError(f"{where} holds no base64 data ({error})") from None
    return data


def _data_of(url: str, where: str) -> str:
    head, comma, data = url.partition(",")
    if not comma:
        raise ClientInputError(f"{where} is a data URL without data: {url!r:.80}")
    if head.endswith(";base64"):
        return checked_base64(data, where)
    if data.count("%") > _PERCENT_ESCAPES:
        raise ClientInputError(
            f"{where} is a data URL with more than {_PERCENT_ESCAPES} percent escapes; send the "
            "data as base64"
        )
    return base64.b64encode(unquote_to_bytes(data)).decode()
