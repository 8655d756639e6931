"""Writes envelopes as lines of JSON to a file, to keep them or to follow them with ``tail -f``.

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
from stepwell.text import json_bytes

_APPENDING = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)

logger = logging.getLogger("stepwell.broadcasting")


class JsonLine(Struct, frozen=True):
    """One line: an envelope and the channel it was sent on."""

    channel: str
    envelope: dict[str, Any]


class JsonLinesBroadcaster:
    """Appends envelopes to a file, given by its path or as an open file.

    A file given by its path is opened at the first envelope and closed by ``close()``, or at the
    end of a ``with`` block. After half a line that a crash left, the next envelope starts a new
    line.

    >>> import io
    >>> written = io.StringIO()
    >>> JsonLinesBroadcaster(written).broadcast("agent.42", {"type": "agent.status"})
    >>> written.getvalue()
    '{"channel":"agent.42","envelope":{"type":"agent.status"}}\\n'
    """

    def __init__(self, file: str | os.PathLike[str] | IO[str] | IO[bytes]) -> None:
        if isinstance(file, str | os.PathLike):
            self._path, self._file = _check_path(file), None
        else:
            self._path, self._file = None, _check_file(file)
        self._descriptor: int | None = None
        self._lock = threading.Lock()

    def broadcast(self, channel: str, envelope: Mapping[str, Any], /) -> None:
        """Append an envelope. Raises ``OSError`` if it can't be written."""
        line = json_bytes({"channel": channel, "envelope": dict(envelope)}) + b"\n"
        with self._lock:
            if self._path is not None:
                self._append(self._path, line)
            elif self._file is not None:
                _write(self._file, line)

    def close(self) -> None:
        """Close the file if it was opened here; a file that was given open is left open."""
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
            self._descriptor = os.open(path, _APPENDING, 0o600)  # what a run says is private
        if not _ends_a_line(self._descriptor):
            line = b"\n" + line
        written = os.write(self._descriptor, line)
        if written < len(line):
            raise OSError(f"{path}: only {written} of {len(line)} bytes were written")


def read_json_lines(
    path: str | os.PathLike[str], on_torn: Callable[[int, str], None] | None = None
) -> Iterator[JsonLine]:
    """Yield the lines of a file in order.

    A line that is not whole, as a crash leaves it, is skipped: ``on_torn`` is called with its
    number and the error; without ``on_torn`` both are logged."""

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


def _check_path(given: str | os.PathLike[str]) -> Path:
    path = Path(given)
    if not path.parent.is_dir():
        raise ConfigurationError(
            f"JsonLinesBroadcaster: the folder {path.parent} does not exist; create it first"
        )
    if not os.fspath(given) or path.is_dir():
        raise ConfigurationError(
            f"JsonLinesBroadcaster: {os.fspath(given)!r} is not a file; give a path, such as "
            "'run.jsonl'"
        )
    return path


def _check_file(given: IO[str] | IO[bytes]) -> IO[str] | IO[bytes]:
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
