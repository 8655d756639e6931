"""A key is sent in one header and is nowhere else to be seen."""

import copy
import json as stdlib_json
import logging
import pickle
import traceback
from collections.abc import Callable
from typing import Any

import httpx2
import msgspec
import pytest

from stepwell import Agent, AgentBuilder, Message
from stepwell.errors import ConfigurationError, ModelError, ModelErrorKind
from stepwell.models import FallbackModel, ModelPresets, ModelRequest, RetryingModel
from stepwell.models.api_key import ApiKey, from_environment
from stepwell.models.http import HttpCall
from stepwell.models.provider import Auth, Provider, ProviderModel

CANARY = "sk-canary-0123456789abcdefghijklmnopqrstuvwxyz"
ASKED = ModelRequest(messages=(Message.user("Hi"),))
Handler = Callable[[httpx2.Request], httpx2.Response]


def model(handler: Handler, key: Any = CANARY, **provider: Any) -> ProviderModel:
    """A model whose provider answers as the test says, without a network."""
    client = httpx2.AsyncClient(transport=httpx2.MockTransport(handler))
    acme = Provider(name="acme", base_url="https://acme.example/v1", **provider)
    return acme.model("large", api_key=key, client=client)


def answers(status: int, body: Any, **headers: str) -> Handler:
    return lambda _: httpx2.Response(status, json=body, headers=headers)


def hi(_: httpx2.Request) -> httpx2.Response:
    choice = {"message": {"content": "Hi"}, "finish_reason": "stop"}
    return httpx2.Response(200, json={"choices": [choice]})


def everything(error: BaseException) -> str:
    """All that an error can show: itself, its causes, and their fields."""
    shown = "".join(traceback.format_exception(error)) + repr(error) + repr(vars(error))
    return shown + (everything(error.__cause__) if error.__cause__ else "")


async def failure(asked: ProviderModel) -> ModelError:
    with pytest.raises(ModelError) as raised:
        await asked.respond(ASKED)
    return raised.value


async def streamed_failure(asked: ProviderModel) -> ModelError:
    with pytest.raises(ModelError) as raised:
        [part async for part in asked.stream(ASKED)]
    return raised.value


def test_a_key_does_not_show_however_it_is_printed() -> None:
    key = ApiKey(CANARY)
    shown = [repr(key), str(key), f"{key}", f"{key!r:>40}", "%s" % key, f"{[key]}", f"{{{key}}}"]  # noqa: UP031

    assert CANARY not in "".join(shown)
    assert "[secret]" in shown[0]
    assert not hasattr(key, "__dict__")
    assert CANARY not in repr([getattr(key, name, "") for name in dir(key) if "source" not in name])


@pytest.mark.parametrize(
    "serialised",
    [
        pickle.dumps,
        msgspec.json.encode,
        msgspec.msgpack.encode,
        msgspec.to_builtins,
        stdlib_json.dumps,
        lambda key: pickle.dumps({"nested": [key]}, protocol=0),
        lambda key: key.__reduce_ex__(2),
    ],
)
def test_a_key_is_not_serialised(serialised: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError) as raised:
        serialised(ApiKey(CANARY))

    assert CANARY not in str(raised.value)


@pytest.mark.parametrize("fallback", [str, repr])
def test_a_serialiser_that_falls_back_to_text_writes_no_key(fallback: Any) -> None:
    key = ApiKey(CANARY)

    assert CANARY not in stdlib_json.dumps({"key": key}, default=fallback)
    assert CANARY.encode() not in msgspec.json.encode({"key": key}, enc_hook=fallback)


async def test_a_copy_is_the_key_itself() -> None:
    key = ApiKey(CANARY)

    assert copy.copy(key) is key
    assert copy.deepcopy({"key": [key]})["key"][0] is key
    assert await copy.deepcopy(key).reveal() == CANARY


def test_models_agents_and_plans_do_not_show_the_key() -> None:
    asked = model(hi)
    plan = AgentBuilder.base().with_model(asked)
    things = [
        asked,
        vars(asked),
        asked.provider,
        FallbackModel(asked, asked),
        RetryingModel(asked),
        Agent(asked),
        vars(Agent(asked)),
        plan,
        getattr(plan, "plan", None),
        getattr(plan, "_plan", None),
        ModelPresets({"a": lambda: asked}),
    ]

    assert CANARY not in "".join(f"{thing!r} {thing}" for thing in things)


def test_a_provider_says_nothing_of_keys_even_when_it_is_serialised() -> None:
    asked = model(hi)
    written = repr(msgspec.structs.asdict(asked.provider))

    assert CANARY not in written


def test_a_call_does_not_show_its_headers() -> None:
    call = HttpCall(
        owner="acme:large",
        url="https://acme.example/v1",
        headers={"authorization": f"Bearer {CANARY}"},
        body=b"{}",
        connect_timeout=1.0,
        read_timeout=1.0,
    )

    assert CANARY not in f"{call!r} {call}"


async def test_the_key_is_sent_in_the_header_of_its_provider_only() -> None:
    seen: list[httpx2.Request] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        return hi(request)

    await model(handler).respond(ASKED)
    await model(handler, auth=Auth(header="X-API-Key", prefix="")).respond(ASKED)
    bearer, plain = seen

    assert bearer.headers["authorization"] == f"Bearer {CANARY}"
    assert plain.headers["x-api-key"] == CANARY
    assert "authorization" not in plain.headers
    for request in seen:
        assert CANARY not in str(request.url)
        assert CANARY.encode() not in request.content
        assert [value for _, value in request.headers.raw if CANARY.encode() in value] != []
        assert sum(CANARY.encode() in value for _, value in request.headers.raw) == 1


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (401, {"error": {"message": f"Incorrect API key provided: {CANARY}.", "code": CANARY}}),
        (401, {"error": f"{CANARY} is wrong, so is {CANARY}"}),
        (500, {"detail": [{"input": {"authorization": f"Bearer {CANARY}"}}]}),
        (500, {"error": {"message": "x" * 980 + CANARY}}),
        (200, {"error": {"message": f"{CANARY} is wrong"}}),
        (200, {"choices": [{"message": {"content": None, "refusal": f"{CANARY}!"}}]}),
        (200, {"unexpected": CANARY}),
        (200, [CANARY]),
        (200, "x" * 180 + CANARY),
        (302, {}),
    ],
)
async def test_an_error_that_echoes_the_key_does_not_show_it(status: int, body: Any) -> None:
    asked = model(answers(status, body, location=f"https://evil.example/?key={CANARY}"))

    for error in (await failure(asked), await streamed_failure(asked)):
        assert CANARY not in everything(error)
        assert CANARY[:12] not in everything(error), "not even the beginning of it"
        assert error.kind is not None


@pytest.mark.parametrize(
    "stream",
    [
        f'data: {{"error": {{"message": "{CANARY}"}}}}\n\n',
        f"data: not JSON {CANARY}\n\n",
        f"data: {'x' * 180}{CANARY}\n\n",
        f"{CANARY}",
    ],
)
async def test_a_stream_that_echoes_the_key_does_not_show_it(stream: str) -> None:
    def handler(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(
            200, content=stream.encode(), headers={"content-type": "text/event-stream"}
        )

    error = await streamed_failure(model(handler))

    assert CANARY not in everything(error)
    assert CANARY[:12] not in everything(error)


async def test_nothing_that_is_logged_shows_the_key(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    await model(hi).respond(ASKED)
    await failure(model(answers(401, {"error": f"{CANARY} is wrong"})))

    assert caplog.records, "the HTTP library logs its requests"
    assert CANARY not in caplog.text
    assert CANARY not in repr([vars(record) for record in caplog.records])


@pytest.mark.parametrize(
    "odd",
    [
        "",
        " ",
        "\t",
        f" {CANARY}",
        f"{CANARY} ",
        f"{CANARY}\n",
        f"{CANARY}\r\nx-evil: 1",
        f"{CANARY}\x00",
        f"{CANARY}ü",
        f"{CANARY}\u200b",
    ],
)
async def test_an_odd_key_is_refused_and_not_shown(
    odd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigurationError, match="copy it again") as raised:
        ApiKey(odd)
    assert CANARY not in everything(raised.value)

    error = await failure(model(hi, key=lambda: odd))
    assert error.kind is ModelErrorKind.AUTHENTICATION
    assert CANARY not in everything(error)


@pytest.mark.parametrize("wrong", [7, b"sk-1", None, ["sk-1"]])
async def test_what_is_no_text_is_no_key(wrong: Any) -> None:
    if wrong is not None:
        with pytest.raises(ConfigurationError, match=r"not a (int|bytes|list)"):
            ApiKey(wrong)

    error = await failure(model(hi, key=lambda: wrong))
    assert error.kind is ModelErrorKind.AUTHENTICATION
    assert type(wrong).__name__ in str(error)
    assert error.retryable is False


async def test_a_function_gives_the_key_anew_for_each_request() -> None:
    given = iter([f"{CANARY}-1", f"{CANARY}-2"])
    sent: list[str] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        sent.append(request.headers["authorization"])
        return hi(request)

    asked = model(handler, key=lambda: next(given))
    await asked.respond(ASKED)
    await asked.respond(ASKED)

    assert sent == [f"Bearer {CANARY}-1", f"Bearer {CANARY}-2"]


async def test_an_async_function_can_give_the_key() -> None:
    async def vault() -> str:
        return CANARY

    assert await ApiKey(vault).reveal() == CANARY
    error = await failure(model(answers(401, {"error": f"{CANARY} is wrong"}), key=vault))
    assert CANARY not in everything(error)


def test_a_key_that_is_a_key_already_is_kept() -> None:
    key = ApiKey(CANARY)

    assert model(hi, key=key).key is key


async def test_the_environment_is_read_anew_for_each_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ACME_KEY", f"  {CANARY}-1\n")
    key = ApiKey.from_env("ACME_KEY", owner="acme")
    assert await key.reveal() == f"{CANARY}-1"

    monkeypatch.setenv("ACME_KEY", f"{CANARY}-2")
    assert await key.reveal() == f"{CANARY}-2"
    assert CANARY not in repr(key)


@pytest.mark.parametrize("value", [None, "", "  "])
def test_a_missing_key_is_named_when_the_model_is_made(
    value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ACME_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("ACME_KEY", value)
    acme = Provider(name="acme", base_url="https://acme.example", key_env="ACME_KEY")

    with pytest.raises(ConfigurationError, match=r"acme needs a key: set .* ACME_KEY, or give"):
        acme.model("large")


async def test_a_key_that_vanished_is_an_error_of_the_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ACME_KEY", CANARY)
    asked = model(hi, key=None, key_env="ACME_KEY")
    monkeypatch.delenv("ACME_KEY")
    error = await failure(asked)

    assert error.kind is ModelErrorKind.AUTHENTICATION
    assert "ACME_KEY" in str(error)


def test_an_odd_key_in_the_environment_is_refused_by_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ACME_KEY", f"{CANARY}ü")
    with pytest.raises(ConfigurationError, match="ACME_KEY") as raised:
        ApiKey.from_env("ACME_KEY", owner="acme")

    assert CANARY not in everything(raised.value)


def test_blank_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACME_URL", " \n")
    assert from_environment("ACME_URL") is None
    monkeypatch.setenv("ACME_URL", " x ")
    assert from_environment("ACME_URL") == "x"
