"""From a function's signature to a JSON schema and a validator, through pydantic."""

import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args, get_origin, get_type_hints

from msgspec.structs import replace

from stepwell.errors import ConfigurationError, InvalidToolArgumentsError, InvalidToolError
from stepwell.models import ToolSchema
from stepwell.tools.context import ToolContext
from stepwell.tools.docstrings import Described
from stepwell.tools.secrets import secret_arguments

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_VALUES = ("default", "const", "enum", "examples")
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Signature:
    """What a tool function takes: the schema for the model, a validator, where context goes."""

    def __init__(self, function: Callable[..., Any], tool_name: str, words: Described) -> None:
        from pydantic import ValidationError

        self._invalid = ValidationError
        self.tool_name = tool_name
        self.context_parameters: tuple[str, ...] = ()
        self._optional: dict[str, Any] = {}
        self._admits_none: dict[str, bool] = {}
        hints = _hints(function, tool_name)
        fields: dict[str, Any] = {}
        for name, parameter in inspect.signature(function).parameters.items():
            self._refuse_odd(parameter)
            if name not in hints and name in ("self", "cls"):
                raise InvalidToolError(
                    f"tool {tool_name!r} is a method that is not bound; give the bound one, for "
                    f"example tools=[my_object.{tool_name}], or write a BaseTool"
                )
            if name not in hints:
                raise InvalidToolError(
                    f"parameter {name!r} of tool {tool_name!r} has no type hint; write for "
                    f"example `{name}: str`, so that the model knows what to send"
                )
            if _is_context(hints[name]):
                self.context_parameters += (name,)
            else:
                fields[name] = self._field(parameter, hints[name], words.parameters.get(name))
                if parameter.default is not inspect.Parameter.empty:
                    self._optional[name] = hints[name]
        self._adapter, schema = _adapter(fields, tool_name)
        self.parameters = _without_titles(schema)
        self._secret = secret_arguments(self.parameters)

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments with their types; nothing in them is shared with the message history.

        None for an argument with a default whose type does not take None counts as not given:
        models write null for what they leave out.
        """
        given = {
            name: value
            for name, value in arguments.items()
            if value is not None or self._takes_none(name)
        }
        try:
            return self._adapter.validate_python(_copied(given))
        except RecursionError:
            raise InvalidToolArgumentsError(
                f"The arguments of tool {self.tool_name!r} are nested too deeply; flatten them."
            ) from None
        except self._invalid as error:
            raise InvalidToolArgumentsError(self._complaint(error)) from None

    def _takes_none(self, name: str) -> bool:
        if name not in self._optional:
            return True
        if name not in self._admits_none:
            from pydantic import TypeAdapter

            try:
                TypeAdapter[Any](self._optional[name]).validate_python(None)
                self._admits_none[name] = True
            except self._invalid:
                self._admits_none[name] = False
        return self._admits_none[name]

    def _refuse_odd(self, parameter: inspect.Parameter) -> None:
        if parameter.kind in _VARIADIC:
            raise InvalidToolError(
                f"tool {self.tool_name!r} takes {parameter}, which no schema can describe; name "
                "each parameter, or take one `dict[str, Any]`"
            )
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            raise InvalidToolError(
                f"parameter {parameter.name!r} of tool {self.tool_name!r} is positional-only; "
                "models send arguments by name, so remove the `/`"
            )

    def _field(self, parameter: inspect.Parameter, hint: Any, description: str | None) -> Any:
        from typing import NotRequired, Required

        from pydantic import Field

        required = parameter.default is inspect.Parameter.empty
        notes: dict[str, Any] = {}
        if description and not _is_described(hint):
            notes["description"] = description
        if not required:
            notes["json_schema_extra"] = {"default": self._json_default(parameter)}
        described_hint = Annotated[hint, Field(**notes)] if notes else hint
        return Required[described_hint] if required else NotRequired[described_hint]

    def _json_default(self, parameter: inspect.Parameter) -> Any:
        from pydantic.fields import FieldInfo
        from pydantic_core import PydanticSerializationError, to_jsonable_python

        if isinstance(parameter.default, FieldInfo):
            raise InvalidToolError(
                f"parameter {parameter.name!r} of tool {self.tool_name!r} has a Field as its "
                f"default; write `{parameter.name}: Annotated[..., Field(...)] = default`"
            )
        try:
            default = to_jsonable_python(parameter.default)
            json.dumps(default, allow_nan=False)
        except (PydanticSerializationError, ValueError) as error:
            raise InvalidToolError(
                f"the default of parameter {parameter.name!r} of tool {self.tool_name!r} cannot be "
                f"written as JSON ({error}); use None and fill it in inside the function"
            ) from None
        return default

    def _complaint(self, error: "ValidationError") -> str:
        missing: list[str] = []
        unknown: list[str] = []
        wrong: list[str] = []
        for entry in error.errors(include_url=False):
            place = ".".join(str(step) for step in entry["loc"])
            if entry["type"] == "missing":
                missing.append(place)
            elif entry["type"] == "extra_forbidden":
                unknown.append(place)
            else:
                shown = "" if entry["loc"][0] in self._secret else f" (got {entry['input']!r:.80})"
                wrong.append(f"{place}: {entry['msg']}{shown}")
        complaints = [
            f"missing required arguments: {', '.join(missing)}" if missing else "",
            f"unknown arguments: {', '.join(unknown)}" if unknown else "",
            "; ".join(wrong),
        ]
        known = ", ".join(self.parameters.get("properties", {})) or "(none)"
        text = "; ".join(complaint for complaint in complaints if complaint)
        return f"Invalid arguments for tool {self.tool_name!r}: {text}. It takes: {known}."


def _hints(function: Callable[..., Any], tool_name: str) -> dict[str, Any]:
    if isinstance(function, partial):
        return _hints(function.func, tool_name)
    target = function if inspect.isroutine(function) else type(function).__call__
    try:
        return get_type_hints(target, include_extras=True)
    except NameError as error:
        raise InvalidToolError(
            f"a type hint of tool {tool_name!r} cannot be resolved: {error}; define the type at "
            "module level, or without `from __future__ import annotations`"
        ) from None


def _is_context(hint: Any) -> bool:
    if get_origin(hint) is Annotated:
        return _is_context(get_args(hint)[0])
    return hint is ToolContext or any(arg is ToolContext for arg in get_args(hint))


def _is_described(hint: Any) -> bool:
    from pydantic.fields import FieldInfo

    notes = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return any(isinstance(note, FieldInfo) and note.description for note in notes)


def _adapter(
    fields: dict[str, Any], tool_name: str
) -> "tuple[TypeAdapter[dict[str, Any]], dict[str, Any]]":
    """The validator of the arguments, and their JSON schema."""
    from pydantic import ConfigDict, TypeAdapter
    from pydantic.errors import PydanticUserError
    from typing_extensions import TypedDict

    try:
        arguments: Any = cast("Any", TypedDict)(f"{tool_name}_arguments", fields)
        arguments.__pydantic_config__ = ConfigDict(extra="forbid")
        adapter = TypeAdapter[dict[str, Any]](arguments)
        return adapter, adapter.json_schema()
    except PydanticUserError as error:
        raise InvalidToolError(
            f"the parameters of tool {tool_name!r} have no JSON schema: use plain types, "
            "dataclasses, TypedDicts or pydantic models (for the state take a ToolContext). "
            f"{error.message.splitlines()[0]}"
        ) from None


def _without_titles(schema: dict[str, Any]) -> dict[str, Any]:
    """Pydantic's generated titles repeat the names; without them the prompt is shorter."""

    def cleaned(node: Any, is_properties: bool = False) -> Any:
        if isinstance(node, list):
            return [cleaned(item) for item in cast("list[Any]", node)]
        if not isinstance(node, dict):
            return node
        mapping = cast("dict[str, Any]", node)
        return {
            key: value
            if key in _VALUES and not is_properties
            else cleaned(value, key in ("properties", "$defs") and not is_properties)
            for key, value in mapping.items()
            if is_properties or key != "title" or not isinstance(value, str)
        }

    return cleaned(schema)


def _copied(value: Any) -> Any:
    """Containers anew, so that a tool that changes its arguments does not change the history."""
    if type(value) is dict:
        return {key: _copied(item) for key, item in cast("dict[Any, Any]", value).items()}
    if type(value) is list:
        return [_copied(item) for item in cast("list[Any]", value)]
    return value


def with_choices(schema: ToolSchema, argument: str, choices: Iterable[str]) -> ToolSchema:
    """The schema, with the values that an argument may have when the tool is made."""
    properties = schema.parameters["properties"]
    chosen = {**properties, argument: {**properties[argument], "enum": list(choices)}}
    return replace(schema, parameters={**schema.parameters, "properties": chosen})


def required_name(name: str | None, fallback: str) -> str:
    """A tool's name, checked against what all providers accept."""
    chosen = name or fallback
    if not _TOOL_NAME.fullmatch(chosen):
        raise ConfigurationError(
            f"{chosen!r} cannot be a tool's name; use up to 64 letters, digits, _ and - (give "
            "lambdas and odd names one with name=...)"
        )
    return chosen
