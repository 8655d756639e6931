"""JSON schemas in the dialects that providers can enforce. Pure functions.

A schema is first rewritten into a provider's dialect: constraints without a keyword there go into
descriptions. If something unsupported remains, the provider can't enforce the schema.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from msgspec import Struct

from stepwell.models.wire.format import Json, json_text

_BOUNDS = frozenset(
    {
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("minItems", "maxItems", "pattern"),
    }
)
_WORDS = _BOUNDS | {"minLength", "maxLength", "uniqueItems", "examples"}
_LEFT_OUT = frozenset({"discriminator", "$schema", "$id", "$comment"})
_KEYWORDS = frozenset(
    {
        *("type", "properties", "required", "additionalProperties", "items", "enum", "const"),
        *("anyOf", "$ref", "$defs", "definitions", "description", "title", "format"),
    }
)
_FORMATS = frozenset(
    {
        *("date-time", "time", "date", "duration", "email"),
        *("hostname", "ipv4", "ipv6", "uuid"),
    }
)
_DEFINITIONS = ("$defs", "definitions")
_UNSUPPORTED_PATTERN = re.compile(r"\(\?(?!:)|\\[1-9]")


class _Dialect(Struct, frozen=True, kw_only=True):
    """The JSON schema features that a provider supports."""

    keywords: frozenset[str]
    formats: frozenset[str]
    words: frozenset[str]
    typed: frozenset[str]
    """Every schema needs one of these keywords."""
    needs_all: bool
    """Whether all properties are required and the root must be an object."""
    may_recur: bool


_OPENAI = _Dialect(
    keywords=_KEYWORDS | _BOUNDS,
    formats=_FORMATS,
    words=_WORDS - _BOUNDS,
    typed=frozenset({"type", "$ref", "anyOf", "enum", "const"}),
    needs_all=True,
    may_recur=True,
)
_ANTHROPIC = _Dialect(
    keywords=_KEYWORDS,
    formats=_FORMATS | {"uri"},
    words=_WORDS | {"default"},
    typed=frozenset({"type", "$ref", "anyOf"}),
    needs_all=False,
    may_recur=False,
)


def strict_form(schema: Mapping[str, Any], wanted: bool) -> tuple[Mapping[str, Any], bool]:
    """Return the schema for OpenAI, and whether it can be enforced.

    >>> strict_form({"type": "object", "properties": {}}, True)
    ({'type': 'object', 'properties': {}, 'additionalProperties': False}, True)
    """
    form = _form(schema, _OPENAI) if wanted else None
    return (schema, False) if form is None else (form, True)


def anthropic_form(schema: Mapping[str, Any]) -> Json | None:
    """Return the schema for Anthropic, or None if it can't be enforced.

    >>> anthropic_form({"type": "integer", "minimum": 1})
    {'type': 'integer', 'description': 'minimum: 1'}
    """
    return _form(schema, _ANTHROPIC)


def _form(schema: Mapping[str, Any], dialect: _Dialect) -> Json | None:
    form = _rewrite(_inline_root_reference(schema), dialect)
    if dialect.needs_all and (form.get("type") != "object" or "anyOf" in form):
        return None
    if not all(_fits(node, dialect) for node in _nodes(form)):
        return None
    links = _links(form)
    resolved = all(leads_to <= links.keys() for leads_to in links.values())
    return form if resolved and (dialect.may_recur or _has_no_cycle(links)) else None


def _inline_root_reference(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Replace a reference at the root by its target, as recursive models have it."""
    _, key, name = (*str(schema.get("$ref")).split("/", 2), "", "")[:3]
    parts = schema.get(key) if key in _DEFINITIONS else None
    part = cast("Json", parts).get(name) if isinstance(parts, Mapping) else None
    if not isinstance(part, Mapping):
        return schema
    return {**cast("Json", part), **{key: schema[key] for key in schema if key != "$ref"}}


def _rewrite(node: Mapping[str, Any], dialect: _Dialect) -> Json:
    copy: Json = {}
    words: list[str] = []
    for key, value in node.items():
        if _goes_into_description(key, value, dialect):
            words.append(f"{key}: {json_text(value)}")
        elif key == "oneOf" and "anyOf" not in node:
            copy["anyOf"] = _inner("anyOf", value, dialect)
        elif key not in _LEFT_OUT:
            copy[key] = _inner(key, value, dialect)
    if "properties" in copy:
        copy.setdefault("additionalProperties", False)
    if words:
        known, more = copy.get("description"), ", ".join(words)
        copy["description"] = f"{known} ({more})" if known else more
    if "$ref" in copy and len(copy) > 1 and "anyOf" not in copy:
        copy["anyOf"] = [{"$ref": copy.pop("$ref")}]  # OpenAI allows nothing beside a reference
    return copy


def _goes_into_description(key: str, value: Any, dialect: _Dialect) -> bool:
    """Return whether a keyword is only described."""
    if key == "format":
        return str(value) not in dialect.formats
    if key == "pattern" and _UNSUPPORTED_PATTERN.search(str(value)):
        return True
    return key in dialect.words


def _inner(key: str, value: Any, dialect: _Dialect) -> Any:
    """Rewrite the schemas under a keyword. Other values stay."""
    match key, value:
        case (("properties" | "$defs" | "definitions"), Mapping()):
            named = cast("Mapping[str, Any]", value)
            return {name: _inner("items", part, dialect) for name, part in named.items()}
        case "items", Mapping():
            return _rewrite(cast("Mapping[str, Any]", value), dialect)
        case "anyOf", list():
            return [_inner("items", part, dialect) for part in cast("list[Any]", value)]
        case _:
            return value


def _nodes(node: Any) -> Iterator[Any]:
    """Yield the schema and all schemas in it, valid or not."""
    yield node
    if not isinstance(node, Mapping):
        return
    for key, value in cast("Mapping[str, Any]", node).items():
        match key, value:
            case (("properties" | "$defs" | "definitions"), Mapping()):
                inner = list(cast("Mapping[str, Any]", value).values())
            case "anyOf", list():
                inner = cast("list[Any]", value)
            case (("properties" | "$defs" | "definitions" | "items" | "anyOf"), _):
                inner = [value]
            case _:
                continue
        for part in inner:
            yield from _nodes(part)


def _fits(node: Any, dialect: _Dialect) -> bool:
    if not isinstance(node, Mapping):
        return False
    schema = cast("Mapping[str, Any]", node)
    if not schema.keys() <= dialect.keywords or schema.keys().isdisjoint(dialect.typed):
        return False
    if "$ref" in schema and len(schema) > 1:
        return False
    values = (*(schema.get("enum") or ()), schema.get("const"))
    if any(isinstance(value, dict | list) for value in values):
        return False
    kinds = schema.get("type") or ()
    if "array" in kinds and "items" not in schema:
        return False
    if "object" not in kinds and "properties" not in schema:
        return True
    if "properties" not in schema or schema.get("additionalProperties") is not False:
        return False
    optional = set(schema["properties"]) - set(schema.get("required") or ())
    return not (dialect.needs_all and optional)


def _links(form: Json) -> dict[str, set[str]]:
    """Return the references from each definition to others. ``#`` is the root."""
    parts = {"#": {key: form[key] for key in form if key not in _DEFINITIONS}}
    for key in _DEFINITIONS:
        parts |= {f"#/{key}/{name}": part for name, part in form.get(key, {}).items()}
    return {
        name: {str(node["$ref"]) for node in _nodes(part) if "$ref" in node}
        for name, part in parts.items()
    }


def _has_no_cycle(links: dict[str, set[str]]) -> bool:
    """Return whether no definition refers back to itself."""
    while ends := {name for name, leads_to in links.items() if not leads_to & links.keys()}:
        links = {name: links[name] for name in links if name not in ends}
    return not links
