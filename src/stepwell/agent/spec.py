"""What an agent is, as data: the value that Markdown, YAML and JSON files describe.

It is checked when it is made and written by ``spec_writer``. Nothing in ``metadata`` is acted upon.
"""

from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, force_setattr, replace

from stepwell.agent.spec_checks import (
    check_budget,
    checked_name,
    checked_names,
    checked_text,
    line_of_text,
    plain_mapping,
    plain_value_of,
)
from stepwell.errors import ConfigurationError
from stepwell.models import ModelSettings
from stepwell.models.settings import NO_SETTINGS
from stepwell.parameters import check_flag
from stepwell.state import Budget

INHERIT = "inherit"
"""The word for the model of the parent."""


_FOREIGN = {
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
"""What files of other programs call our tools, in whatever case."""


class AgentModel(Struct, frozen=True, kw_only=True):
    """A model with settings of its own; without a preset they hold for the parent's model.

    >>> AgentModel(preset="anthropic", settings=ModelSettings(temperature=0.2)).preset
    'anthropic'
    """

    preset: str | None = None
    settings: ModelSettings = NO_SETTINGS

    def __post_init__(self) -> None:
        if self.preset is not None:
            force_setattr(self, "preset", line_of_text(self.preset, "model"))
        if self.settings.extra_headers:
            raise ConfigurationError(
                "the model of an agent can't set headers; give them to the provider"
            )
        force_setattr(self, "settings", _plain_settings(self.settings))


class AgentSpec(Struct, frozen=True, kw_only=True):
    """A named agent that can be spawned: its prompt, tools, model, skills and budget.

    ``tools`` None means all that the parent has, and an empty tuple none at all. ``model`` is the
    name of a preset, ``inherit`` or None for the parent's model, or an ``AgentModel``. A spec that
    is not ``trusted`` came from a file that the host has not vouched for.

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
        force_setattr(self, "name", checked_name(self.name))
        force_setattr(self, "description", checked_text(self.description, "description"))
        force_setattr(self, "system_prompt", checked_text(self.system_prompt, "system_prompt"))
        if self.tools is not None:
            tools = checked_names(self.tools, "tools")
            force_setattr(self, "tools", None if "*" in tools else tools)
        force_setattr(self, "denied_tools", checked_names(self.denied_tools, "denied_tools"))
        force_setattr(self, "skills", checked_names(self.skills, "skills"))
        if isinstance(self.model, str):
            force_setattr(self, "model", line_of_text(self.model, "model"))
        elif not isinstance(self.model, AgentModel | None):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(
                f"model is {self.model!r:.80}; give a preset's name, 'inherit' or an AgentModel"
            )
        check_budget(self.budget)
        force_setattr(self, "metadata", plain_mapping(self.metadata, "metadata"))
        check_flag(self.trusted, "trusted")

    @property
    def preset(self) -> str | None:
        """The model preset that it names, None for the parent's model."""
        named = self.model.preset if isinstance(self.model, AgentModel) else self.model
        return None if named is None or named.lower() == INHERIT else named

    @property
    def model_settings(self) -> ModelSettings:
        """Its own settings for the model; those of the parent hold where these say nothing."""
        return self.model.settings if isinstance(self.model, AgentModel) else NO_SETTINGS

    def offered_tools(self, offered: Iterable[str]) -> tuple[str, ...]:
        """Which of the host's tools it is given, in the host's order; never any others.

        Names that other programs use, such as ``Read``, mean our tools where the host has none of
        that name, and ``*`` stands for any letters. An entry that limits the arguments, such as
        ``Bash(git:*)``, gives nothing, because the whole tool would be more than it says; denied,
        it takes the whole tool.

        >>> spec = AgentSpec(name="a", description="b", system_prompt="c", tools=("Read", "LS"))
        >>> spec.offered_tools(["bash", "read_file"])
        ('read_file',)
        """
        names = tuple(offered)
        wanted = names if self.tools is None else _matching(self.tools, names)
        denied = _matching([entry.partition("(")[0] for entry in self.denied_tools], names)
        return tuple(name for name in names if name in wanted and name not in denied)

    def missing_tools(self, offered: Iterable[str]) -> tuple[str, ...]:
        """The entries of ``tools`` that match none of the host's tools."""
        names = tuple(offered)
        return tuple(entry for entry in self.tools or () if not _matching([entry], names))

    def as_untrusted(self, allowed_models: Collection[str] = ()) -> tuple["AgentSpec", str | None]:
        """The spec without what only a trusted file may choose, and what was left out.

        It keeps a preset that is allowed by name; else the parent's model answers. Settings that
        name a model or add to the request are left out.
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
                f"the model {self.preset or 'settings'!r} of an untrusted file is not used; trust "
                "the project or allow the model by name"
            )
            return replace(self, model=model, trusted=False), note
        return replace(self, trusted=False), note

    def to_dict(self) -> dict[str, Any]:
        """Its fields as plain values, in the order of a file, without those that say nothing."""
        said: dict[str, Any] = {"name": self.name, "description": self.description}
        if self.tools is not None:
            said["tools"] = list(self.tools)
        if self.denied_tools:
            said["denied_tools"] = list(self.denied_tools)
        if self.model is not None:
            said["model"] = _model_fields(self.model)
        if self.skills:
            said["skills"] = list(self.skills)
        if self.budget is not None:
            said["budget"] = _set_fields(self.budget)
        if self.metadata:
            said["metadata"] = dict(self.metadata)
        return {**said, "system_prompt": self.system_prompt}

    def to_markdown(self) -> str:
        """A Markdown file with front matter; the prompt is its body."""
        from stepwell.agent.spec_writer import markdown_of

        return markdown_of(self)

    def to_yaml(self) -> str:
        """A YAML file."""
        from stepwell.agent.spec_writer import yaml_of

        return yaml_of(self.to_dict())

    def to_json(self) -> str:
        """A JSON file."""
        from stepwell.agent.spec_writer import json_of

        return json_of(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "AgentSpec":
        """The spec that ``to_dict`` described; raises ``DefinitionError``."""
        from stepwell.agent.spec_parser import AgentSpecParser

        return AgentSpecParser().parse_fields(fields)


def tools_meant(entry: str, offered: Iterable[str] | None) -> tuple[str, ...]:
    """The offered tools that an entry of a list means: those that it names or that fit its
    pattern, else our tool that other programs call so. With None, whatever is offered.

    >>> tools_meant("Grep", ["read_file", "search_files"]), tools_meant("mcp_*", ["mcp_a", "b"])
    (('search_files',), ('mcp_a',))
    """
    ours = _FOREIGN.get(entry.lower())
    if offered is None:
        return (ours or entry,)
    names = tuple(offered)
    if "*" in entry:
        own = tuple(name for name in names if fnmatchcase(name, entry))
    else:
        own = tuple(name for name in names if name == entry)
    return own or tuple(name for name in names if name == ours)


def _matching(entries: Iterable[str], names: tuple[str, ...]) -> set[str]:
    whole = [entry for entry in entries if "(" not in entry]
    return {name for entry in whole for name in tools_meant(entry, names)}


def _model_fields(model: str | AgentModel) -> Any:
    if isinstance(model, str):
        return model
    preset = {} if model.preset is None else {"preset": model.preset}
    return preset | _set_fields(model.settings)


def _set_fields(value: Struct) -> dict[str, Any]:
    said = {name: item for name, item in asdict(value).items() if item not in (None, (), {})}
    return {name: plain_value_of(item, name, 0) for name, item in said.items()}


def _plain_settings(settings: ModelSettings) -> ModelSettings:
    """Checked, so that writing them can't fail."""
    plain = _set_fields(settings)
    return replace(settings, extra_body=plain.get("extra_body", {}))
