"""The standard streams, made such that commands need not care what they are."""

import os
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import click


def make_usable() -> None:
    """Streams that are closed (``>&-``) become ones that lead nowhere, and letters that they can't
    hold are written out: an answer that was paid for is not lost for one letter."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream: Any = getattr(sys, name)
        if stream is None:
            nowhere = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115 - stays open
            setattr(sys, name, nowhere)
        elif isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="surrogateescape" if mode == "r" else "backslashreplace")


def as_utf8(text: str, what: str) -> str:
    """What was typed or piped, read as UTF-8, whatever the terminal is set to.

    >>> as_utf8("h\\udcc3\\udca9llo", "the prompt")
    'héllo'
    """
    try:
        return text.encode(errors="surrogateescape").decode()
    except UnicodeError:
        raise click.UsageError(f"{what} is not valid UTF-8.") from None
