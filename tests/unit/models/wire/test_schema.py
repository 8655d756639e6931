"""JSON schemas as providers take them to promise an answer."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import json

from stepwell.models.wire.schema import closed, is_closed, is_strict, strict_form, without_bounds

TEXT = {"type": "string"}


def an_object(required: bool = True, **properties: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    return {**schema, "required": list(properties)} if required else schema


def test_every_object_is_closed_wherever_it_is() -> None:
    inner = an_object(a=TEXT)
    schema = {
        **an_object(
            one=inner, many={"type": "array", "items": inner}, either={"anyOf": [inner, TEXT]}
        ),
        "$defs": {"Named": inner},
    }
    shut = closed(schema)

    assert json.encode(shut).decode().count('"additionalProperties":false') == 5
    assert is_closed(shut)
    assert not is_closed(schema)


def test_what_says_that_it_is_open_stays_open() -> None:
    free = {"type": "object", "additionalProperties": True}
    typed = {**an_object(a=TEXT), "additionalProperties": TEXT}

    assert closed(free) == free
    assert closed(typed)["additionalProperties"] == TEXT
    assert not is_closed(closed(an_object(free=free)))
    assert not is_closed(closed(typed))


def test_properties_may_be_called_like_keywords() -> None:
    odd = an_object(properties=TEXT, default=TEXT, minimum={"type": "integer"}, required=TEXT)
    shut = closed(odd)

    assert shut == {**odd, "additionalProperties": False}
    assert is_strict(shut)
    assert without_bounds(odd) == odd


@pytest.mark.parametrize("keyword", ["const", "default"])
def test_values_in_a_schema_are_not_schemas(keyword: str) -> None:
    value = {"properties": {"a": 1}, "minimum": 3}
    schema = {keyword: value, "enum": [value], "examples": [value]}

    assert closed(schema) == schema
    assert without_bounds(schema) == schema
    assert is_closed(schema)


@pytest.mark.parametrize(
    "open_schema",
    [
        an_object(required=False, a=TEXT),
        an_object(a={"type": "string", "default": "x"}),
        {"allOf": [an_object(a=TEXT)]},
        {"oneOf": [TEXT]},
        an_object(a={"type": "object"}),
        an_object(a=an_object(required=False, b=TEXT)),
        {**an_object(a=TEXT), "additionalProperties": TEXT},
        {**an_object(a=TEXT), "patternProperties": {"^x": TEXT}},
    ],
)
def test_what_openai_cannot_promise_is_sent_as_it_is(open_schema: dict[str, Any]) -> None:
    assert strict_form(open_schema, True) == (open_schema, False)


def test_what_openai_can_promise_is_closed_and_strict() -> None:
    schema = an_object(a=TEXT, b={"type": "array", "items": an_object(c=TEXT)})

    assert strict_form(schema, True) == (closed(schema), True)
    assert strict_form(schema, False) == (schema, False)


def test_bounds_become_words() -> None:
    schema = an_object(
        n={"type": "integer", "minimum": 1, "maximum": 9, "description": "How many."},
        names={"type": "array", "items": {"type": "string", "maxLength": 5}, "minItems": 2},
    )

    assert without_bounds(schema)["properties"] == {
        "n": {"type": "integer", "description": "How many. (minimum: 1, maximum: 9)"},
        "names": {
            "type": "array",
            "items": {"type": "string", "description": "maxLength: 5"},
            "description": "minItems: 2",
        },
    }


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
def test_closing_is_done_once_and_changes_nothing_that_is_given(schema: dict[str, Any]) -> None:
    before = json.encode(schema)
    shut = closed(schema)

    assert closed(shut) == shut
    assert is_closed(shut)
    assert without_bounds(without_bounds(schema)) == without_bounds(schema)
    assert json.encode(schema) == before
