"""From a function's signature to a JSON schema and a validator."""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, partial
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    NotRequired,
    Required,
    TypedDict,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from msgspec import ValidationError, convert
from msgspec.structs import replace

from stepwell.errors import ConfigurationError, InvalidToolError
from stepwell.models import ToolSchema
from stepwell.run_context import Principal
from stepwell.tools import plain_types
from stepwell.tools.context import ContextNeeds, ToolContext
from stepwell.tools.docstrings import Described
from stepwell.tools.plain_types import Parameter, plain_parameters

if TYPE_CHECKING:
    from stepwell.tools.pydantic_arguments import PydanticArguments

_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Signature:
    """What a tool function takes: the schema for the model, a validator, where context goes."""

    def __init__(self, function: Callable[..., Any], tool_name: str, words: Described) -> None:
        self.tool_name = tool_name
        self.context_parameters: tuple[str, ...] = ()
        self._parameters: dict[str, Parameter] = {}
        self.principal_parameters: tuple[str, ...] = ()
        deps: Any = None
        hints = _hints(function, tool_name)
        for name, parameter in inspect.signature(function).parameters.items():
            self._refuse_odd(parameter)
            if name not in hints:
                raise InvalidToolError(_complain_about_hint(name, tool_name))
            if _is_context(hints[name]):
                self.context_parameters += (name,)
                deps = deps or _deps_type(hints[name])
            elif _names_type(hints[name], Principal):
                self.principal_parameters += (name,)
            else:
                self._parameters[name] = Parameter(
                    name, hints[name], parameter.default, words.parameters.get(name)
                )
        schema = plain_parameters(tuple(self._parameters.values()))
        self._is_plain = schema is not None
        self.parameters = self._by_pydantic.schema if schema is None else schema
        self._may_be_unset = {
            name: parameter.hint
            for name, parameter in self._parameters.items()
            if not parameter.is_required
        }
        self.needs = ContextNeeds(principal=bool(self.principal_parameters), deps=deps)

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments with their types; nothing in them is shared with the message history.

        None for an argument with a default whose type does not take None counts as not given:
        models write null for what they leave out.
        """
        given = arguments
        if self._may_be_unset and None in arguments.values():
            given = {
                name: value
                for name, value in arguments.items()
                if value is not None or self._takes_none(name)
            }
        if self._is_plain and given.keys() <= self._parameters.keys():
            try:
                return convert(given, self._plain_type)
            except (ValidationError, RecursionError):
                pass  # pydantic may convert it, or says in words what is wrong
        return self._by_pydantic.validate(given)

    @cached_property
    def _plain_type(self) -> "type[dict[str, Any]]":
        fields = {
            name: Required[it.hint] if it.is_required else NotRequired[it.hint]
            for name, it in self._parameters.items()
        }
        return cast("Any", TypedDict)("Arguments", fields)

    @cached_property
    def _by_pydantic(self) -> "PydanticArguments":
        from stepwell.tools.pydantic_arguments import PydanticArguments

        return PydanticArguments(tuple(self._parameters.values()), self.tool_name)

    def _takes_none(self, name: str) -> bool:
        """Whether None is a value of that argument, or it has to be refused by validation."""
        if name not in self._may_be_unset:
            return True
        known = self._may_be_unset[name]
        if not isinstance(known, bool):
            known = self._may_be_unset[name] = self._admits_none(known)
        return known

    def _admits_none(self, hint: Any) -> bool:
        if self._is_plain:
            return plain_types.takes_none(hint)
        from stepwell.tools import pydantic_arguments

        return pydantic_arguments.takes_none(hint)

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


def _complain_about_hint(name: str, tool_name: str) -> str:
    if name in ("self", "cls"):
        return (
            f"tool {tool_name!r} is a method that is not bound; give the bound one, for "
            f"example tools=[my_object.{tool_name}], or write a BaseTool"
        )
    return (
        f"parameter {name!r} of tool {tool_name!r} has no type hint; write for "
        f"example `{name}: str`, so that the model knows what to send"
    )


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
    return _names_type(hint, ToolContext)


def _names_type(hint: Any, wanted: type) -> bool:
    """Whether a hint is that type, also in an ``Annotated``, an optional, or with parameters."""
    if get_origin(hint) is Annotated:
        return _names_type(get_args(hint)[0], wanted)
    return any(it is wanted or get_origin(it) is wanted for it in (hint, *get_args(hint)))


def _deps_type(hint: Any) -> Any:
    """The type in ``ToolContext[Deps]``; None where it says nothing."""
    if get_origin(hint) is Annotated:
        return _deps_type(get_args(hint)[0])
    for it in (hint, *get_args(hint)):
        if get_origin(it) is ToolContext and get_args(it)[0] is not Any:
            return get_args(it)[0]
    return None


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
