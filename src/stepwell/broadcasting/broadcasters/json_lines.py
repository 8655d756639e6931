"""Envelopes as lines of JSON in a file: to keep them, to follow them with ``tail -f``.

Each line is ``{"channel": ..., "envelope": ...}``, written in one go at the end of the file, so
that several processes can share it.
"""

import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Self, cast

import msgspec
from msgspec import Struct

from stepwell.errors import ConfigurationError
from stepwell.journal.json_text import json_text

_APPENDING = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)

logger = logging.getLogger("stepwell.broadcasting")


class JsonLine(Struct, frozen=True):
    """One line: an envelope and the channel it was sent on."""

    channel: str
    envelope: dict[str, Any]


class JsonLinesBroadcaster:
    """Appends envelopes to a file, which is given by its path or as an open file.

    A file given by its path is opened with the first envelope and closed by ``close()``, or at the
    end of a ``with`` block. Where a crash left half a line at its end, the next one starts on a
    line of its own.

    >>> import io
    >>> written = io.StringIO()
    >>> JsonLinesBroadcaster(written).broadcast("agent.42", {"type": "agent.status"})
    >>> written.getvalue()
    '{"channel":"agent.42","envelope":{"type":"agent.status"}}\\n'
    """

    def __init__(self, file: str | os.PathLike[str] | IO[str] | IO[bytes]) -> None:
        if isinstance(file, str | os.PathLike):
            self._path, self._file = _checked_path(file), None
        else:
            self._path, self._file = None, _checked_file(file)
        self._descriptor: int | None = None
        self._lock = threading.Lock()

    def broadcast(self, channel: str, envelope: Mapping[str, Any], /) -> None:
        """Append it. Raises ``OSError`` if it can't be written."""
        line = json_text({"channel": channel, "envelope": dict(envelope)}) + b"\n"
        with self._lock:
            if self._path is not None:
                self._append(self._path, line)
            elif self._file is not None:
                _write(self._file, line)

    def close(self) -> None:
        """Close the file that was opened; one that was given open is its owner's to close."""
        with self._lock:
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _append(self, path: Path, line: bytes) -> None:
        if self._descriptor is None:
            self._descriptor = os.open(path, _APPENDING, 0o600)  # a run's words are private
        if not _ends_a_line(self._descriptor):
            line = b"\n" + line
        written = os.write(self._descriptor, line)
        if written < len(line):
            raise OSError(f"{path}: only {written} of {len(line)} bytes were written")


def read_json_lines(
    path: str | os.PathLike[str], on_torn: Callable[[int, str], None] | None = None
) -> Iterator[JsonLine]:
    """The lines of a file, in order.

    A line that is not whole, as a crash leaves it, is skipped: ``on_torn`` is told its number and
    what is wrong with it; without ``on_torn`` that is logged.
    """

    def log(number: int, why: str) -> None:
        logger.warning("%s, line %d is skipped: %s", path, number, why)

    report = on_torn or log
    with Path(path).open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                read = msgspec.json.decode(line, type=JsonLine)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                report(number, str(error))
                continue
            yield read


def _checked_path(given: str | os.PathLike[str]) -> Path:
    path = Path(given)
    if not path.parent.is_dir():
        raise ConfigurationError(
            f"JsonLinesBroadcaster: the folder {path.parent} does not exist; make it before"
        )
    if not os.fspath(given) or path.is_dir():
        raise ConfigurationError(
            f"JsonLinesBroadcaster: {os.fspath(given)!r} is no file; give the path of one, such as "
            "'run.jsonl'"
        )
    return path


def _checked_file(given: IO[str] | IO[bytes]) -> IO[str] | IO[bytes]:
    if not callable(getattr(given, "write", None)):
        raise ConfigurationError(
            f"JsonLinesBroadcaster was given {given!r:.80}; give the path of a file, or an open one"
        )
    return given


def _ends_a_line(descriptor: int) -> bool:
    if os.fstat(descriptor).st_size == 0:  # also a pipe's
        return True
    os.lseek(descriptor, -1, os.SEEK_END)
    return os.read(descriptor, 1) == b"\n"


def _write(file: IO[str] | IO[bytes], line: bytes) -> None:
    if hasattr(file, "encoding"):
        cast(IO[str], file).write(line.decode())
    else:
        cast(IO[bytes], file).write(line)
    file.flush()
