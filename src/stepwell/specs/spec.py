"""``AgentSpec``: an agent as data, as Markdown, YAML and JSON files describe it.

A spec is validated when it is created. Nothing in ``metadata`` has an effect.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, force_setattr, replace

from stepwell.errors import ConfigurationError
from stepwell.models import ModelSettings
from stepwell.models.settings import NO_SETTINGS
from stepwell.parameters import check_flag
from stepwell.specs.checks import (
    check_budget,
    clean_line,
    clean_name,
    clean_names,
    clean_text,
    plain_mapping,
    plain_value,
)
from stepwell.state import Budget

_SAFE = re.compile(r"[A-Za-z](?:[\w ./()-]*[\w.)])?", re.ASCII)
_LINES = re.compile(r"[!-~](?:[ -~\n\xa1-\u1fff\u3040-\ud7ff]*[!-~])?")

INHERIT = "inherit"
"""Means the parent's model."""


_TOOL_ALIASES = {
    "agent": "spawn_subagent",
    "askuserquestion": "user_input",
    "bash": "bash",
    "edit": "edit_file",
    "glob": "search_files",
    "grep": "search_files",
    "ls": "list_dir",
    "list": "list_dir",
    "multiedit": "edit_file",
    "read": "read_file",
    "skill": "load_skill",
    "task": "spawn_subagent",
    "todowrite": "todo_write",
    "write": "write_file",
}
"""Names of our tools in other programs, in lower case."""


class AgentModel(Struct, frozen=True, kw_only=True):
    """A model with its own settings. Without a preset they apply to the parent's model.

    >>> AgentModel(preset="anthropic", settings=ModelSettings(temperature=0.2)).preset
    'anthropic'
    """

    preset: str | None = None
    settings: ModelSettings = NO_SETTINGS

    def __post_init__(self) -> None:
        if self.preset is not None:
            force_setattr(self, "preset", clean_line(self.preset, "model"))
        if self.settings.extra_headers:
            raise ConfigurationError(
                "an agent's model can't set headers; give them to the provider"
            )
        force_setattr(self, "settings", _plain_settings(self.settings))


class AgentSpec(Struct, frozen=True, kw_only=True):
    """A named agent that can be spawned: its prompt, tools, model, skills and budget.

    ``tools`` is None for all tools of the parent, or an empty tuple for none. ``model`` is the name
    of a preset, ``inherit`` or None for the parent's model, or an ``AgentModel``. A spec is not
    ``trusted`` if it came from a file that the host has not approved.

    >>> spec = AgentSpec(name="reviewer", description="Reviews code.", system_prompt="Review it.")
    >>> spec.offered_tools(["bash", "read_file"])
    ('bash', 'read_file')
    """

    name: str
    description: str
    system_prompt: str
    tools: tuple[str, ...] | None = None
    denied_tools: tuple[str, ...] = ()
    model: str | AgentModel | None = None
    skills: tuple[str, ...] = ()
    budget: Budget | None = None
    metadata: Mapping[str, Any] = {}
    trusted: bool = True

    def __post_init__(self) -> None:
        force_setattr(self, "name", clean_name(self.name))
        force_setattr(self, "description", clean_text(self.description, "description"))
        force_setattr(self, "system_prompt", clean_text(self.system_prompt, "system_prompt"))
        if self.tools is not None:
            tools = clean_names(self.tools, "tools")
            force_setattr(self, "tools", None if "*" in tools else tools)
        force_setattr(self, "denied_tools", clean_names(self.denied_tools, "denied_tools"))
        force_setattr(self, "skills", clean_names(self.skills, "skills"))
        if isinstance(self.model, str):
            force_setattr(self, "model", clean_line(self.model, "model"))
        elif not isinstance(self.model, AgentModel | None):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(
                f"model is {self.model!r:.80}; give a preset's name, 'inherit' or an AgentModel"
            )
        check_budget(self.budget)
        force_setattr(self, "metadata", plain_mapping(self.metadata, "metadata"))
        check_flag(self.trusted, "trusted")

    @property
    def preset(self) -> str | None:
        """The name of the model preset, or None for the parent's model."""
        named = self.model.preset if isinstance(self.model, AgentModel) else self.model
        return None if named is None or named.lower() == INHERIT else named

    @property
    def model_settings(self) -> ModelSettings:
        """Its own model settings. Unset ones come from the parent."""
        return self.model.settings if isinstance(self.model, AgentModel) else NO_SETTINGS

    def offered_tools(self, offered: Iterable[str]) -> tuple[str, ...]:
        """Return the tools of the host that it gets, in the host's order.

        Names from other programs, such as ``Read``, mean our tools if the host has no tool of that
        name. ``*`` matches any characters. An entry that limits arguments, such as
        ``Bash(git:*)``, grants nothing, because the whole tool would be more than it allows. In
        ``denied_tools`` it denies the whole tool.

        >>> spec = AgentSpec(name="a", description="b", system_prompt="c", tools=("Read", "LS"))
        >>> spec.offered_tools(["bash", "read_file"])
        ('read_file',)
        """
        names = tuple(offered)
        wanted = names if self.tools is None else _match(self.tools, names)
        denied = _match([entry.partition("(")[0] for entry in self.denied_tools], names)
        return tuple(name for name in names if name in wanted and name not in denied)

    def missing_tools(self, offered: Iterable[str]) -> tuple[str, ...]:
        """Return the entries of ``tools`` that match no tool of the host."""
        names = tuple(offered)
        return tuple(entry for entry in self.tools or () if not _match([entry], names))

    def as_untrusted(self, allowed_models: Collection[str] = ()) -> tuple["AgentSpec", str | None]:
        """Return the spec without what only a trusted file may set, and a note of what was removed.

        A preset stays if ``allowed_models`` names it; otherwise the parent's model is used.
        Settings that name a model or extend the request are removed.
        """
        preset, settings = self.preset, self.model_settings
        if preset is not None and preset not in allowed_models:
            preset = None
        settings = replace(settings, model=None, extra_body={})
        is_plain = settings == NO_SETTINGS
        model = preset if is_plain else AgentModel(preset=preset, settings=settings)
        note = None
        if preset != self.preset or settings != self.model_settings:
            note = (
                f"ignored the model {self.preset or 'settings'!r} of an untrusted file; trust the "
                "project or allow the model by name"
            )
            return replace(self, model=model, trusted=False), note
        return replace(self, trusted=False), note

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values, in file order, without unset ones."""
        fields: dict[str, Any] = {"name": self.name, "description": self.description}
        if self.tools is not None:
            fields["tools"] = list(self.tools)
        if self.denied_tools:
            fields["denied_tools"] = list(self.denied_tools)
        if self.model is not None:
            fields["model"] = _model_fields(self.model)
        if self.skills:
            fields["skills"] = list(self.skills)
        if self.budget is not None:
            fields["budget"] = _set_fields(self.budget)
        if self.metadata:
            fields["metadata"] = dict(self.metadata)
        return {**fields, "system_prompt": self.system_prompt}

    def to_markdown(self) -> str:
        """Return the spec as Markdown with front matter. The prompt is the body."""
        fields = self.to_dict()
        prompt = fields.pop("system_prompt")
        return f"---\n{_to_yaml(fields)}---\n\n{prompt}\n"

    def to_yaml(self) -> str:
        """Return the spec as a YAML file."""
        return _to_yaml(self.to_dict())

    def to_json(self) -> str:
        """Return the spec as a JSON file."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "AgentSpec":
        """Create a spec from the fields of ``to_dict``. Raises ``DefinitionError``."""
        from stepwell.specs.parser import AgentSpecParser

        return AgentSpecParser().parse_fields(fields)


def matching_tools(entry: str, offered: Iterable[str] | None) -> tuple[str, ...]:
    """Return the offered tools that an entry matches by name or pattern, else our tool with that
    alias. If ``offered`` is None, return the name alone.

    >>> (
    ...     matching_tools("Grep", ["read_file", "search_files"]),
    ...     matching_tools("mcp_*", ["mcp_a", "b"]),
    ... )
    (('search_files',), ('mcp_a',))
    """
    ours = _TOOL_ALIASES.get(entry.lower())
    if offered is None:
        return (ours or entry,)
    names = tuple(offered)
    if "*" in entry:
        own = tuple(name for name in names if fnmatchcase(name, entry))
    else:
        own = tuple(name for name in names if name == entry)
    return own or tuple(name for name in names if name == ours)


def _match(entries: Iterable[str], names: tuple[str, ...]) -> set[str]:
    whole = [entry for entry in entries if "(" not in entry]
    return {name for entry in whole for name in matching_tools(entry, names)}


def _model_fields(model: str | AgentModel) -> Any:
    if isinstance(model, str):
        return model
    preset = {} if model.preset is None else {"preset": model.preset}
    return preset | _set_fields(model.settings)


def _set_fields(value: Struct) -> dict[str, Any]:
    fields = {name: item for name, item in asdict(value).items() if item not in (None, (), {})}
    return {name: plain_value(item, name, 0) for name, item in fields.items()}


def _plain_settings(settings: ModelSettings) -> ModelSettings:
    """Validate settings, so that writing them can't fail."""
    plain = _set_fields(settings)
    return replace(settings, extra_body=plain.get("extra_body", {}))


def _to_yaml(fields: dict[str, Any]) -> str:
    """Write YAML that ``AgentSpecParser`` reads back: ambiguous text is quoted."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """Indents lists, writes multi-line text as blocks, never uses aliases."""

        def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
            super().increase_indent(flow, False)

        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
            return True

    def represent(dumper: Any, text: str) -> Any:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=_style(text))

    Dumper.add_representer(str, represent)
    return str(yaml.dump(fields, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=10**9))


def _style(text: str) -> str | None:
    """Plain where it is unambiguous, a block for prose, quotes for the rest."""
    if _SAFE.fullmatch(text):
        return None
    is_block = "\n" in text and _LINES.fullmatch(text) and " \n" not in text
    return "|" if is_block else '"'
