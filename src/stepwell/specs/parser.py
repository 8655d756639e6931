"""Parses agent specs from Markdown with front matter, YAML and JSON, written for Stepwell or other
programs. ``front_matter`` and ``yaml`` read the text, ``fields`` validates the fields.
"""

import json
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from stepwell.errors import ConfigurationError
from stepwell.parameters import check_flag
from stepwell.specs.checks import field_name
from stepwell.specs.fields import FIELD_ALIASES, SpecFields
from stepwell.specs.front_matter import read_document, read_file
from stepwell.specs.spec import AgentSpec
from stepwell.specs.yaml import DefinitionError, parse_yaml


class SpecFormat(StrEnum):
    """The format of a definition."""

    MARKDOWN = "markdown"
    YAML = "yaml"
    JSON = "json"


FORMATS: Mapping[str, SpecFormat] = {
    ".md": SpecFormat.MARKDOWN,
    ".markdown": SpecFormat.MARKDOWN,
    ".yaml": SpecFormat.YAML,
    ".yml": SpecFormat.YAML,
    ".json": SpecFormat.JSON,
}
"""Formats by file extension."""


class ParsedSpec(Struct, frozen=True, kw_only=True):
    """A spec, and notes for its author on how it was read."""

    spec: AgentSpec
    notes: tuple[str, ...] = ()


class AgentSpecParser:
    """Parses agent specs. Raises ``DefinitionError`` that names a missing or unknown field.

    Use ``strict=False`` for files of other programs: unknown fields go to the metadata with a note,
    and an agent without a name gets that of its file.

    >>> text = "---\\nname: reviewer\\ndescription: Reviews.\\ntools: Read, Grep\\n---\\nReview it."
    >>> AgentSpecParser().parse(text).tools
    ('Read', 'Grep')
    """

    def __init__(self, *, strict: bool = True) -> None:
        self.strict = check_flag(strict, "strict")

    def parse(self, text: str, format: SpecFormat | str = SpecFormat.MARKDOWN) -> AgentSpec:
        """Parse a text. Raises ``DefinitionError``."""
        return self.parse_with_notes(text, format).spec

    def parse_file(self, path: str | Path) -> AgentSpec:
        """Parse a file. Its extension decides the format."""
        return self.parse_file_with_notes(path).spec

    def parse_file_with_notes(
        self, path: str | Path, *, beneath: str | Path | None = None
    ) -> ParsedSpec:
        """Parse a file and return notes too. Links out of ``beneath``, if given, are refused."""
        path = Path(path)
        try:
            chosen = FORMATS.get(path.suffix.lower())
            if chosen is None:
                raise DefinitionError(
                    f"unknown extension {path.suffix!r}; use {', '.join(FORMATS)}"
                )
            text = read_file(path, beneath=beneath)
            return self.parse_with_notes(text, chosen, default_name=path.stem)
        except DefinitionError as error:
            raise DefinitionError(f"{path}: {error}") from error

    def parse_with_notes(
        self,
        text: str,
        format: SpecFormat | str = SpecFormat.MARKDOWN,
        *,
        default_name: str | None = None,
    ) -> ParsedSpec:
        """Parse a text and return notes on how it was read."""
        notes: tuple[str, ...] = ()
        match _format(format):
            case SpecFormat.MARKDOWN:
                fields, notes = _markdown_fields(text)
            case SpecFormat.YAML:
                fields = _root(parse_yaml(_plain_text(text)))
            case SpecFormat.JSON:
                fields = _root(_json_values(_plain_text(text)))
        return self._build_spec(fields, notes, default_name)

    def parse_fields(self, fields: Mapping[str, Any]) -> AgentSpec:
        """Create a spec from plain values."""
        return self._build_spec(_root(fields), (), None).spec

    def _build_spec(
        self, given: Mapping[str, Any], notes: tuple[str, ...], default_name: str | None
    ) -> ParsedSpec:
        reading = SpecFields(given, list(notes))
        if not self.strict and reading.fields.get("name") is None and default_name:
            reading.fields["name"] = default_name
            reading.notes.append(f"has no name; named {default_name!r} after its file")
        reading.check(allow_unknown=not self.strict)
        try:
            spec = reading.spec()
        except DefinitionError:
            raise
        except ConfigurationError as error:
            raise DefinitionError(str(error)) from error
        return ParsedSpec(spec=spec, notes=tuple(reading.notes))


def _format(given: SpecFormat | str) -> SpecFormat:
    try:
        return SpecFormat(given)
    except ValueError:
        known = ", ".join(SpecFormat)
        raise ConfigurationError(f"unknown format {given!r}; known: {known}") from None


def _plain_text(text: str) -> str:
    return text.removeprefix("\ufeff")


def _markdown_fields(text: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    document = read_document(text)
    if not document.has_front_matter:
        raise DefinitionError("has no front matter; begin the file with a line of ---")
    fields = dict(document.fields)
    for key in fields:
        if field_name(key, FIELD_ALIASES) == "system_prompt":
            raise DefinitionError(f"{key} is a field; in Markdown the body is the prompt")
    if not document.body.strip():
        raise DefinitionError("has no prompt: the body after the front matter is empty")
    return {**fields, "system_prompt": document.body}, document.notes


def _root(values: Any) -> dict[str, Any]:
    if not isinstance(values, Mapping):
        raise DefinitionError("contains no `name: value` fields")
    return dict(cast("Mapping[str, Any]", values))


def _json_values(text: str) -> Any:
    try:
        values = json.loads(text, object_pairs_hook=_object, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        raise DefinitionError(f"not JSON: {error.msg}", line=error.lineno) from None
    except (ValueError, RecursionError) as error:
        if isinstance(error, DefinitionError):
            raise
        raise DefinitionError(f"not JSON that can be read: {error}") from None
    return values


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))
        raise DefinitionError(f"{twice!r:.80} is given twice; keep one")
    return fields


def _no_number(word: str) -> Any:
    raise DefinitionError(f"{word} is not a JSON number")
