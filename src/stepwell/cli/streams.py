"""Makes the standard streams safe to use: closed streams, other encodings, closed pipes."""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import click


def make_usable() -> None:
    """Redirect closed streams (``>&-``) to the null device, and escape characters that a stream
    can't encode: one character must not lose an answer that was paid for."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream: Any = getattr(sys, name)
        if stream is None:
            nowhere = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115 - stays open
            setattr(sys, name, nowhere)
        elif isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="surrogateescape" if mode == "r" else "backslashreplace")


def as_utf8(text: str, what: str) -> str:
    """Decode input as UTF-8, whatever the encoding of the terminal is.

    >>> as_utf8("h\\udcc3\\udca9llo", "the prompt")
    'héllo'
    """
    try:
        return text.encode(errors="surrogateescape").decode()
    except UnicodeError:
        raise click.UsageError(f"{what} is not valid UTF-8.") from None


@contextmanager
def while_read() -> Generator[None]:
    """Leave the block silently when the reader closes the pipe, and discard later output. For
    commands whose exit code is part of their result."""
    try:
        yield
    except BrokenPipeError:
        forget_output()


def forget_output() -> None:
    """Discard buffered output that can't be written; the interpreter would flush it at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
