"""The comparison with the SDKs' shapes finds what a provider would refuse."""

from collections.abc import Callable
from typing import Any

import pytest

from stepwell import Message
from stepwell.models.wire import WireFormat
from tests.unit.models.wire.oracles import request_types
from tests.unit.models.wire.samples import (
    CHAT,
    MESSAGES,
    RESPONSES,
    WEATHER,
    answered,
    body_of,
    call,
    called,
    request,
)
from tests.unit.models.wire.shapes import misfits

SPOILT: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a key that is unknown": lambda body: body.update(temprature=1),
    "a key that lacks": lambda body: body["tools"][0].get("function", body["tools"][0]).pop("name"),
    "a number in place of a text": lambda body: body.update(model=7),
    "a word that is unknown": lambda body: body.update(tool_choice="perhaps"),
    "a tool with an unknown key": lambda body: body["tools"][0].update(paramters={}),
    "tools that are no list": lambda body: body.update(tools="weather"),
}
OF_MESSAGES: list[tuple[WireFormat, Callable[[dict[str, Any]], Any]]] = [
    (CHAT, lambda body: body["messages"][0].pop("content")),
    (CHAT, lambda body: body["messages"][1]["tool_calls"][0].pop("id")),
    (CHAT, lambda body: body["messages"][2].update(call_id="c1")),
    (RESPONSES, lambda body: body["input"][1].pop("call_id")),
    (RESPONSES, lambda body: body["input"][2].update(outputs="x")),
    (RESPONSES, lambda body: body["input"][0]["content"][0].update(type="text")),
    (MESSAGES, lambda body: body["messages"][1]["content"][0].pop("input")),
    (MESSAGES, lambda body: body["messages"][2]["content"][0].update(id="c1")),
    (MESSAGES, lambda body: body["messages"][0]["content"][0].update(cache_control="yes")),
]


def body(wire: WireFormat) -> dict[str, Any]:
    asked = request(Message.user("Hi"), called(call("c1")), answered("c1"), tools=(WEATHER,))
    return body_of(wire, asked)


@pytest.mark.parametrize("wire", [CHAT, RESPONSES, MESSAGES], ids=lambda wire: wire.name)
@pytest.mark.parametrize("what", SPOILT)
def test_a_spoilt_body_is_found_out(wire: WireFormat, what: str) -> None:
    sent = body(wire)
    assert misfits(sent, request_types(wire.name)[0]) == []
    SPOILT[what](sent)

    assert misfits(sent, request_types(wire.name)[0]) != []


@pytest.mark.parametrize(("wire", "spoil"), OF_MESSAGES)
def test_a_spoilt_message_is_found_out(wire: WireFormat, spoil: Callable[[Any], Any]) -> None:
    sent = body(wire)
    spoil(sent)

    assert misfits(sent, request_types(wire.name)[0]) != []
