"""Settings of a turn, and response formats."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell import Message
from stepwell.errors import ConfigurationError
from stepwell.models import ModelRequest, ModelSettings, ResponseFormat, ThinkingEffort

SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}}


def test_nothing_is_set_by_default() -> None:
    assert msgspec.structs.asdict(ModelSettings()) == {
        "model": None,
        "temperature": None,
        "top_p": None,
        "max_tokens": None,
        "stop": (),
        "tool_choice": None,
        "parallel_tool_calls": None,
        "thinking": None,
        "seed": None,
        "extra_body": {},
        "extra_headers": {},
    }


def test_thinking_may_be_a_word() -> None:
    settings = ModelSettings(thinking="high")  # type: ignore[arg-type]

    assert settings.thinking is ThinkingEffort.HIGH
    assert settings == ModelSettings(thinking=ThinkingEffort.HIGH)


@pytest.mark.parametrize(
    ("wrong", "advice"),
    [
        ({"thinking": "hard"}, r"'hard'. Known efforts: none, minimal, low, medium, high"),
        ({"max_tokens": 0}, r"max_tokens must be 1 or more, got 0"),
        ({"max_tokens": -1}, r"max_tokens must be 1 or more"),
        ({"stop": "END"}, r"write stop=\('END',\)"),
    ],
)
def test_what_is_wrong_is_refused_with_advice(wrong: dict[str, Any], advice: str) -> None:
    with pytest.raises(ConfigurationError, match=advice):
        ModelSettings(**wrong)


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(TypeError, match="temprature"):
        ModelSettings(temprature=1.0)  # type: ignore[call-arg]
    with pytest.raises(msgspec.ValidationError, match="temprature"):
        msgspec.convert({"temprature": 1.0}, ModelSettings)


def test_a_mapping_becomes_settings() -> None:
    given = {"temperature": 1, "stop": ["END"], "thinking": "low", "extra_body": {"a": 1}}

    assert msgspec.convert(given, ModelSettings) == ModelSettings(
        temperature=1.0, stop=("END",), thinking=ThinkingEffort.LOW, extra_body={"a": 1}
    )


values = {
    "model": st.sampled_from(["a", "b"]),
    "temperature": st.sampled_from([0.0, 0.7]),
    "top_p": st.sampled_from([0.0, 0.5]),
    "max_tokens": st.sampled_from([1, 100]),
    "stop": st.sampled_from([("x",), ("y", "z")]),
    "tool_choice": st.sampled_from(["none", "add"]),
    "parallel_tool_calls": st.booleans(),
    "thinking": st.sampled_from(ThinkingEffort),
    "seed": st.sampled_from([0, 7]),
}
merged = {
    "extra_body": st.dictionaries(st.sampled_from("abc"), st.integers(0, 3), max_size=3),
    "extra_headers": st.dictionaries(st.sampled_from("abc"), st.sampled_from("xyz"), max_size=3),
}
given_settings = st.fixed_dictionaries({}, optional={**values, **merged})


@given(mine=given_settings, base=given_settings)
def test_what_is_said_counts_and_the_base_where_nothing_is_said(
    mine: dict[str, Any], base: dict[str, Any]
) -> None:
    """Also 0, False and "none" are said."""
    result = ModelSettings(**mine).over(ModelSettings(**base))
    expected = ModelSettings(
        **{
            **base,
            **mine,
            **{name: {**base.get(name, {}), **mine.get(name, {})} for name in merged},
        }
    )

    assert result == expected


@given(one=given_settings)
def test_nothing_said_changes_nothing(one: dict[str, Any]) -> None:
    settings = ModelSettings(**one)

    assert settings.over(ModelSettings()) == settings
    assert ModelSettings().over(settings) == settings
    assert settings.over(settings) == settings


@pytest.mark.parametrize(
    ("given", "form"),
    [
        (ResponseFormat(name="x"), ResponseFormat(name="x")),
        ({"type": "json_object"}, ResponseFormat()),
        ({"type": "json_object", "schema": SCHEMA}, ResponseFormat(schema=SCHEMA)),
        (SCHEMA, ResponseFormat(schema=SCHEMA)),
        (
            {"$ref": "#/$defs/A", "$defs": {}},
            ResponseFormat(schema={"$ref": "#/$defs/A", "$defs": {}}),
        ),
        (
            {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}},
            ResponseFormat(schema=SCHEMA, name="n"),
        ),
        (
            {"type": "json_schema", "json_schema": {"schema": SCHEMA, "strict": False}},
            ResponseFormat(schema=SCHEMA, strict=False),
        ),
        (
            {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": None},
            ResponseFormat(schema=SCHEMA, name="n"),
        ),
    ],
)
def test_a_response_format_is_understood_in_many_shapes(given: Any, form: ResponseFormat) -> None:
    assert ResponseFormat.of(given) == form
    request = ModelRequest(messages=(Message.user("Hi"),), response_format=given)
    assert request.format == form


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        ({}, "remove it"),
        ({"type": "text"}, "remove it"),
        (str, r"Agent\(output_type=YourModel\)"),
        ("json", r"a response format must be"),
        ({"type": "json_schema"}, "schema"),
        ({"type": "json_schema", "json_schema": {"name": "n"}}, "schema"),
        ({"type": "json_schema", "json_schema": None}, "schema"),
    ],
)
def test_what_is_no_response_format_is_refused_with_advice(given: Any, advice: str) -> None:
    with pytest.raises(ConfigurationError, match=advice):
        ResponseFormat.of(given)


def test_no_format_is_no_format() -> None:
    assert ModelRequest(messages=()).format is None


def test_only_what_is_set_is_shown_and_no_value_of_a_header() -> None:
    settings = ModelSettings(temperature=0.0, extra_headers={"x-team-key": "canary-5c1"})

    assert repr(settings) == "ModelSettings(temperature=0.0, extra_headers=['x-team-key'])"
