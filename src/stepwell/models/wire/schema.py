"""JSON schemas as providers take them to promise an answer that fits. Only pure functions."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

_NOT_STRICT = frozenset(
    {
        *("allOf", "oneOf", "not", "if", "then", "else", "dependentRequired", "dependentSchemas"),
        *("patternProperties", "propertyNames", "unevaluatedProperties", "default"),
    }
)
_BOUNDS = frozenset(
    {
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("minLength", "maxLength", "minItems", "maxItems", "uniqueItems"),
    }
)
_NAMED = ("properties", "$defs", "definitions")
"""Keywords whose keys are names, not keywords."""

_VALUES = ("const", "default", "enum", "examples", "required")
"""Keywords under which there are values, not schemas."""


def closed(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The same schema, in which no object may have more than the properties it names.

    >>> closed({"type": "object", "properties": {"a": {}}})["additionalProperties"]
    False
    """
    copy = {key: _changed(key, value, closed) for key, value in schema.items()}
    if "properties" in copy:
        copy.setdefault("additionalProperties", False)
    return copy


def strict_form(schema: Mapping[str, Any], wanted: bool) -> tuple[Mapping[str, Any], bool]:
    """The schema for OpenAI, and whether the model can be held to it."""
    shut = closed(schema)
    return (shut, True) if wanted and is_strict(shut) else (schema, False)


def is_strict(schema: Mapping[str, Any]) -> bool:
    """Whether OpenAI can hold a model to it: every object is closed and needs all it names."""
    for node in _nodes(schema):
        if not _NOT_STRICT.isdisjoint(node):
            return False
        if node.get("type") == "object" or "properties" in node:
            properties = cast("Mapping[str, Any]", node.get("properties") or {})
            if node.get("additionalProperties") is not False:
                return False
            if set(properties) - set(cast("list[str]", node.get("required") or [])):
                return False
    return True


def is_closed(schema: Mapping[str, Any]) -> bool:
    """Whether every object names all it may have; Anthropic takes no others."""
    return all(
        node.get("additionalProperties") is False
        for node in _nodes(schema)
        if node.get("type") == "object" or "properties" in node
    )


def without_bounds(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Bounds of numbers, texts and lists as words of the description; Anthropic refuses them.

    >>> without_bounds({"type": "integer", "minimum": 1})
    {'type': 'integer', 'description': 'minimum: 1'}
    """
    copy = {
        key: _changed(key, value, without_bounds)
        for key, value in schema.items()
        if key not in _BOUNDS
    }
    bounds = ", ".join(f"{key}: {value}" for key, value in schema.items() if key in _BOUNDS)
    if bounds:
        known = copy.get("description")
        copy["description"] = f"{known} ({bounds})" if known else bounds
    return copy


def _changed(key: str, value: Any, change: Any) -> Any:
    return value if key in _VALUES else _mapped(value, change, key in _NAMED)


def _mapped(value: Any, change: Any, are_names: bool) -> Any:
    if isinstance(value, Mapping):
        mapping = cast("Mapping[str, Any]", value)
        if are_names:
            return {name: _mapped(inner, change, False) for name, inner in mapping.items()}
        return change(mapping)
    if isinstance(value, list):
        return [_mapped(item, change, False) for item in cast("list[Any]", value)]
    return value


def _nodes(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The schema and all schemas in it."""
    yield schema
    for key, value in schema.items():
        inner: list[Any] = []
        if key in _VALUES:
            continue
        if isinstance(value, Mapping):
            mapping = cast("Mapping[str, Any]", value)
            inner = list(mapping.values()) if key in _NAMED else [mapping]
        elif isinstance(value, list):
            inner = cast("list[Any]", value)
        for item in inner:
            if isinstance(item, Mapping):
                yield from _nodes(cast("Mapping[str, Any]", item))
