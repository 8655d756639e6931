"""The messages of the Pusher protocol, version 7: what is read of a client's, and how ours are
written. Pure."""

from collections.abc import Mapping
from typing import Any, cast

from msgspec import DecodeError, Struct, json

from stepwell.journal.json_text import json_text, whole_characters
from stepwell.server.live.feed import LiveEvent

OLDEST_PROTOCOL, NEWEST_PROTOCOL = 5, 7


class PusherError(Exception):
    """What a client is told that did something wrong. Codes of 4000 to 4299 close the socket: below
    4100 it should not come again, from 4200 on it may at once."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def closes(self) -> bool:
        """Whether the socket is closed."""
        return self.code < 4300


class ClientMessage(Struct, frozen=True):
    """What a client said."""

    event: str
    data: Mapping[str, Any]


def read_message(text: str) -> ClientMessage:
    """What a client said. Raises ``PusherError`` if it is none of the protocol.

    >>> read_message('{"event":"pusher:ping","data":"{}"}').event
    'pusher:ping'
    """
    message = _mapping(text)
    event = message.get("event")
    if not isinstance(event, str):
        raise PusherError(4301, 'a message is a JSON object with an "event", which is text')
    data = message.get("data")
    if isinstance(data, str):
        data = _mapping(data)
    if not isinstance(data, dict):
        data = {}
    return ClientMessage(event, cast("Mapping[str, Any]", data))


def checked_protocol(given: str | None) -> None:
    """That a client speaks a version of the protocol that is spoken here."""
    if given is None:
        raise PusherError(4008, "no protocol version was given: add ?protocol=7")
    if not given.isascii() or not given.isdigit():
        raise PusherError(4006, f"protocol {given[:20]!r} is no version number")
    if not OLDEST_PROTOCOL <= int(given[:9]) <= NEWEST_PROTOCOL:
        raise PusherError(4007, f"protocol {given[:9]} is not spoken here; version 7 is")


def message(event: str, data: Mapping[str, Any], channel: str | None = None) -> str:
    """One of our messages; its data are JSON within JSON.

    >>> message("pusher:pong", {})
    '{"event":"pusher:pong","data":"{}"}'
    """
    told = {"event": event, "data": json_text(data).decode()}
    whole = told if channel is None else {**told, "channel": channel}
    return json_text(whole).decode()


def frame_of(one: LiveEvent, channel: str) -> str:
    """An event of a session's channel; written once for all who follow it."""
    if one.frame is None:
        told = {"event": one.event.type, "channel": channel, "data": one.envelope.decode()}
        one.frame = json_text(told).decode()
    return one.frame


def _mapping(text: str) -> Mapping[str, Any]:
    try:
        value: Any = json.decode(whole_characters(text))
    except (DecodeError, RecursionError):
        raise PusherError(4301, "a message is a JSON object; this is no JSON") from None
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}
