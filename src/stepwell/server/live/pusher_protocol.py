"""Reads and writes the messages of the Pusher protocol, version 7. Pure."""

from collections.abc import Mapping
from typing import Any, cast

from msgspec import DecodeError, Struct, json

from stepwell.server.live.live_event import LiveEvent
from stepwell.text import json_bytes, replace_half_characters

OLDEST_PROTOCOL, NEWEST_PROTOCOL = 5, 7


class PusherError(Exception):
    """An error that is sent to the client. Codes 4000 to 4299 close the socket: below 4100 the
    client should not reconnect, from 4200 on it may at once."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def closes(self) -> bool:
        """Whether the socket is closed."""
        return self.code < 4300


class ClientMessage(Struct, frozen=True):
    """A message of a client."""

    event: str
    data: Mapping[str, Any]


def read_message(text: str) -> ClientMessage:
    """Parse a message of a client. Raises ``PusherError`` if it breaks the protocol.

    >>> read_message('{"event":"pusher:ping","data":"{}"}').event
    'pusher:ping'
    """
    message = _parse_mapping(text)
    event = message.get("event")
    if not isinstance(event, str):
        raise PusherError(4301, 'a message is a JSON object with an "event", which is text')
    data = message.get("data")
    if isinstance(data, str):
        data = _parse_mapping(data)
    if not isinstance(data, dict):
        data = {}
    return ClientMessage(event, cast("Mapping[str, Any]", data))


def check_protocol(given: str | None) -> None:
    """Raise ``PusherError`` unless the client's protocol version is supported."""
    if given is None:
        raise PusherError(4008, "no protocol version was given: add ?protocol=7")
    if not given.isascii() or not given.isdigit():
        raise PusherError(4006, f"protocol {given[:20]!r} is no version number")
    if not OLDEST_PROTOCOL <= int(given[:9]) <= NEWEST_PROTOCOL:
        raise PusherError(4007, f"protocol {given[:9]} is not spoken here; version 7 is")


def message(event: str, data: Mapping[str, Any], channel: str | None = None) -> str:
    """Return one of our messages; its data are JSON within JSON.

    >>> message("pusher:pong", {})
    '{"event":"pusher:pong","data":"{}"}'
    """
    fields = {"event": event, "data": json_bytes(data).decode()}
    return json_bytes(fields if channel is None else {**fields, "channel": channel}).decode()


def frame_of(one: LiveEvent, channel: str) -> str:
    """Return an event as a message of its channel; encoded once for all followers."""
    if one.frame is None:
        fields = {"event": one.event.type, "channel": channel, "data": one.envelope.decode()}
        one.frame = json_bytes(fields).decode()
    return one.frame


def _parse_mapping(text: str) -> Mapping[str, Any]:
    try:
        value: Any = json.decode(replace_half_characters(text))
    except (DecodeError, RecursionError):
        raise PusherError(4301, "a message is a JSON object; this is no JSON") from None
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}
