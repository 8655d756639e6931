"""JSON schemas and validation for parameters of plain types, without loading pydantic.

Plain are str, int, float, bool and None, Literal and Enum of strings or integers, and list, dict
(with str keys), tuple and unions of these. Schemas are those that pydantic makes, without titles.
What is not exactly of its type is left to pydantic, which may convert it, and words the complaint.
"""

import inspect
import math
from collections.abc import Sequence
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from msgspec import Struct

Schema = dict[str, Any]
_SCALARS: dict[Any, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    None: "null",
    NoneType: "null",
}


class Parameter(Struct, frozen=True, eq=False):
    """One parameter of a tool function that the model can give."""

    name: str
    hint: Any
    default: Any = inspect.Parameter.empty
    description: str | None = None

    @property
    def is_required(self) -> bool:
        """Whether it has no default."""
        return self.default is inspect.Parameter.empty


def plain_parameters(parameters: Sequence[Parameter]) -> Schema | None:
    """The JSON schema of an object with these properties; None if one is not of a plain type.

    >>> plain_parameters([Parameter("count", int), Parameter("unit", str, "m")])["required"]
    ['count']
    """
    definitions: dict[str, Schema] = {}
    properties: dict[str, Schema] = {}
    for parameter in parameters:
        schema = _schema_of(parameter.hint, definitions)
        if schema is None:
            return None
        if parameter.description:
            schema["description"] = parameter.description
        if not parameter.is_required:
            default = parameter.default
            if isinstance(default, Enum):
                default = default.value
            if not _is_json_scalar(default):
                return None
            schema["default"] = default
        properties[parameter.name] = schema
    required = [parameter.name for parameter in parameters if parameter.is_required]
    found: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        found["required"] = required
    if definitions:
        found["$defs"] = definitions
    return found


def takes_none(hint: Any) -> bool:
    """Whether None is a value of that plain type.

    >>> takes_none(int | None), takes_none(Literal["a"])
    (True, False)
    """
    if hint is None or hint is NoneType:
        return True
    if get_origin(hint) in (Union, UnionType, Literal):
        return any(takes_none(arg) for arg in get_args(hint))
    return False


def _schema_of(hint: Any, definitions: dict[str, Schema]) -> Schema | None:
    word = _SCALARS.get(hint) if type(hint) is type or hint is None else None
    if word is not None:
        return {"type": word}
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _enum_schema(hint, definitions)
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal and (values := _values_schema(args)) is not None:
        return values if len(args) > 1 else {"const": values["enum"][0], "type": values["type"]}
    if origin is list and len(args) == 1:
        return _with_items({"type": "array"}, "items", args[0], definitions)
    if origin is dict and args[:1] == (str,):
        return _with_items({"type": "object"}, "additionalProperties", args[1], definitions)
    if origin is tuple:
        return _tuple_schema(args, definitions)
    if origin in (Union, UnionType):
        return _union_schema(args, definitions)
    return None


def _with_items(
    schema: Schema, key: str, hint: Any, definitions: dict[str, Schema]
) -> Schema | None:
    items = _schema_of(hint, definitions)
    return None if items is None else {**schema, key: items}


def _tuple_schema(args: tuple[Any, ...], definitions: dict[str, Schema]) -> Schema | None:
    if len(args) == 2 and args[1] is Ellipsis:
        return _with_items({"type": "array"}, "items", args[0], definitions)
    items = [_schema_of(arg, definitions) for arg in args]
    if not items or None in items:
        return None
    return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}


def _union_schema(args: tuple[Any, ...], definitions: dict[str, Schema]) -> Schema | None:
    """Of scalars, or of one other type and None: what a value is of is plain to see."""
    others = [arg for arg in args if arg not in _SCALARS]
    if others and len(args) - len(others) != takes_none(Union[args]):  # noqa: UP007 - made of a tuple
        return None
    if len(others) > 1:
        return None
    choices = [_schema_of(arg, definitions) for arg in args]
    return None if None in choices else {"anyOf": choices}


def _values_schema(values: Sequence[Any]) -> Schema | None:
    """Strings alone or integers alone, as in a Literal."""
    kinds: set[Any] = {type(value) for value in values}
    if kinds not in ({str}, {int}) or len(set(values)) != len(values):
        return None
    return {"enum": list(values), "type": _SCALARS[kinds.pop()]}


def _enum_schema(kind: type[Enum], definitions: dict[str, Schema]) -> Schema | None:
    values = [member.value for member in kind]
    schema = _values_schema(values) if values and "_missing_" not in vars(kind) else None
    known = definitions.get(kind.__name__)
    if schema is None or (known is not None and known["enum"] != schema["enum"]):
        return None
    description = inspect.cleandoc(kind.__doc__ or "")
    if description and description != "An enumeration.":
        schema["description"] = description
    definitions[kind.__name__] = schema
    return {"$ref": f"#/$defs/{kind.__name__}"}


def _is_json_scalar(value: Any) -> bool:
    if type(value) is float:
        return math.isfinite(value)
    return value is None or type(value) in (str, int, bool)
