"""JSON schemas as providers take them to promise an answer that fits. Only pure functions.

A schema is rewritten into a provider's dialect first: what has no keyword there is told in words.
If something that matters is left then, that provider can't promise an answer that fits.
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
_LOOKING_AROUND = re.compile(r"\(\?(?!:)|\\[1-9]")


class _Dialect(Struct, frozen=True, kw_only=True):
    """What a provider takes."""

    keywords: frozenset[str]
    formats: frozenset[str]
    words: frozenset[str]
    typed: frozenset[str]
    """Of which keywords each schema needs one."""
    needs_all: bool
    """Whether an object needs all that it names, and the whole must be an object."""
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
    """The schema for OpenAI, and whether the model can be held to it.

    >>> strict_form({"type": "object", "properties": {}}, True)
    ({'type': 'object', 'properties': {}, 'additionalProperties': False}, True)
    """
    form = _form(schema, _OPENAI) if wanted else None
    return (schema, False) if form is None else (form, True)


def anthropic_form(schema: Mapping[str, Any]) -> Json | None:
    """The schema for Anthropic, None if the model can't be held to it.

    >>> anthropic_form({"type": "integer", "minimum": 1})
    {'type': 'integer', 'description': 'minimum: 1'}
    """
    return _form(schema, _ANTHROPIC)


def _form(schema: Mapping[str, Any], dialect: _Dialect) -> Json | None:
    form = _rewritten(_unfolded(schema), dialect)
    if dialect.needs_all and (form.get("type") != "object" or "anyOf" in form):
        return None
    if not all(_fits(node, dialect) for node in _nodes(form)):
        return None
    links = _links(form)
    resolved = all(leads_to <= links.keys() for leads_to in links.values())
    return form if resolved and (dialect.may_recur or _comes_to_an_end(links)) else None


def _unfolded(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """With what the whole refers to in place of the reference, as for models in themselves."""
    _, key, name = (*str(schema.get("$ref")).split("/", 2), "", "")[:3]
    parts = schema.get(key) if key in _DEFINITIONS else None
    part = cast("Json", parts).get(name) if isinstance(parts, Mapping) else None
    if not isinstance(part, Mapping):
        return schema
    return {**cast("Json", part), **{key: schema[key] for key in schema if key != "$ref"}}


def _rewritten(node: Mapping[str, Any], dialect: _Dialect) -> Json:
    copy: Json = {}
    told: list[str] = []
    for key, value in node.items():
        if _is_told(key, value, dialect):
            told.append(f"{key}: {json_text(value)}")
        elif key == "oneOf" and "anyOf" not in node:
            copy["anyOf"] = _inner("anyOf", value, dialect)
        elif key not in _LEFT_OUT:
            copy[key] = _inner(key, value, dialect)
    if "properties" in copy:
        copy.setdefault("additionalProperties", False)
    if told:
        known, words = copy.get("description"), ", ".join(told)
        copy["description"] = f"{known} ({words})" if known else words
    if "$ref" in copy and len(copy) > 1 and "anyOf" not in copy:
        copy["anyOf"] = [{"$ref": copy.pop("$ref")}]  # OpenAI takes nothing beside a reference
    return copy


def _is_told(key: str, value: Any, dialect: _Dialect) -> bool:
    """Whether a keyword goes into the description."""
    if key == "format":
        return str(value) not in dialect.formats
    if key == "pattern" and _LOOKING_AROUND.search(str(value)):
        return True
    return key in dialect.words


def _inner(key: str, value: Any, dialect: _Dialect) -> Any:
    """What is under a keyword; schemas are rewritten, values are not."""
    match key, value:
        case (("properties" | "$defs" | "definitions"), Mapping()):
            named = cast("Mapping[str, Any]", value)
            return {name: _inner("items", part, dialect) for name, part in named.items()}
        case "items", Mapping():
            return _rewritten(cast("Mapping[str, Any]", value), dialect)
        case "anyOf", list():
            return [_inner("items", part, dialect) for part in cast("list[Any]", value)]
        case _:
            return value


def _nodes(node: Any) -> Iterator[Any]:
    """The schema and all schemas in it, or what stands there instead of one."""
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
    """To which of its named parts each part of a schema refers; ``#`` is the whole."""
    parts = {"#": {key: form[key] for key in form if key not in _DEFINITIONS}}
    for key in _DEFINITIONS:
        parts |= {f"#/{key}/{name}": part for name, part in form.get(key, {}).items()}
    return {
        name: {str(node["$ref"]) for node in _nodes(part) if "$ref" in node}
        for name, part in parts.items()
    }


def _comes_to_an_end(links: dict[str, set[str]]) -> bool:
    """Whether no part leads back to itself."""
    while ends := {name for name, leads_to in links.items() if not leads_to & links.keys()}:
        links = {name: links[name] for name in links if name not in ends}
    return not links
