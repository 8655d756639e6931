"""Splits the bytes of a streamed response into messages, however the bytes are chunked."""

from typing import Protocol

from stepwell.errors import ModelError, ModelErrorKind

LONGEST_LINE = 8 * 1024 * 1024
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Framing(Protocol):
    """Splits a stream of bytes into messages."""

    def feed(self, data: bytes) -> list[bytes]:
        """Add bytes and return the messages that they complete."""
        ...

    def end(self) -> list[bytes]:
        """Return a last message that has no terminator."""
        ...


class Lines:
    """Splits a stream into lines. Raises ``ModelError`` for a line above the limit.

    >>> lines = Lines()
    >>> lines.feed(b"one\\ntw"), lines.feed(b"o\\r\\n\\r"), lines.feed(b"\\n")
    ([b'one'], [b'two'], [b''])
    """

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._longest = longest
        self._begun: list[bytes] = []
        self._length = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Add bytes and return the lines that they complete, without line ends."""
        if b"\n" not in data:
            self._keep(data)
            return []
        *whole, rest = data.split(b"\n")
        if self._begun:
            self._keep(whole[0])
            whole[0] = self.rest()
        if len(data) > self._longest and any(len(line) > self._longest for line in whole):
            raise too_long("line", self._longest)
        self._keep(rest)
        return [line[:-1] if line.endswith(b"\r") else line for line in whole]

    def rest(self) -> bytes:
        """Remove and return the unfinished line."""
        line = b"".join(self._begun)
        self._begun.clear()
        self._length = 0
        return line

    def _keep(self, data: bytes) -> None:
        if not data:
            return
        self._length += len(data)
        if self._length > self._longest:
            raise too_long("line", self._longest)
        self._begun.append(data)


class ServerSentEvents:
    """Reads the data of server-sent events. Ignores names, ids and comments, since every provider
    repeats the event's name in its data.

    >>> events = ServerSentEvents()
    >>> events.feed(b": hello\\nevent: x\\ndata: {}\\n\\ndata: [DO"), events.feed(b"NE]\\n\\n")
    ([b'{}'], [b'[DONE]'])
    """

    def __init__(self) -> None:
        self._lines = Lines()
        self._data: list[bytes] = []
        self._length = 0
        self._is_first = True

    def feed(self, data: bytes) -> list[bytes]:
        """Add bytes and return the events that they complete."""
        events: list[bytes] = []
        for line in self._lines.feed(data):
            if line:
                self._keep(line)
            elif self._data:
                events.append(self._event())
        return events

    def end(self) -> list[bytes]:
        """Return the last event if it lacks its blank line. A truncated one has invalid JSON."""
        self._keep(self._lines.rest().removesuffix(b"\r"))
        return [self._event()] if self._data else []

    def _keep(self, line: bytes) -> None:
        if self._is_first:
            self._is_first = False
            line = line.removeprefix(BYTE_ORDER_MARK)
        if line.startswith(b"data:"):
            self._data.append(line[6:] if line[5:6] == b" " else line[5:])
            self._length += len(line)
            if self._length > LONGEST_LINE:
                raise too_long("message", LONGEST_LINE)

    def _event(self) -> bytes:
        event = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
        self._data.clear()
        self._length = 0
        return event


class JsonLines:
    """Reads one JSON document per line, as some servers stream.

    >>> JsonLines().feed(b'{"a": 1}\\n\\n{"b"')
    [b'{"a": 1}']
    """

    def __init__(self) -> None:
        self._lines = Lines()

    def feed(self, data: bytes) -> list[bytes]:
        """Add bytes and return the documents that they complete."""
        return [line for line in self._lines.feed(data) if line.strip()]

    def end(self) -> list[bytes]:
        """Return the last line if it lacks its line end."""
        rest = self._lines.rest()
        return [rest] if rest.strip() else []


def too_long(what: str, bound: int) -> ModelError:
    """Return the error for a stream that would exhaust memory."""
    return ModelError(
        f"the stream has a {what} of more than {bound} bytes, the limit",
        kind=ModelErrorKind.TOO_LARGE,
    )
