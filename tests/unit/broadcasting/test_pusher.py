"""Signing, names and sizes of requests to the Pusher HTTP API."""

import copy
import pickle
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import json

from stepwell.broadcasting.broadcasters.broadcast_error import BroadcastError
from stepwell.broadcasting.broadcasters.envelope_size import fit_envelope
from stepwell.broadcasting.broadcasters.pusher import (
    PusherBroadcaster,
    channel_auth,
    check_channel,
    sign_query,
)
from stepwell.errors import ConfigurationError, StepwellError
from stepwell.models.api_key import ApiKey
from stepwell.text import json_bytes

# The worked examples of the Pusher documentation.
KEY = "278d425bdf160c739803"
SECRET = "7ad3773142a6692b25b8"


def test_a_request_is_signed_as_the_published_example():
    body = b'{"name":"foo","channels":["project-3"],"data":"{\\"some\\":\\"data\\"}"}'
    query = sign_query("/apps/3/events", body, KEY, SECRET, 1353088179)
    assert dict(pair.split("=") for pair in query.split("&")) == {
        "auth_key": KEY,
        "auth_timestamp": "1353088179",
        "auth_version": "1.0",
        "body_md5": "ec365a775a4cd0599faeb73354201b6f",
        "auth_signature": "da454824c97ba181a32ccc17a72625ba02771f50b50e1e7430e47a1f3f457e6c",
    }


def test_a_private_channel_is_signed_as_the_published_example():
    assert channel_auth(KEY, SECRET, "1234.1234", "private-foobar") == (
        f"{KEY}:58df8b0c36d6982b82c3ecf6b4662e34fe8c25bba48f5369f135bf843651c3a4"
    )


@pytest.mark.parametrize(
    ("socket_id", "channel"),
    [
        ("1234", "private-foobar"),
        ("1.1:private-other", "private-foobar"),
        ("1.1\n", "private-foobar"),
        ("", "private-foobar"),
        ("\u0661.\u0661", "private-foobar"),
        ("1.1", "foobar"),
        ("1.1", "presence-foobar"),
        ("1.1", "private-foo:bar"),
        ("1.1", "private-foobar\n"),
    ],
)
def test_what_is_no_socket_or_no_private_channel_is_not_signed(socket_id: str, channel: str):
    with pytest.raises(BroadcastError):
        channel_auth(KEY, SECRET, socket_id, channel)


@pytest.mark.parametrize("name", ["a", "agent.42", "a-Z_0=@,.;", "x" * 164])
def test_names_that_pusher_allows_pass(name: str):
    assert check_channel(name) == name


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a:b", "caf\u00e9", "a\n", "#a", "x" * 165])
def test_names_that_pusher_refuses_are_refused_before_they_are_sent(name: str):
    with pytest.raises(BroadcastError, match="channel"):
        check_channel(name)


async def test_a_name_is_measured_with_its_prefix():
    pusher = PusherBroadcaster("3", KEY, SECRET, cluster="eu")
    with pytest.raises(BroadcastError, match="has 165 characters; Pusher allows 164"):
        await pusher.broadcast("x" * 157, {"type": "agent.status"})


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"cluster": "eu", "base_url": "http://127.0.0.1"},
        {"cluster": "eu.evil/"},
        {"base_url": "127.0.0.1:8080"},
        {"base_url": "http://127.0.0.1/app"},
        {"base_url": "http://user:pw@127.0.0.1"},
        {"base_url": "http://:pw@127.0.0.1:80"},
        {"base_url": "http://@127.0.0.1:80"},
        {"base_url": "http://[::1"},
        {"base_url": "http://127.0.0.1:99999"},
        {"base_url": "http://127.0.0.1:port"},
        {"base_url": 8080},
        {"base_url": "http://127.0.0.1?x=1"},
        {"cluster": "eu", "timeout": 0},
        {"cluster": "eu", "timeout": "5"},
        {"cluster": "eu", "timeout": True},
        {"cluster": "eu", "max_bytes": 0},
        {"cluster": "eu", "max_bytes": 999},
        {"cluster": "eu", "app_id": "../x"},
        {"cluster": "eu", "key": ""},
        {"cluster": "eu", "key": None},
        {"cluster": "eu", "secret": ""},
    ],
)
def test_what_is_put_together_wrongly_is_refused_at_once(wrong: dict[str, object]):
    right = {"app_id": "3", "key": KEY, "secret": SECRET}
    with pytest.raises(ConfigurationError):
        PusherBroadcaster(**{**right, **wrong})  # type: ignore[arg-type]


@pytest.mark.parametrize("secret", ["", None, 5, "two\nlines"])
def test_a_secret_that_is_none_is_named_as_such(secret: object):
    with pytest.raises(ConfigurationError, match="the secret"):
        PusherBroadcaster("3", KEY, secret, cluster="eu")  # type: ignore[arg-type]


@pytest.mark.parametrize("secret", [SECRET, lambda: SECRET, ApiKey(SECRET)])
def test_the_secret_is_never_shown(secret: object):
    pusher = PusherBroadcaster(3, KEY, secret, base_url="http://127.0.0.1:8080/")  # type: ignore[arg-type]
    assert repr(pusher) == (
        "PusherBroadcaster(app_id='3', base_url='http://127.0.0.1:8080', private=True)"
    )
    assert SECRET not in repr(vars(pusher))
    assert SECRET not in repr(vars(copy.deepcopy(pusher)))
    with pytest.raises(TypeError):
        pickle.dumps(pusher)


async def test_a_secret_that_cant_be_had_is_an_error_that_says_so():
    def missing() -> str:
        raise LookupError(f"no {SECRET} here")

    pusher = PusherBroadcaster("3", KEY, missing, cluster="eu")
    with pytest.raises(BroadcastError, match=r"no secret for https://api-eu\.pusher") as caught:
        await pusher.broadcast("a", {"type": "agent.status", "payload": {}})
    assert SECRET not in str(caught.value)
    assert isinstance(caught.value, StepwellError)


def size_below(limit: int):
    return lambda envelope: len(json_bytes(envelope)) <= limit


def test_an_envelope_that_fits_is_left_as_it_is():
    envelope = {"id": "1", "payload": {"content": "x" * 900}}
    assert fit_envelope(envelope, size_below(1000)) == envelope


def test_the_longest_texts_are_clipped_to_what_just_fits():
    payload = {"status": "failed", "error_message": "e" * 3000, "reason": "r" * 300}
    small = fit_envelope({"payload": payload}, size_below(2000))
    assert small["payload"]["status"] == "failed"
    assert small["payload"]["reason"] == "r" * 300
    assert small["payload"]["error_message"].endswith("e...")
    assert small["payload"]["truncated"] is True
    assert 1990 < len(json_bytes(small)) <= 2000
    assert payload["error_message"] == "e" * 3000


def test_ids_are_never_clipped():
    payload = {"tool_call_id": "c" * 400, "result_summary": "r" * 4000}
    small = fit_envelope({"payload": payload}, size_below(700))
    assert small["payload"]["tool_call_id"] == "c" * 400


def test_long_lists_lose_their_last_entries_where_clipping_is_not_enough():
    tools = [f"tool_{number}" for number in range(1000)]
    payload = {"step_number": 3, "available_tools": tools, "args": {"a": {"b": list(range(900))}}}
    small = fit_envelope({"payload": payload}, size_below(1000))["payload"]
    assert small["step_number"] == 3
    assert small["truncated"] is True
    assert len(small["available_tools"]) > 20
    assert small["available_tools"] == tools[: len(small["available_tools"])]


def test_only_lists_and_arguments_lose_entries():
    usage = {"prompt": 1, "completion": 2, "total": 3, "cached": 0, "reasoning": 0}
    vote = {"criterion": "c", "decision": "allow", "reason": "r"}
    payload = {
        "error_messages": ["e" * 300] * 50,
        "usage": usage,
        "evaluations": [vote] * 90,
        "args": {f"file_{number}_id": "a" * 300 for number in range(100)},
    }
    small = fit_envelope({"payload": payload}, size_below(1500))["payload"]
    assert small["usage"] == usage
    assert small["evaluations"]
    assert all(kept == vote for kept in small["evaluations"])
    assert 0 < len(small["args"]) < 100
    assert 0 < len(small["error_messages"]) < 50


def test_to_make_it_fit_takes_little_more_than_what_fits():
    tried: list[int] = []

    def fits(envelope: Mapping[str, Any]) -> bool:
        tried.append(len(json_bytes(envelope)))
        return tried[-1] <= 1000

    fit_envelope({"payload": {"content": "x" * 1_000_000}}, fits)
    assert sum(tried[1:]) < 100_000


values = st.recursive(
    st.none() | st.integers() | st.text(max_size=2000),
    lambda inner: st.lists(inner, max_size=50) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=60,
)


@given(args=values, text=st.text(max_size=9000), limit=st.integers(1600, 9000))
def test_a_status_always_fits(args: object, text: str, limit: int):
    payload = {"agent_id": "a1", "status": "failed", "error_message": text, "args": args}
    small = fit_envelope({"id": "1", "type": "agent.status", "payload": payload}, size_below(limit))
    assert len(json_bytes(small)) <= limit
    assert small["payload"]["status"] == "failed"
    assert json.decode(json_bytes(small))["id"] == "1"


def test_half_characters_do_not_keep_an_envelope_back():
    assert json.decode(json_bytes({"a": ["caf\udce9", float("nan")]})) == {"a": ["caf\ufffd", None]}
