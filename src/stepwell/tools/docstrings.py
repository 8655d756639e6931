"""Reads the description of a function and of its parameters from its docstring.

Understands the Google, NumPy and Sphinx styles.
"""

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct

_GOOGLE_HEADING = re.compile(r"^([A-Z]\w*(?: [A-Z]?\w+)?):\s*$")
_GOOGLE_ENTRY = re.compile(r"^\*{0,2}(?P<name>\w+)(?:\s*\([^)]*\))?\s*:\s*(?P<text>.*)$")
_NUMPY_ENTRY = re.compile(r"^\*{0,2}(?P<name>\w+)(?:\s*:.*)?$")
_SPHINX_FIELD = re.compile(r"^:(?P<kind>\w+)(?:\s+[^:]*?)??(?:\s+(?P<name>\w+))?:\s*(?P<text>.*)$")
_PARAMETERS = {"Args", "Arguments", "Parameters", "Params", "Keyword Args", "Other Parameters"}


class Described(Struct, frozen=True):
    """A docstring taken apart."""

    summary: str
    parameters: dict[str, str]


def describe_function(function: Callable[..., Any]) -> Described:
    """The description of a function and of its parameters; empty where it has none.

    The description is the text before the first section.
    """
    lines = inspect.cleandoc(function.__doc__ or "").splitlines()
    summary: list[str] = []
    parameters: dict[str, str] = {}
    for style, heading, body in _sections(lines):
        if style == "summary":
            summary = body
        elif style == "sphinx":
            parameters.update(_sphinx(heading, body))
        elif heading in _PARAMETERS:
            entry = _NUMPY_ENTRY if style == "numpy" else _GOOGLE_ENTRY
            parameters.update(_entries(body, entry))
    return Described("\n".join(summary).strip(), parameters)


def _sections(lines: list[str]) -> Iterator[tuple[str, str, list[str]]]:
    """The style, the heading and the lines of each section; the summary first."""
    style, heading, body = "summary", "", list[str]()
    skip = False
    for index, line in enumerate(lines):
        if skip:
            skip = False
            continue
        following = lines[index + 1] if index + 1 < len(lines) else ""
        google = _GOOGLE_HEADING.match(line)
        if line and following and set(following) == {"-"}:
            yield style, heading, body
            style, heading, body, skip = "numpy", line.strip(), [], True
        elif google and (following.startswith(" ") or not following):
            yield style, heading, body
            style, heading, body = "google", google[1], []
        elif _SPHINX_FIELD.match(line):
            yield style, heading, body
            style, heading, body = "sphinx", line, []
        else:
            body.append(line)
    yield style, heading, body


def _sphinx(heading: str, body: list[str]) -> dict[str, str]:
    field = _SPHINX_FIELD.match(heading)
    if field is None or field["kind"] != "param" or field["name"] is None:
        return {}
    return {field["name"]: " ".join([field["text"], *(line.strip() for line in body)]).strip()}


def _entries(lines: list[str], pattern: re.Pattern[str]) -> dict[str, str]:
    """Entries start at the section's own margin; deeper lines go on with the entry before."""
    filled = [line for line in lines if line.strip()]
    margin = min((len(line) - len(line.lstrip()) for line in filled), default=0)
    found: dict[str, str] = {}
    name = ""
    for line in filled:
        text = line[margin:]
        entry = None if text[0].isspace() else pattern.match(text)
        if entry:
            name = entry["name"]
            found[name] = entry.groupdict().get("text", "").strip()
        elif name:
            found[name] = f"{found[name]} {text.strip()}".strip()
    return found
