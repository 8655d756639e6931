"""Validates what clients send: JSON data that a state can hold, files as data or on the web."""

import base64
import binascii
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import unquote_to_bytes

from msgspec import DecodeError, Struct, json

from stepwell.errors import ConfigurationError
from stepwell.protocols.client_stream import ClientInputError
from stepwell.state import AgentState
from stepwell.text import HALF_CHARACTER, is_encodable

MAX_DEPTH = 100
"""The nesting depth of lists and objects; deeper ones could not be stored or sent."""

_PERCENT_ESCAPES = 10_000
"""The most in one data URL; each blocks the event loop for about a microsecond."""

Sent = Mapping[str, Any] | bytes | str
"""A client's input, as JSON or decoded."""


def read_json(sent: Sent) -> Mapping[str, Any]:
    """Return the object that was sent. Raises ``ClientInputError``, which names the field.

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
    """Raise ``ClientInputError`` unless a state can hold the value: JSON data, not too deep,
    without half characters.

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
                if not is_encodable(item):
                    raise _half_character(str(place))
            case int():
                if not -(2**63) <= item < 2**64:
                    raise ClientInputError(f"{place} is a whole number of more than 64 bits")
            case Mapping():
                members = cast("Mapping[Any, Any]", item).items()
                for key, member in members:
                    if not isinstance(key, str):
                        raise ClientInputError(f"{place or 'the input'} has a key that is not text")
                    if not is_encodable(key):
                        raise _half_character(f"a key of {place or 'the input'}")
                    left.append((member, _Place(key, place), depth + 1))
            case list() | tuple():
                members = enumerate(cast("list[Any]", item))
                left += [(member, _Place(i, place), depth + 1) for i, member in members]
            case _:
                raise ClientInputError(f"{place} is a {type(item).__name__}, which is not JSON")


class _Place(Struct, frozen=True):
    """The path to a value; formatted only for an error."""

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


def _half_character(place: str) -> ClientInputError:
    return ClientInputError(f"{place} holds {HALF_CHARACTER}")


def check_previous(previous: Any) -> None:
    """Raise ``ConfigurationError`` unless it is an ``AgentState`` or None."""
    if not isinstance(previous, AgentState | None):
        raise ConfigurationError(
            f"previous is {previous!r:.80}; give the AgentState that was kept, or None"
        )


def url_and_data(url: str, where: str) -> tuple[str | None, str | None]:
    """Return the address of a file on the web, or the data of a data URL."""
    if url.startswith("data:"):
        return None, _data_of(url, where)
    if url.startswith(("https://", "http://")):
        return url, None
    raise ClientInputError(f"{where} is {url!r:.80}; it must begin with data:, https:// or http://")


def check_base64(data: str, where: str) -> str:
    """Return the data. Raises ``ClientInputError`` if it is not base64."""
    try:
        base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ClientInputError(f"{where} is not base64 ({error})") from None
    return data


def _data_of(url: str, where: str) -> str:
    head, comma, data = url.partition(",")
    if not comma:
        raise ClientInputError(f"{where} is a data URL without data: {url!r:.80}")
    if head.endswith(";base64"):
        return check_base64(data, where)
    if data.count("%") > _PERCENT_ESCAPES:
        raise ClientInputError(
            f"{where} is a data URL with more than {_PERCENT_ESCAPES} percent escapes; send the "
            "data as base64"
        )
    return base64.b64encode(unquote_to_bytes(data)).decode()
