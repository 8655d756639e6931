"""Reads the fields of agent definitions, in the variants that people write."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, cast

from msgspec import Struct, ValidationError, convert

from stepwell.models import ModelSettings
from stepwell.specs.checks import field_name, split_names
from stepwell.specs.spec import AgentModel, AgentSpec
from stepwell.specs.yaml import DefinitionError
from stepwell.state import Budget

Value = TypeVar("Value", bound=Struct)
_Tools = tuple[tuple[str, ...] | None, tuple[str, ...]]

FIELD_ALIASES = {
    "prompt": "system_prompt",
    "disallowed_tools": "denied_tools",
    "allowed_tools": "tools",
    "max_turns": "max_steps",
}
"""Names of our fields in other programs."""

_FIELDS = (
    *("name", "description", "tools", "denied_tools", "model", "skills", "budget", "max_steps"),
    *("metadata", "system_prompt"),
)
_WITHOUT_EFFECT = frozenset(
    [
        "background",
        "disable",
        "disabled",
        "effort",
        "hooks",
        "initial_prompt",
        "isolation",
        "mcp_servers",
        "memory",
        "permission",
        "permission_mode",
        "permissions",
        "reasoning_effort",
    ]
)
_SETTINGS = frozenset(["temperature", "top_p"])
"""Model settings that other programs put at the top level."""
_FOREIGN_FIELDS = (
    _WITHOUT_EFFECT
    | _SETTINGS
    | frozenset(
        [
            "argument_hint",
            "author",
            "category",
            "color",
            "colour",
            "compatibility",
            "created",
            "date",
            "display_name",
            "domain",
            "emoji",
            "examples",
            "handoffs",
            "hidden",
            "icon",
            "id",
            "infer",
            "keywords",
            "license",
            "mode",
            "priority",
            "role",
            "tags",
            "target",
            "title",
            "type",
            "updated",
            "user_invocable",
            "version",
            "when_to_use",
        ]
    )
)
"""Fields of other programs. They are kept in the metadata and have no effect."""

_BUDGET_ALIASES = {
    "max_steps": "steps",
    "max_turns": "steps",
    "max_tokens": "tokens",
    "max_seconds": "seconds",
    "timeout": "seconds",
    "max_cost": "cost",
}
_SEPARATOR = re.compile(r"[,\n(]")
_ALL = "all"
_NONE = "none"


class SpecFields:
    """The fields of one definition by normalized name, and notes on how they were read."""

    def __init__(self, given: Mapping[str, Any], notes: list[str]) -> None:
        self.notes = notes
        self.fields: dict[str, Any] = {}
        self._written: dict[str, str] = {}
        for key, value in given.items():
            name = field_name(key, FIELD_ALIASES)
            if name in self.fields:
                raise DefinitionError(
                    f"{name} is given twice, as {self._written[name]!r} and {key!r}; keep one"
                )
            self.fields[name] = value
            self._written[name] = key

    def check(self, *, allow_unknown: bool) -> None:
        """Raise ``DefinitionError`` for missing and, unless allowed, unknown fields."""
        faults: list[str] = []
        required = ("name", "description", "system_prompt")
        lacking = [name for name in required if self.fields.get(name) is None]
        if lacking:
            faults.append(f"lacks {' and '.join(lacking)}")
        known = _FOREIGN_FIELDS.union(_FIELDS)
        unknown = [key for name, key in self._written.items() if name not in known]
        if unknown and allow_unknown:
            self.notes.append(f"kept unknown fields as metadata: {_join_names(unknown)}")
        elif unknown:
            faults.append(
                f"has unknown fields: {_join_names(unknown)}; known: {', '.join(_FIELDS)}"
            )
        if faults:
            raise DefinitionError("; ".join(faults))

    def spec(self) -> AgentSpec:
        """Create the spec. Raises ``ConfigurationError`` for values of the wrong type."""
        tools, denied = self._tools()
        return AgentSpec(
            name=self.fields["name"],
            description=self.fields["description"],
            system_prompt=self.fields["system_prompt"],
            tools=tools,
            denied_tools=(*denied, *_names(self.fields.get("denied_tools"), "denied_tools")),
            model=self._model(),
            skills=_names(self.fields.get("skills"), "skills"),
            budget=self._budget(),
            metadata=self._metadata(),
        )

    def _tools(self) -> _Tools:
        """Return the allowed and the denied tools."""
        given = self.fields.get("tools")
        if self._written.get("tools", "tools").lower().startswith("allowed"):
            self.notes.append(f"read {self._written['tools']} as tools")
        if given is None:
            if "tools" in self.fields:
                self.notes.append("tools has no value, so it inherits all; write [] for none")
            return None, ()
        if isinstance(given, Mapping):
            return self._tools_from_switches(cast("Mapping[str, Any]", given))
        names = _names(given, "tools")
        self._note_argument_limits(names)
        if not names and given != []:
            self.notes.append("tools is empty, so it has none; remove the field to inherit all")
        word = given.strip().lower() if isinstance(given, str) else ""
        if word == _ALL:
            return None, ()
        return (() if word == _NONE else names), ()

    def _tools_from_switches(self, switches: Mapping[str, Any]) -> _Tools:
        """Read tools from a mapping of names to true or false."""
        for name, is_on in switches.items():
            if not isinstance(is_on, bool):
                raise DefinitionError(f"tools: {name} is {is_on!r:.40}; write true or false")
        chosen = tuple(name for name, is_on in switches.items() if is_on and name != "*")
        if switches.get("*") is False:
            return chosen, ()
        if chosen and all(switches.values()):
            self.notes.append(
                'a tools mapping only switches tools off, so the agent has all; add "*": false for '
                f"only {_join_names(chosen)}"
            )
        return None, tuple(name for name, is_on in switches.items() if not is_on)

    def _note_argument_limits(self, names: Iterable[str]) -> None:
        limited = [name for name in names if "(" in name]
        if limited:
            self.notes.append(
                f"argument limits are not supported, so these tools are not offered: "
                f"{_join_names(limited)}; write the name alone to offer the whole tool"
            )

    def _model(self) -> str | AgentModel | None:
        """Return the model with top-level settings. Its own settings win."""
        model = _model(self.fields.get("model"))
        beside = {name: self.fields[name] for name in _SETTINGS if self._is_setting(name)}
        if not beside:
            return model
        if not isinstance(model, AgentModel):
            model = AgentModel(preset=model)
        settings = _convert(beside, ModelSettings, "the definition")
        return AgentModel(preset=model.preset, settings=model.settings.over(settings))

    def _is_setting(self, name: str) -> bool:
        value = self.fields.get(name)
        return isinstance(value, int | float) and not isinstance(value, bool)

    def _budget(self) -> Budget | None:
        given = self.fields.get("budget")
        steps = self.fields.get("max_steps")
        if given is None and steps is None:
            return None
        if not isinstance(given, Mapping | None):
            raise DefinitionError(f"budget is {given!r:.80}; write steps, tokens, seconds or cost")
        amounts: dict[str, Any] = {}
        written = cast("Mapping[str, Any]", given or {})
        if steps is not None:
            amounts["steps"] = steps
        for key, amount in written.items():
            name = field_name(key, _BUDGET_ALIASES)
            if name in amounts:
                raise DefinitionError(f"the budget gives {name} twice; keep one")
            amounts[name] = amount
        return _convert(amounts, Budget, "budget")

    def _metadata(self) -> dict[str, Any]:
        given = self.fields.get("metadata")
        if not isinstance(given, Mapping | None):
            raise DefinitionError(f"metadata is {given!r:.80}; write a mapping")
        used = [*_FIELDS, *(name for name in _SETTINGS if self._is_setting(name))]
        kept = {key: name for name, key in self._written.items() if name not in used}
        idle = [key for key, name in kept.items() if name in _WITHOUT_EFFECT | _SETTINGS]
        if idle:
            self.notes.append(f"fields without effect: {_join_names(idle)}")
        return {**(given or {}), **{key: self.fields[name] for key, name in kept.items()}}


def parse_names(given: Any, field: str, split: Callable[[str], tuple[str, ...]]) -> tuple[str, ...]:
    """Read names from a text or a list of texts, each with one or more names."""
    if given is None:
        return ()
    if not isinstance(given, str | list | tuple):
        raise DefinitionError(f"{field} is {given!r:.80}; write a list of names")
    names: list[str] = []
    for entry in [given] if isinstance(given, str) else cast("Iterable[Any]", given):
        if not isinstance(entry, str):
            raise DefinitionError(f"{field} contains {entry!r:.80}; write names, quoted if needed")
        names.extend(split(entry))
    return tuple(dict.fromkeys(names))


def _names(given: Any, field: str) -> tuple[str, ...]:
    """Split names at commas or lines, or at spaces if there is nothing else."""
    is_plain = isinstance(given, str) and not _SEPARATOR.search(given)
    return parse_names(given.split() if is_plain else given, field, split_names)


def _model(given: Any) -> str | AgentModel | None:
    if given is None or given == "":
        return None
    if isinstance(given, str):
        return given
    if not isinstance(given, Mapping):
        raise DefinitionError(
            f"model is {given!r:.80}; write a preset's name, inherit, or a preset with settings"
        )
    settings = dict(cast("Mapping[str, Any]", given))
    preset = settings.pop("preset", None)
    if "extra_headers" in settings:
        raise DefinitionError("model can't set extra_headers; give them to the provider in code")
    return AgentModel(preset=preset, settings=_convert(settings, ModelSettings, "model"))


def _convert(given: Mapping[str, Any], kind: type[Value], field: str) -> Value:
    unknown = [name for name in given if name not in kind.__struct_fields__]
    if unknown:
        known = ", ".join(kind.__struct_fields__)
        raise DefinitionError(f"{field} has unknown fields: {_join_names(unknown)}; known: {known}")
    try:
        return convert(given, kind)
    except ValidationError as error:
        raise DefinitionError(f"{field}: {error}") from None


def _join_names(names: Iterable[str]) -> str:
    return ", ".join(f"{name!s:.60}" for name in names)
