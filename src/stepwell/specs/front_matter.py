"""Reads text files with YAML front matter, the format of agents and skills: fields, then a body.

Front matter that is not quite YAML is repaired if possible, with a note. Only the named file is
opened, never a path from its content.
"""

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from stepwell.specs.front_matter_repair import add_quotes, fields_by_line
from stepwell.specs.yaml import DefinitionError, NotYamlError, parse_yaml
from stepwell.text import HALF_CHARACTER

__all__ = ["DefinitionError", "Document", "LinkOutError", "read_document", "read_file"]

MAX_FILE_BYTES = 1024 * 1024
MAX_FRONT_MATTER = 256 * 1024

_NOTHING = 0
_NOFOLLOW = getattr(os, "O_NOFOLLOW", _NOTHING)
_CLOEXEC = getattr(os, "O_CLOEXEC", _NOTHING)
_DIRECTORY = os.O_RDONLY | _CLOEXEC | getattr(os, "O_DIRECTORY", _NOTHING)
_READ = (
    os.O_RDONLY | _CLOEXEC | getattr(os, "O_NONBLOCK", _NOTHING) | getattr(os, "O_NOCTTY", _NOTHING)
)
"""Does not block on pipes."""

_BLANK = re.compile(r"\s+")
_BYTE_ORDER_MARKS = {
    b"\xff\xfe\x00\x00": "UTF-32",
    b"\x00\x00\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}


class LinkOutError(DefinitionError):
    """Raised when a file is a link out of its directory."""


class Document(Struct, frozen=True, kw_only=True):
    """The fields of the front matter, the text after it, and notes on repairs."""

    fields: Mapping[str, Any] = {}
    body: str = ""
    notes: tuple[str, ...] = ()
    has_front_matter: bool = False


def read_file(
    path: str | Path, *, limit: int = MAX_FILE_BYTES, beneath: str | Path | None = None
) -> str:
    """Read a regular UTF-8 file of at most 1 MiB. Raises ``DefinitionError``.

    With ``beneath``, links out of that directory are refused, even those created meanwhile.
    """
    try:
        opened = os.open(path, _READ) if beneath is None else _open_beneath(beneath, path)
        data = _regular_bytes(opened, limit + 1)
    except DefinitionError:
        raise
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise DefinitionError(f"can't be read: {reason}") from None
    if len(data) > limit:
        raise DefinitionError(f"is larger than {limit:,} bytes")
    return _decode(data)


def _open_beneath(directory: str | Path, path: str | Path) -> int:
    """Open the file name by name from the directory, so that no link is followed that was created
    after the check."""
    root, real = os.path.realpath(directory), os.path.realpath(path)
    names = Path(real).relative_to(root).parts if Path(real).is_relative_to(root) else ()
    if not names:
        raise LinkOutError(f"is a link out of {directory}, which is not followed")
    here = os.open(root, _DIRECTORY)
    try:
        for name in names[:-1]:
            below = os.open(name, _DIRECTORY | _NOFOLLOW, dir_fd=here)
            os.close(here)
            here = below
        return os.open(names[-1], _READ | _NOFOLLOW, dir_fd=here)
    finally:
        os.close(here)


def _regular_bytes(descriptor: int, most: int) -> bytes:
    """Read the first bytes of an open file and close it."""
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise DefinitionError("is not a regular file")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(most)
    finally:
        os.close(descriptor)


def _decode(data: bytes) -> str:
    for mark, encoding in _BYTE_ORDER_MARKS.items():
        if data.startswith(mark):
            raise DefinitionError(f"is {encoding}; save it as UTF-8")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DefinitionError(
            f"byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8", line=line
        ) from None
    return _check_characters(text)


def read_document(text: str) -> Document:
    """Split a text into fields and body; raises ``DefinitionError``.

    Without front matter there are no fields, and the whole text is the body.

    >>> document = read_document("---\\nname: reviewer\\ntools: Read, Grep\\n---\\nYou review.")
    >>> dict(document.fields), document.body
    ({'name': 'reviewer', 'tools': 'Read, Grep'}, 'You review.')
    """
    text = _check_characters(text).removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    start = _after_comments(text)
    first, _, rest = text[start:].partition("\n")
    if first.rstrip() == "+++":
        raise DefinitionError(
            "the front matter is TOML; write YAML between lines of ---", line=_line(text, start)
        )
    if first.rstrip() != "---":
        return Document(body=text)
    opened = _line(text, start)
    matter, body = _split(rest, opened)
    if len(matter) > MAX_FRONT_MATTER:
        raise DefinitionError(f"the front matter is longer than {MAX_FRONT_MATTER:,} characters")
    notes = () if not text[:start].strip() else ("skipped a comment before the front matter",)
    fields, repairs = _fields(matter, opened + 1)
    return Document(fields=fields, body=body, notes=notes + repairs, has_front_matter=True)


def _check_characters(text: str) -> str:
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise DefinitionError("contains a NUL character; this is not a text file", line=line)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        raise DefinitionError(f"contains {HALF_CHARACTER}", line=line) from None
    return text


def _after_comments(text: str) -> int:
    """Return the position after leading blank lines and HTML comments."""
    at = 0
    while True:
        blank = _BLANK.match(text, at)
        at = at if blank is None else blank.end()
        if not text.startswith("<!--", at):
            return at
        end = text.find("-->", at)
        if end < 0:
            return at
        at = end + 3


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _split(rest: str, opened: int) -> tuple[str, str]:
    lines = rest.split("\n")
    for number, line in enumerate(lines):
        if line.rstrip() in ("---", "..."):
            return "\n".join(lines[:number]), "\n".join(lines[number + 1 :])
    raise DefinitionError(
        "the front matter that starts here is not closed; end it with a line of ---", line=opened
    )


def _fields(matter: str, first_line: int) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the fields, and notes on repairs."""
    try:
        return _mapping(matter, first_line), ()
    except NotYamlError as error:
        fault = error
    repaired, names = add_quotes(matter)
    if repaired != matter:
        note = f"put quotes around {', '.join(names)}" if names else "replaced tabs by spaces"
        try:
            return _mapping(repaired, first_line), (note,)
        except NotYamlError:
            pass
    fields = fields_by_line(matter)
    if not fields:
        raise fault
    return fields, (f"{fault}; so the front matter was read line by line",)


def _mapping(matter: str, first_line: int) -> dict[str, Any]:
    values = parse_yaml(matter, first_line=first_line)
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise DefinitionError("the front matter contains no `name: value` fields", line=first_line)
    return cast("dict[str, Any]", values)
