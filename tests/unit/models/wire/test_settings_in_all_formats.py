"""Every setting is sent, or refused with advice; what is not set is not sent."""

from typing import Any

import pytest
from msgspec import json

from stepwell.errors import ModelError, ModelErrorKind
from stepwell.models import ModelSettings, ThinkingEffort
from stepwell.models.wire.format import WireFormat
from tests.unit.models.wire.samples import FORMATS, PERSON, WEATHER, body_of, request

VALUES: dict[str, tuple[Any, ...]] = {
    "temperature": (0.0, 0.3),
    "top_p": (0.0, 0.9),
    "max_tokens": (1, 1000),
    "stop": (("END",),),
    "tool_choice": ("auto", "none", "required", "weather"),
    "parallel_tool_calls": (True, False),
    "thinking": tuple(ThinkingEffort),
    "seed": (0, 7),
    "extra_body": ({"service_tier": "flex"},),
}
REFUSED = {
    "responses": ("stop", "seed"),
    "messages": ("seed",),
    "gemini": ("parallel_tool_calls",),
}
SENT_ELSEWHERE = {"model": "in the path or body", "extra_headers": "in the headers"}


def every() -> list[Any]:
    return [
        pytest.param(wire, name, value, id=f"{wire.name}-{name}-{value}")
        for wire in FORMATS
        for name, values in VALUES.items()
        for value in values
    ]


def test_all_settings_are_tested_here() -> None:
    assert {*VALUES, *SENT_ELSEWHERE} == set(ModelSettings.__struct_fields__)


@pytest.mark.parametrize(("wire", "name", "value"), every())
def test_a_setting_changes_what_is_sent_or_is_refused(
    wire: WireFormat, name: str, value: Any
) -> None:
    asked = request(tools=(WEATHER,), **{name: value})
    if name in REFUSED.get(wire.name, ()):
        with pytest.raises(ModelError, match=rf"{name}; (leave it out|use openai-chat)") as raised:
            body_of(wire, asked)
        assert raised.value.kind is ModelErrorKind.INVALID_REQUEST
        assert raised.value.retryable is False
    else:
        unset = json.encode(body_of(wire, request(tools=(WEATHER,))))
        assert json.encode(body_of(wire, asked)) != unset


@pytest.mark.parametrize("wire", FORMATS, ids=lambda wire: wire.name)
@pytest.mark.parametrize("streaming", [True, False])
def test_what_is_not_set_is_not_sent(wire: WireFormat, streaming: bool) -> None:
    sent = json.encode(body_of(wire, request(), streaming=streaming)).decode().lower()

    words = ("temperature", "top_p", "topp", "seed", "stop", "reasoning_effort", "thinking", "tool")
    assert [word for word in words if word in sent.replace("reasoning.encrypted", "")] == []
    assert "null" not in sent


@pytest.mark.parametrize("wire", FORMATS, ids=lambda wire: wire.name)
@pytest.mark.parametrize(
    "given",
    [
        {"response_format": {"type": "json_object"}},
        {"response_format": PERSON},
        {"response_format": {"type": "json_schema", "json_schema": {"schema": PERSON}}},
    ],
)
@pytest.mark.parametrize("tools", [(), (WEATHER,)])
def test_a_response_format_is_always_told(wire: WireFormat, given: Any, tools: Any) -> None:
    unset = body_of(wire, request(tools=tools))
    sent = body_of(wire, request(tools=tools, **given))

    assert sent != unset
    assert "json" in json.encode(sent).decode().lower()


@pytest.mark.parametrize("wire", FORMATS, ids=lambda wire: wire.name)
def test_the_model_is_the_one_that_is_given(wire: WireFormat) -> None:
    body = wire.body(request(), "another-1", streaming=False)
    path = wire.path("another-1", streaming=False)

    assert [body.get("model") == "another-1", "another-1" in path].count(True) == 1


@pytest.mark.parametrize("wire", FORMATS, ids=lambda wire: wire.name)
def test_a_request_is_never_changed_by_being_sent(wire: WireFormat) -> None:
    asked = request(tools=(WEATHER,), response_format=PERSON, extra_body={"a": {"b": 1}})
    before = json.encode(asked)
    body_of(wire, asked)

    assert json.encode(asked) == before
    assert json.encode(body_of(wire, asked)) == json.encode(body_of(wire, asked))
