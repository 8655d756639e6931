"""Arguments of any type that pydantic knows: JSON schema, conversion, and complaints in words.

Loads pydantic, which takes a tenth of a second; ``Signature`` does without it for plain types.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NotRequired, Required, cast, get_args, get_origin

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticSerializationError, to_jsonable_python
from typing_extensions import TypedDict

from stepwell.errors import InvalidToolArgumentsError, InvalidToolError
from stepwell.tools.plain_types import Parameter
from stepwell.tools.secret_arguments import secret_arguments

_VALUES = ("default", "const", "enum", "examples")


class PydanticArguments:
    """The arguments of one tool as pydantic sees them."""

    def __init__(self, parameters: Sequence[Parameter], tool_name: str) -> None:
        self.tool_name = tool_name
        fields = {parameter.name: self._field(parameter) for parameter in parameters}
        self._adapter = self._make_adapter(fields)
        self.schema = _without_titles(self._json_schema())
        self._secret = secret_arguments(self.schema)

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments with their types; nothing in them is shared with what was given."""
        try:
            return self._adapter.validate_python(_copy_containers(dict(arguments)))
        except RecursionError:
            raise InvalidToolArgumentsError(
                f"The arguments of tool {self.tool_name!r} are nested too deeply; flatten them."
            ) from None
        except ValidationError as error:
            raise InvalidToolArgumentsError(self._complaint(error)) from None

    def _make_adapter(self, fields: dict[str, Any]) -> TypeAdapter[dict[str, Any]]:
        try:
            arguments: Any = cast("Any", TypedDict)(f"{self.tool_name}_arguments", fields)
            arguments.__pydantic_config__ = ConfigDict(extra="forbid")
            return TypeAdapter[dict[str, Any]](arguments)
        except PydanticUserError as error:
            raise self._no_schema(error) from None

    def _json_schema(self) -> dict[str, Any]:
        try:
            return self._adapter.json_schema()
        except PydanticUserError as error:
            raise self._no_schema(error) from None

    def _no_schema(self, error: PydanticUserError) -> InvalidToolError:
        return InvalidToolError(
            f"the parameters of tool {self.tool_name!r} have no JSON schema: use plain types, "
            "dataclasses, TypedDicts or pydantic models (for the state take a ToolContext). "
            f"{error.message.splitlines()[0]}"
        )

    def _field(self, parameter: Parameter) -> Any:
        notes: dict[str, Any] = {}
        if parameter.description and not _is_described(parameter.hint):
            notes["description"] = parameter.description
        if not parameter.is_required:
            notes["json_schema_extra"] = {"default": self._json_default(parameter)}
        hint = Annotated[parameter.hint, Field(**notes)] if notes else parameter.hint
        return Required[hint] if parameter.is_required else NotRequired[hint]

    def _json_default(self, parameter: Parameter) -> Any:
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

    def _complaint(self, error: ValidationError) -> str:
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
        known = ", ".join(self.schema.get("properties", {})) or "(none)"
        text = "; ".join(complaint for complaint in complaints if complaint)
        return f"Invalid arguments for tool {self.tool_name!r}: {text}. It takes: {known}."


def takes_none(hint: Any) -> bool:
    """Whether None is a value of that type."""
    try:
        TypeAdapter[Any](hint).validate_python(None)
    except ValidationError:
        return False
    return True


def _is_described(hint: Any) -> bool:
    notes = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return any(isinstance(note, FieldInfo) and note.description for note in notes)


def _without_titles(schema: dict[str, Any]) -> dict[str, Any]:
    """Pydantic's generated titles repeat the names; without them the prompt is shorter."""

    def clean(node: Any, is_properties: bool = False) -> Any:
        if isinstance(node, list):
            return [clean(item) for item in cast("list[Any]", node)]
        if not isinstance(node, dict):
            return node
        mapping = cast("dict[str, Any]", node)
        return {
            key: value
            if key in _VALUES and not is_properties
            else clean(value, key in ("properties", "$defs") and not is_properties)
            for key, value in mapping.items()
            if is_properties or key != "title" or not isinstance(value, str)
        }

    return clean(schema)


def _copy_containers(value: Any) -> Any:
    """Copy containers, so that a tool that changes its arguments does not change the history."""
    if type(value) is dict:
        return {key: _copy_containers(item) for key, item in cast("dict[Any, Any]", value).items()}
    if type(value) is list:
        return [_copy_containers(item) for item in cast("list[Any]", value)]
    return value
