"""What the fields of a SKILL.md file mean, in the many ways people write them.

A wrong value of a field that has an effect is an error. Other odd values are kept in ``extra``.
"""

import re
from collections.abc import Mapping
from typing import Any, cast

from msgspec import Struct

from stepwell.agent.front_matter import DefinitionError, Document
from stepwell.agent.spec_checks import checked_name, checked_text, normal_name, split_names
from stepwell.agent.spec_fields import names_given
from stepwell.capabilities.skills.skill import FORK, Skill
from stepwell.errors import ConfigurationError

MAX_DERIVED_DESCRIPTION = 500

_MISSED_FRONT_MATTER = re.compile(r"\s*(?:--|-{4,}|```ya?ml)[ \t]*\n\s*[\w-]+:")
_USUAL_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_ALIASES = {"tools": "allowed_tools", "user_invokable": "user_invocable"}
_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_ALL_TOOLS = frozenset({"*", "all"})
_DESCRIPTIVE = ("license", "compatibility", "argument_hint", "metadata", "tags")
_KNOWN = frozenset(
    [
        *("name", "description", "allowed_tools", "model", "context", "agent", "user_invocable"),
        *("disable_model_invocation", "resources", *_DESCRIPTIVE),
    ]
)


class ReadSkill(Struct, frozen=True, kw_only=True):
    """A skill without its files, the resources that it names, and notes on how it was read."""

    skill: Skill
    named_resources: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def skill_of(document: Document, directory: str) -> ReadSkill:
    """The skill in a document; ``directory`` names one that has no name. Raises
    ``DefinitionError``.
    """
    try:
        return _Fields(document, directory).read()
    except DefinitionError:
        raise
    except ConfigurationError as error:
        raise DefinitionError(str(error)) from error


class _Fields:
    """The fields of one file under their normal names."""

    def __init__(self, document: Document, directory: str) -> None:
        self._body = document.body.strip("\n")
        self._directory = directory
        self._notes = list(document.notes)
        self._has_front_matter = document.has_front_matter
        self._given: dict[str, Any] = {}
        self._extra: dict[str, Any] = {}
        self._note_body()
        written: dict[str, str] = {}
        for key, value in document.fields.items():
            name = normal_name(key, _ALIASES)
            if name not in _KNOWN:
                self._extra[key] = value
                continue
            if name in written:
                raise DefinitionError(
                    f"{_shown(name)} is given twice, as {written[name]!r} and {key!r}; keep one"
                )
            if key == "tools":
                self._notes.append("read tools as allowed-tools")
            written[name] = key
            self._given[name] = value

    def _note_body(self) -> None:
        is_blank = not self._body.strip()
        if is_blank and not self._has_front_matter:
            raise DefinitionError("is empty; write the instructions into it")
        if is_blank:
            self._notes.append("has no instructions: the body after the front matter is empty")
        if not self._has_front_matter and _MISSED_FRONT_MATTER.match(self._body):
            self._notes.append(
                "begins like front matter, which was not read; put lines of --- around it"
            )

    def read(self) -> ReadSkill:
        skill = Skill(
            name=self._name(),
            description=self._description(),
            body=self._body,
            allowed_tools=self._allowed_tools(),
            license=self._words("license"),
            compatibility=self._words("compatibility"),
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
        resources = names_given(self._given.get("resources"), "resources", split_entries)
        return ReadSkill(skill=skill, named_resources=resources, notes=tuple(self._notes))

    def _name(self) -> str:
        given = self._given.get("name")
        if given is None or given == "":
            if self._has_front_matter:
                self._notes.append(f"lacks a name; called {self._directory!r} after its directory")
            return checked_name(self._directory)
        name = checked_name(given)
        if not _USUAL_NAME.fullmatch(name):
            self._notes.append(f"the name {name!r} is not in lower case with hyphens")
        if name != self._directory:
            self._notes.append(f"is called {name!r}, unlike its directory")
        return name

    def _description(self) -> str:
        given = self._given.get("description")
        if given is not None and given != "":
            return checked_text(given, "description")
        derived = _first_paragraph(self._body)
        if self._has_front_matter:
            what = "took the first paragraph" if derived else "it has none"
            self._notes.append(f"lacks a description; {what}")
        return derived

    def _allowed_tools(self) -> tuple[str, ...]:
        given = self._given.get("allowed_tools")
        entries = names_given(given, "allowed-tools", split_entries)
        for entry in entries:
            if entry.count("(") != entry.count(")"):
                self._notes.append(f"allowed-tools: the brackets of {entry!r:.80} don't match")
        return () if any(entry.lower() in _ALL_TOOLS for entry in entries) else entries

    def _line(self, name: str) -> str | None:
        given = self._given.get(name)
        return None if given is None or given == "" else checked_text(given, name)

    def _context(self) -> str | None:
        given = self._given.get("context")
        if isinstance(given, str) and given.strip().lower() == FORK:
            return FORK
        if given not in (None, "", "inherit", "inline", "main"):
            self._keep("context", "is none that is known (fork); kept as extra")
        return None

    def _words(self, name: str) -> str | None:
        """A text that nothing depends on."""
        match self._given.get(name):
            case None | "":
                return None
            case str() as text:
                return text.strip()
            case int() | float() as number:
                return str(number)
            case _:
                self._keep(name, "is not text; kept as extra")
                return None

    def _argument_hint(self) -> str | None:
        given = self._given.get("argument_hint")
        if isinstance(given, list) and all(isinstance(i, str | int) for i in cast("Any", given)):
            # `[file]` without quotes is a list to YAML, and a placeholder to its author.
            return f"[{', '.join(map(str, cast('list[Any]', given)))}]"
        return self._words("argument_hint")

    def _metadata(self) -> Mapping[str, Any]:
        given = self._given.get("metadata")
        if isinstance(given, Mapping):
            return cast("Mapping[str, Any]", given)
        if given is not None:
            self._keep("metadata", "holds no named values; kept as extra")
        return {}

    def _tags(self) -> tuple[str, ...]:
        given = self._given.get("tags")
        if given is None:
            return ()
        if isinstance(given, str):
            return tuple(tag.strip() for tag in given.split(",") if tag.strip())
        tags = cast("list[Any]", given)
        if isinstance(given, list) and all(isinstance(tag, str | int | float) for tag in tags):
            return tuple(str(tag) for tag in tags)
        self._keep("tags", "is no list of words; kept as extra")
        return ()

    def _switch(self, name: str, *, default: bool) -> bool:
        given = self._given.get(name)
        if given is None:
            return default
        word = given.strip().lower() if isinstance(given, str) else given
        chosen = word if isinstance(word, bool) else _WORDS.get(word)
        if chosen is None:
            raise DefinitionError(f"{_shown(name)} is {given!r:.80}; write true or false")
        return chosen

    def _keep(self, name: str, why: str) -> None:
        self._extra[name] = self._given[name]
        self._notes.append(f"{_shown(name)} {why}")


def _shown(name: str) -> str:
    """A field's name as files write it."""
    return name.replace("_", "-")


def split_entries(text: str) -> tuple[str, ...]:
    """Entries with commas or blanks between them, but not those within brackets.

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
    """The first lines that are no heading and no code, as one line."""
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
    found = " ".join(lines)
    return (
        found if len(found) <= MAX_DERIVED_DESCRIPTION else f"{found[:MAX_DERIVED_DESCRIPTION]}..."
    )
