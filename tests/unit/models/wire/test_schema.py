"""JSON schemas as providers take them to promise an answer."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import json

from stepwell.models.wire.schema import anthropic_form, strict_form

TEXT = {"type": "string"}
COLOURS = {"$defs": {"Colour": {"type": "string", "enum": ["red", "blue"]}}}
TREE = {
    "$defs": {
        "Tree": {
            "type": "object",
            "properties": {
                "name": TEXT,
                "branches": {"type": "array", "items": {"$ref": "#/$defs/Tree"}},
            },
            "required": ["name", "branches"],
        }
    },
    "$ref": "#/$defs/Tree",
}


def an_object(required: bool = True, **properties: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    return {**schema, "required": list(properties)} if required else schema


def shut(schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "additionalProperties": False}


def by_anthropic(**properties: Any) -> Any:
    """The properties as they are sent to Anthropic, None if they are asked for in words."""
    form = anthropic_form(an_object(**properties))
    return None if form is None else form["properties"]


def by_openai(**properties: Any) -> Any:
    """The properties as OpenAI promises them, None if it can't."""
    schema, strict = strict_form(an_object(**properties), True)
    return schema["properties"] if strict else None


def test_every_object_is_closed_wherever_it_is() -> None:
    inner = an_object(a=TEXT)
    schema = {
        **an_object(
            one=inner, many={"type": "array", "items": inner}, either={"anyOf": [inner, TEXT]}
        ),
        "$defs": {"Named": inner},
    }
    for form in (anthropic_form(schema), strict_form(schema, True)[0]):
        assert json.encode(form).decode().count('"additionalProperties":false') == 5


@pytest.mark.parametrize(
    "opened",
    [
        {"type": "object"},
        {"type": "object", "additionalProperties": True},
        {"type": "object", "additionalProperties": TEXT},
        {"type": ["object", "null"], "additionalProperties": TEXT},
        {**an_object(a=TEXT), "additionalProperties": TEXT},
        {**an_object(a=TEXT), "patternProperties": {"^x": TEXT}},
        {"type": "array"},
        {"type": "array", "items": {}},
        {"type": "array", "items": True},
        {"type": "array", "prefixItems": [TEXT], "minItems": 1, "maxItems": 1},
        {},
        {"title": "Anything"},
        True,
        {"allOf": [TEXT]},
        {"not": TEXT},
        {"enum": [["a"], "b"]},
        {"const": {"a": 1}},
        {"$ref": "#/$defs/Missing"},
        {"$ref": "other.json"},
        {"oneOf": [TEXT], "anyOf": [TEXT]},
    ],
    ids=str,
)
def test_what_nobody_can_promise(opened: Any) -> None:
    schema = an_object(a=opened)

    assert strict_form(schema, True) == (schema, False)
    assert anthropic_form(schema) is None


@pytest.mark.parametrize(
    "schema",
    [
        an_object(required=False, a=TEXT),
        an_object(a={"type": "string", "default": "x"}),
        an_object(a=an_object(required=False, b=TEXT)),
        {"anyOf": [an_object(a=TEXT), an_object(b=TEXT)]},
        {"type": "array", "items": TEXT},
    ],
)
def test_what_only_openai_cannot_promise_is_sent_to_it_as_it_is(schema: dict[str, Any]) -> None:
    assert strict_form(schema, True) == (schema, False)
    assert anthropic_form(schema) is not None


def test_what_openai_can_promise_is_closed_and_strict() -> None:
    inner = an_object(c=TEXT)
    schema = an_object(a=TEXT, b={"type": "array", "items": inner})
    form = shut(an_object(a=TEXT, b={"type": "array", "items": shut(inner)}))

    assert strict_form(schema, True) == (form, True)
    assert strict_form(schema, False) == (schema, False)


def test_properties_may_be_called_like_keywords() -> None:
    odd = an_object(
        properties=TEXT,
        default=TEXT,
        minimum={"type": "integer"},
        required=TEXT,
        discriminator=TEXT,
    )

    assert anthropic_form(odd) == shut(odd)
    assert strict_form(odd, True) == (shut(odd), True)


def test_a_reference_with_a_description_becomes_a_choice_of_one() -> None:
    """OpenAI: $ref cannot have keywords {'description'}; pydantic makes it so."""
    named = {"$ref": "#/$defs/Colour"}
    schema = {**an_object(a={**named, "description": "Of the sky."}, b=named), **COLOURS}
    form = {
        **shut(an_object(a={"description": "Of the sky.", "anyOf": [named]}, b=named)),
        **COLOURS,
    }

    assert strict_form(schema, True) == (form, True)
    assert anthropic_form(schema) == form


def test_a_schema_that_refers_to_itself_is_promised_by_openai_alone() -> None:
    form, strict = strict_form(TREE, True)

    assert strict
    assert form["type"] == "object", "the root is an object, not a reference"
    assert form["properties"]["branches"]["items"] == {"$ref": "#/$defs/Tree"}
    assert anthropic_form(TREE) is None
    assert anthropic_form(an_object(self={"$ref": "#"})) is None
    assert by_openai(self={"$ref": "#"}) is not None


def test_one_of_becomes_any_of_without_its_discriminator() -> None:
    cat, dog = shut(an_object(kind={"const": "cat"})), shut(an_object(kind={"const": "dog"}))
    union = {"oneOf": [cat, dog], "discriminator": {"propertyName": "kind", "mapping": {}}}

    assert by_openai(pet=union) == {"pet": {"anyOf": [cat, dog]}}


def test_a_value_without_a_type_is_asked_of_anthropic_in_words() -> None:
    assert by_openai(a={"enum": ["a", 1]}) == {"a": {"enum": ["a", 1]}}
    assert by_anthropic(a={"enum": ["a", 1]}) is None
    assert by_anthropic(a={"type": ["string", "integer"], "enum": ["a", 1]}) is not None


@pytest.mark.parametrize(
    ("given", "openai", "anthropic"),
    [
        ("date-time", True, True),
        ("uuid", True, True),
        ("uri", False, True),
        ("binary", False, False),
        ("path", False, False),
    ],
)
def test_formats_that_are_not_known_become_words(given: str, openai: bool, anthropic: bool) -> None:
    native = {"a": {"type": "string", "format": given}}
    told = {"a": {"type": "string", "description": f'format: "{given}"'}}

    assert by_openai(**native) == (native if openai else told)
    assert by_anthropic(**native) == (native if anthropic else told)


def test_bounds_become_words_where_they_are_not_taken() -> None:
    given: dict[str, Any] = {
        "n": {"type": "integer", "minimum": 1, "maximum": 9, "description": "How many."},
        "names": {"type": "array", "items": {"type": "string", "maxLength": 5}, "minItems": 2},
        "code": {"type": "string", "pattern": "^a+$", "examples": ["aa"]},
        "pick": {"type": "string", "pattern": "^(?!b)"},
    }
    short = {"type": "string", "description": "maxLength: 5"}

    assert by_anthropic(**given) == {
        "n": {"type": "integer", "description": "How many. (minimum: 1, maximum: 9)"},
        "names": {"type": "array", "items": short, "description": "minItems: 2"},
        "code": {"type": "string", "description": 'pattern: "^a+$", examples: ["aa"]'},
        "pick": {"type": "string", "description": 'pattern: "^(?!b)"'},
    }
    assert by_openai(**given) == {
        "n": given["n"],
        "names": {"type": "array", "items": short, "minItems": 2},
        "code": {"type": "string", "pattern": "^a+$", "description": 'examples: ["aa"]'},
        "pick": {"type": "string", "description": 'pattern: "^(?!b)"'},
    }


def test_a_default_is_told_to_anthropic_also_beside_a_reference() -> None:
    schema = {**an_object(a={"$ref": "#/$defs/Colour", "default": "red"}), **COLOURS}
    form = anthropic_form(schema)

    assert form is not None
    assert form["properties"]["a"] == {
        "description": 'default: "red"',
        "anyOf": [{"$ref": "#/$defs/Colour"}],
    }


def test_values_in_a_schema_are_not_schemas() -> None:
    odd = {"type": "string", "enum": ["oneOf", "default"], "title": "minimum"}

    assert by_anthropic(a=odd) == {"a": odd}


schemas = st.recursive(
    st.sampled_from([TEXT, {"type": "integer", "minimum": 3}, {"$ref": "#/$defs/A"}, {}]),
    lambda inner: (
        st.builds(
            lambda properties: {"type": "object", "properties": properties},
            st.dictionaries(
                st.sampled_from(["a", "properties", "items", "minimum"]), inner, max_size=3
            ),
        )
        | st.builds(lambda items: {"type": "array", "items": items}, inner)
        | st.builds(lambda either: {"anyOf": either}, st.lists(inner, max_size=2))
    ),
    max_leaves=6,
)


@given(schema=schemas)
def test_rewriting_is_done_once_and_changes_nothing_that_is_given(schema: dict[str, Any]) -> None:
    schema = {**schema, "$defs": {"A": TEXT}}
    before = json.encode(schema)
    form, (strict, is_strict) = anthropic_form(schema), strict_form(schema, True)

    assert form is None or anthropic_form(form) == form
    assert not is_strict or strict_form(strict, True) == (strict, True)
    assert json.encode(schema) == before
