"""Parses the fields of a SKILL.md file, in the many ways people write them.

A wrong value is an error if the field has an effect; otherwise it is kept in ``extra``.
"""

import re
from collections.abc import Mapping
from typing import Any, cast

from msgspec import Struct

from stepwell.capabilities.skills.skill import FORK, Skill
from stepwell.errors import ConfigurationError
from stepwell.specs.checks import clean_name, clean_text, field_name, split_names
from stepwell.specs.fields import parse_names
from stepwell.specs.front_matter import DefinitionError, Document
from stepwell.text import truncate_after

MAX_DERIVED_DESCRIPTION = 500

_MISSED_FRONT_MATTER = re.compile(r"\s*(?:--|-{4,}|```ya?ml)[ \t]*\n\s*[\w-]+:")
_RECOMMENDED_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_ALIASES = {"tools": "allowed_tools", "user_invokable": "user_invocable"}
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_ALL_TOOLS = frozenset({"*", "all"})
_DESCRIPTIVE = ("license", "compatibility", "argument_hint", "metadata", "tags")
_KNOWN = frozenset(
    [
        *("name", "description", "allowed_tools", "model", "context", "agent", "user_invocable"),
        *("disable_model_invocation", "resources", *_DESCRIPTIVE),
    ]
)


class ParsedSkill(Struct, frozen=True, kw_only=True):
    """A skill without its files, the resources it names, and notes on how it was parsed."""

    skill: Skill
    named_resources: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def parse_skill(document: Document, directory: str) -> ParsedSkill:
    """Parse the skill in a document. ``directory`` is the default name. Raises
    ``DefinitionError``.
    """
    try:
        return _SkillFields(document, directory).read()
    except DefinitionError:
        raise
    except ConfigurationError as error:
        raise DefinitionError(str(error)) from error


class _SkillFields:
    """The fields of one file under their normalized names."""

    def __init__(self, document: Document, directory: str) -> None:
        self._body = document.body.strip("\n")
        self._directory = directory
        self._notes = list(document.notes)
        self._has_front_matter = document.has_front_matter
        self._given: dict[str, Any] = {}
        self._extra: dict[str, Any] = {}
        self._check_body()
        written: dict[str, str] = {}
        for key, value in document.fields.items():
            name = field_name(key, _ALIASES)
            if name not in _KNOWN:
                self._extra[key] = value
                continue
            if name in written:
                raise DefinitionError(
                    f"{_field_name(name)} is given twice, as {written[name]!r} and {key!r}; keep "
                    f"one"
                )
            if key == "tools":
                self._notes.append("read tools as allowed-tools")
            written[name] = key
            self._given[name] = value

    def _check_body(self) -> None:
        is_blank = not self._body.strip()
        if is_blank and not self._has_front_matter:
            raise DefinitionError("is empty; write the instructions")
        if is_blank:
            self._notes.append("has no instructions: the body after the front matter is empty")
        if not self._has_front_matter and _MISSED_FRONT_MATTER.match(self._body):
            self._notes.append(
                "starts like front matter, which was not read; put lines of --- around it"
            )

    def read(self) -> ParsedSkill:
        skill = Skill(
            name=self._name(),
            description=self._description(),
            body=self._body,
            allowed_tools=self._allowed_tools(),
            license=self._text("license"),
            compatibility=self._text("compatibility"),
            metadata=self._metadata(),
            model=self._line("model"),
            context=self._context(),
            agent=self._line("agent"),
            argument_hint=self._argument_hint(),
            user_invocable=self._switch("user_invocable", default=True),
            disable_model_invocation=self._switch("disable_model_invocation", default=False),
            tags=self._tags(),
            extra=self._extra,
        )
        resources = parse_names(self._given.get("resources"), "resources", split_entries)
        return ParsedSkill(skill=skill, named_resources=resources, notes=tuple(self._notes))

    def _name(self) -> str:
        value = self._given.get("name")
        if value is None or value == "":
            if self._has_front_matter:
                self._notes.append(f"lacks a name; called {self._directory!r} after its directory")
            return clean_name(self._directory)
        name = clean_name(value)
        if not _RECOMMENDED_NAME.fullmatch(name):
            self._notes.append(f"the name {name!r} is not in lower case with hyphens")
        if name != self._directory:
            self._notes.append(f"is called {name!r}, unlike its directory")
        return name

    def _description(self) -> str:
        value = self._given.get("description")
        if value is not None and value != "":
            return clean_text(value, "description")
        derived = _first_paragraph(self._body)
        if self._has_front_matter:
            what = "took the first paragraph" if derived else "it has none"
            self._notes.append(f"lacks a description; {what}")
        return derived

    def _allowed_tools(self) -> tuple[str, ...]:
        value = self._given.get("allowed_tools")
        entries = parse_names(value, "allowed-tools", split_entries)
        for entry in entries:
            if entry.count("(") != entry.count(")"):
                self._notes.append(f"allowed-tools: the parentheses of {entry!r:.80} don't match")
        return () if any(entry.lower() in _ALL_TOOLS for entry in entries) else entries

    def _line(self, name: str) -> str | None:
        value = self._given.get(name)
        return None if value is None or value == "" else clean_text(value, name)

    def _context(self) -> str | None:
        value = self._given.get("context")
        if isinstance(value, str) and value.strip().lower() == FORK:
            return FORK
        if value not in (None, "", "inherit", "inline", "main"):
            self._keep_as_extra("context", "is not known (only fork is); kept as extra")
        return None

    def _text(self, name: str) -> str | None:
        """Return a descriptive text, or None."""
        match self._given.get(name):
            case None | "":
                return None
            case str() as text:
                return text.strip()
            case int() | float() as number:
                return str(number)
            case _:
                self._keep_as_extra(name, "is not text; kept as extra")
                return None

    def _argument_hint(self) -> str | None:
        value = self._given.get("argument_hint")
        if isinstance(value, list) and all(isinstance(i, str | int) for i in cast("Any", value)):
            # YAML reads `[file]` without quotes as a list; its author means a placeholder.
            return f"[{', '.join(map(str, cast('list[Any]', value)))}]"
        return self._text("argument_hint")

    def _metadata(self) -> Mapping[str, Any]:
        value = self._given.get("metadata")
        if isinstance(value, Mapping):
            return cast("Mapping[str, Any]", value)
        if value is not None:
            self._keep_as_extra("metadata", "is not a mapping; kept as extra")
        return {}

    def _tags(self) -> tuple[str, ...]:
        value = self._given.get("tags")
        if value is None:
            return ()
        if isinstance(value, str):
            return tuple(tag.strip() for tag in value.split(",") if tag.strip())
        tags = cast("list[Any]", value)
        if isinstance(value, list) and all(isinstance(tag, str | int | float) for tag in tags):
            return tuple(str(tag) for tag in tags)
        self._keep_as_extra("tags", "is not a list of words; kept as extra")
        return ()

    def _switch(self, name: str, *, default: bool) -> bool:
        value = self._given.get(name)
        if value is None:
            return default
        word = value.strip().lower() if isinstance(value, str) else value
        parsed = word if isinstance(word, bool) else _BOOLEANS.get(word)
        if parsed is None:
            raise DefinitionError(f"{_field_name(name)} is {value!r:.80}; write true or false")
        return parsed

    def _keep_as_extra(self, name: str, why: str) -> None:
        self._extra[name] = self._given[name]
        self._notes.append(f"{_field_name(name)} {why}")


def _field_name(name: str) -> str:
    """Return a field's name as files write it."""
    return name.replace("_", "-")


def split_entries(text: str) -> tuple[str, ...]:
    """Split a text at commas and spaces, but not inside parentheses.

    >>> split_entries("Read Bash(git add:*, git commit:*), Grep")
    ('Read', 'Bash(git add:*, git commit:*)', 'Grep')
    """
    entries: list[str] = []
    for piece in split_names(text, at_blanks=True):
        if piece.startswith("(") and entries and not entries[-1].endswith(")"):
            entries[-1] += piece  # `Bash (git:*)` limits Bash
        else:
            entries.append(piece)
    stripped = (entry.strip("`\"'") for entry in entries)
    return tuple(dict.fromkeys(entry for entry in stripped if entry))


def _first_paragraph(body: str) -> str:
    """Return the first lines that are neither heading nor code, as one line."""
    lines: list[str] = []
    is_code = False
    for line in body.splitlines():
        text = line.strip()
        is_fence = text.startswith("```")
        is_code = is_code != is_fence
        if text and not is_code and not is_fence and not text.startswith(("#", "<!--", "---")):
            lines.append(text)
        elif lines:
            break
    return truncate_after(" ".join(lines), MAX_DERIVED_DESCRIPTION)
