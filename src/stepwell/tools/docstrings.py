"""Reads the description of a function and of its parameters from its docstring.

Understands the Google, NumPy and Sphinx styles.
"""

import inspect
import re
from collections.abc import Callable
from typing import Any

from msgspec import Struct

_SECTIONS = "Args|Arguments|Parameters|Returns|Return|Yields|Raises|Example|Examples|Note|Notes"
_SECTION = re.compile(rf"^(?P<name>{_SECTIONS}):?\s*$")
_GOOGLE = re.compile(r"^\s*\*{0,2}(?P<name>\w+)(?:\s*\([^)]*\))?\s*:\s*(?P<text>.*)$")
_NUMPY = re.compile(r"^(?P<name>\w+)(?:\s*:.*)?$")
_SPHINX = re.compile(r"^:param\s+(?:[^:]*\s)?(?P<name>\w+):\s*(?P<text>.*)$")


class Described(Struct, frozen=True):
    """A docstring taken apart."""

    summary: str
    parameters: dict[str, str]


def described(function: Callable[..., Any]) -> Described:
    """The description of a function and of its parameters; empty where it has none."""
    lines = (inspect.getdoc(function) or "").splitlines()
    summary: list[str] = []
    parameters: dict[str, str] = {}
    section: list[str] | None = None
    in_parameters = False
    blocks: list[str] = []
    for line in lines:
        heading = _SECTION.match(line)
        sphinx = _SPHINX.match(line.strip())
        if heading:
            section = []
            in_parameters = heading["name"] in ("Args", "Arguments", "Parameters")
        elif sphinx:
            section = []
            in_parameters = False
            parameters[sphinx["name"]] = sphinx["text"].strip()
        elif section is None:
            summary.append(line)
        elif in_parameters:
            blocks.append(line)
    parameters.update(_parameter_block(blocks))
    return Described("\n".join(summary).strip(), parameters)


def _parameter_block(lines: list[str]) -> dict[str, str]:
    underline = bool(lines) and set(lines[0].strip()) == {"-"}
    lines = [line for line in (lines[1:] if underline else lines) if line.strip()]
    if not lines:
        return {}
    margin = min(len(line) - len(line.lstrip()) for line in lines)
    found: dict[str, str] = {}
    name = ""
    for line in lines:
        text = line[margin:]
        entry = None if text[0].isspace() else (_NUMPY if underline else _GOOGLE).match(text)
        if entry:
            name = entry["name"]
            found[name] = "" if underline else entry["text"].strip()
        elif name:
            found[name] = f"{found[name]} {text.strip()}".strip()
    return found
