"""What the fields of an agent definition mean, in the many ways people write them."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, cast

from msgspec import Struct, ValidationError, convert

from stepwell.agent.spec import AgentModel, AgentSpec
from stepwell.agent.spec_checks import normal_name, split_names
from stepwell.agent.yaml_values import DefinitionError
from stepwell.models import ModelSettings
from stepwell.state import Budget

Value = TypeVar("Value", bound=Struct)
_Tools = tuple[tuple[str, ...] | None, tuple[str, ...]]

FIELD_ALIASES = {
    "prompt": "system_prompt",
    "disallowed_tools": "denied_tools",
    "allowed_tools": "tools",
    "max_turns": "max_steps",
}
"""What other programs call our fields."""

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
"""What other programs write beside the model and we write into it."""
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
"""What other programs write into such files: kept in the metadata, never acted upon."""

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
    """The fields of one definition under their normal names, and the notes that reading adds."""

    def __init__(self, given: Mapping[str, Any], notes: list[str]) -> None:
        self.notes = notes
        self.fields: dict[str, Any] = {}
        self._written: dict[str, str] = {}
        for key, value in given.items():
            name = normal_name(key, FIELD_ALIASES)
            if name in self.fields:
                raise DefinitionError(
                    f"{name} is given twice, as {self._written[name]!r} and {key!r}; keep one"
                )
            self.fields[name] = value
            self._written[name] = key

    def check(self, *, allow_unknown: bool) -> None:
        """Refuse definitions that lack something, or have fields that nobody knows."""
        faults: list[str] = []
        required = ("name", "description", "system_prompt")
        lacking = [name for name in required if self.fields.get(name) is None]
        if lacking:
            faults.append(f"lacks {' and '.join(lacking)}")
        known = _FOREIGN_FIELDS.union(_FIELDS)
        unknown = [key for name, key in self._written.items() if name not in known]
        if unknown and allow_unknown:
            self.notes.append(f"kept unknown fields as metadata: {_listed(unknown)}")
        elif unknown:
            faults.append(f"has unknown fields: {_listed(unknown)}; known: {', '.join(_FIELDS)}")
        if faults:
            raise DefinitionError("; ".join(faults))

    def spec(self) -> AgentSpec:
        """The spec; raises ``ConfigurationError`` for values of the wrong kind."""
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
        """The tools it asks for and those it takes away."""
        given = self.fields.get("tools")
        if self._written.get("tools", "tools").lower().startswith("allowed"):
            self.notes.append(f"read {self._written['tools']} as tools")
        if given is None:
            if "tools" in self.fields:
                self.notes.append("tools has no value, so it inherits all; write [] for none")
            return None, ()
        if isinstance(given, Mapping):
            return self._switched(cast("Mapping[str, Any]", given))
        names = _names(given, "tools")
        self._note_limits(names)
        if not names and given != []:
            self.notes.append("tools is empty, so it has none; remove the field to inherit all")
        word = given.strip().lower() if isinstance(given, str) else ""
        if word == _ALL:
            return None, ()
        return (() if word == _NONE else names), ()

    def _switched(self, switches: Mapping[str, Any]) -> _Tools:
        """Tools as a mapping of names to true or false."""
        for name, is_on in switches.items():
            if not isinstance(is_on, bool):
                raise DefinitionError(f"tools: {name} is {is_on!r:.40}; write true or false")
        chosen = tuple(name for name, is_on in switches.items() if is_on and name != "*")
        if switches.get("*") is False:
            return chosen, ()
        if chosen and all(switches.values()):
            self.notes.append(
                'tools as a mapping only switches tools off, so it has all; add "*": false to have '
                f"only {_listed(chosen)}"
            )
        return None, tuple(name for name, is_on in switches.items() if not is_on)

    def _note_limits(self, names: Iterable[str]) -> None:
        limited = [name for name in names if "(" in name]
        if limited:
            self.notes.append(
                f"limits on arguments are not supported, so these are not offered: "
                f"{_listed(limited)}; name the tool alone to offer all of it"
            )

    def _model(self) -> str | AgentModel | None:
        """The model, with the settings that stand beside it; its own win."""
        model = _model(self.fields.get("model"))
        beside = {name: self.fields[name] for name in _SETTINGS if self._is_setting(name)}
        if not beside:
            return model
        if not isinstance(model, AgentModel):
            model = AgentModel(preset=model)
        settings = _converted(beside, ModelSettings, "the definition")
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
            name = normal_name(key, _BUDGET_ALIASES)
            if name in amounts:
                raise DefinitionError(f"the budget gives {name} twice; keep one")
            amounts[name] = amount
        return _converted(amounts, Budget, "budget")

    def _metadata(self) -> dict[str, Any]:
        given = self.fields.get("metadata")
        if not isinstance(given, Mapping | None):
            raise DefinitionError(f"metadata is {given!r:.80}; write named values")
        used = [*_FIELDS, *(name for name in _SETTINGS if self._is_setting(name))]
        kept = {key: name for name, key in self._written.items() if name not in used}
        idle = [key for key, name in kept.items() if name in _WITHOUT_EFFECT | _SETTINGS]
        if idle:
            self.notes.append(f"without effect here: {_listed(idle)}")
        return {**(given or {}), **{key: self.fields[name] for key, name in kept.items()}}


def names_given(given: Any, field: str, split: Callable[[str], tuple[str, ...]]) -> tuple[str, ...]:
    """Names from a text or from a list of texts, each of which may hold several."""
    if given is None:
        return ()
    if not isinstance(given, str | list | tuple):
        raise DefinitionError(f"{field} is {given!r:.80}; write a list of names")
    names: list[str] = []
    for entry in [given] if isinstance(given, str) else cast("Iterable[Any]", given):
        if not isinstance(entry, str):
            raise DefinitionError(f"{field} holds {entry!r:.80}; write names, in quotes if needed")
        names.extend(split(entry))
    return tuple(dict.fromkeys(names))


def _names(given: Any, field: str) -> tuple[str, ...]:
    """Names with commas or lines between them; blanks as well where there is nothing else."""
    is_plain = isinstance(given, str) and not _SEPARATOR.search(given)
    return names_given(given.split() if is_plain else given, field, split_names)


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
    return AgentModel(preset=preset, settings=_converted(settings, ModelSettings, "model"))


def _converted(given: Mapping[str, Any], kind: type[Value], field: str) -> Value:
    unknown = [name for name in given if name not in kind.__struct_fields__]
    if unknown:
        known = ", ".join(kind.__struct_fields__)
        raise DefinitionError(f"{field} has unknown fields: {_listed(unknown)}; known: {known}")
    try:
        return convert(given, kind)
    except ValidationError as error:
        raise DefinitionError(f"{field}: {error}") from None


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"{name!s:.60}" for name in names)
