"""A type as an output format: the schema to ask for, and how to read and judge an answer."""

import re
from collections.abc import Mapping
from contextlib import suppress
from inspect import isroutine
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from msgspec import json, to_builtins

from stepwell.errors import ConfigurationError, text_of
from stepwell.messages import FinishReason
from stepwell.models import ResponseFormat

if TYPE_CHECKING:
    from pydantic import ValidationError

_FENCED = re.compile(r"\s*```(?:json)?\s*\n(.*)\n\s*```\s*", re.DOTALL)


class _Adapter(Protocol):
    """Reads and writes values of one type."""

    def validate_json(self, data: str | bytes, /) -> Any:
        """The value; raises ``ValueError`` if the text does not fit."""
        ...

    def dump_python(self, instance: Any, /, *, mode: Literal["json"]) -> Any:
        """The value as JSON data."""
        ...


class _StructAdapter:
    """The same for types that hold msgspec structs, which pydantic does not know."""

    def __init__(self, output_type: Any) -> None:
        self._type = output_type

    def validate_json(self, data: str | bytes, /) -> Any:
        return json.decode(data, type=self._type)

    def dump_python(self, instance: Any, /, *, mode: Literal["json"]) -> Any:  # noqa: ARG002 - as pydantic's
        return to_builtins(instance)

    def schema(self) -> dict[str, Any]:
        schema = json.schema(self._type)
        own = schema.pop("$ref", "").removeprefix("#/$defs/")
        return {**schema, **schema["$defs"][own]} if own else schema


class OutputType:
    """Reads answers as values of a type: a pydantic model, a dataclass, a TypedDict, a msgspec
    struct, ``list[int]``.

    What is no object is asked for as the only property of one, since providers want an object.

    >>> OutputType(list[int]).parse('{"result": [1, 2]}')
    [1, 2]
    """

    def __init__(self, output_type: Any) -> None:
        self._adapter, schema = _adapter(output_type)
        self._is_wrapped = schema.get("type") != "object"
        if self._is_wrapped:
            schema = _wrap(schema)
        self.format = ResponseFormat(schema=schema, name=_name(output_type))

    def parse(self, text: str) -> Any:
        """The value that an answer holds; raises ``ValueError`` or ``TypeError`` if none fits."""
        text = strip_fence(text)
        if not self._is_wrapped:
            return self._adapter.validate_json(text)
        try:
            found = json.decode(text)
        except ValueError:
            return self._adapter.validate_json(text)  # raises, and says what is wrong
        if not (isinstance(found, dict) and "result" in found):
            return self._adapter.validate_json(text)
        try:
            return self._adapter.validate_json(json.encode(found["result"]))
        except ValueError as error:
            return self._unwrap(text, error)

    def _unwrap(self, text: str, wrong: ValueError) -> Any:
        """Read a value without the wrapper whose own field is called ``result``."""
        try:
            return self._adapter.validate_json(text)
        except ValueError:
            raise wrong from None

    def dump(self, value: Any) -> Any:
        """The value as JSON data."""
        return self._adapter.dump_python(value, mode="json")


def strip_fence(text: str) -> str:
    """What a model put into a Markdown fence, as they like to do with JSON."""
    fenced = _FENCED.fullmatch(text)
    return fenced[1] if fenced else text


def complaint(error: Exception, text: str, finish_reason: FinishReason | None) -> str:
    """What is wrong with an answer that could not be read, in words that its author can act on."""
    if not text.strip():
        return "it is empty"
    if not hasattr(error, "errors"):
        return f"it can't be read ({text_of(error)})"
    wrong: list[str] = []
    for entry in cast("ValidationError", error).errors(include_url=False)[:10]:
        place = ".".join(str(part) for part in entry["loc"])
        is_plain = entry["type"] in ("missing", "json_invalid")
        got = "" if is_plain else f" (got {entry['input']!r:.80})"
        wrong.append(f"{place}: {entry['msg']}{got}" if place else f"{entry['msg']}{got}")
    was_cut = finish_reason is FinishReason.LENGTH
    return "; ".join(wrong) + ("; it was cut off at max_tokens" if was_cut else "")


def _adapter(output_type: Any) -> "tuple[_Adapter, dict[str, Any]]":
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticUserError
    from pydantic_core import SchemaError

    wanted = "use a pydantic model, a dataclass, a TypedDict, a msgspec struct or plain types"
    if isroutine(output_type) or isinstance(output_type, Mapping):
        raise ConfigurationError(f"{output_type!r:.80} can't be an output type: {wanted}")
    try:
        adapter = TypeAdapter[Any](output_type)
        return adapter, adapter.json_schema()
    except (PydanticUserError, SchemaError, TypeError) as error:
        with suppress(TypeError):
            structs = _StructAdapter(output_type)
            return structs, structs.schema()
        why = str(error).splitlines()[0]
        raise ConfigurationError(
            f"{output_type!r:.80} can't be an output type: {wanted}. {why}"
        ) from None


def _wrap(schema: dict[str, Any]) -> dict[str, Any]:
    """Providers want an object; what is none becomes the only property of one."""
    definitions = schema.pop("$defs", None)
    wrapped = {
        "type": "object",
        "properties": {"result": schema},
        "required": ["result"],
        "additionalProperties": False,
    }
    return {**wrapped, "$defs": definitions} if definitions else wrapped


def _name(output_type: Any) -> str:
    """A name that all providers accept."""
    name = getattr(output_type, "__name__", "") or "output"
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64]
