"""Keys and other secrets never reach a cassette, and are not needed to replay one."""

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from stepwell import (
    Message,
    ModelError,
    ModelRequest,
    ModelResponse,
    ModelSettings,
    TextDelta,
    ThinkingDelta,
    ToolCall,
)
from stepwell.messages import ThinkingPart, ToolResult
from stepwell.models import (
    ResponseEnd,
    StreamPart,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    ToolSchema,
)
from stepwell.testing import CassetteModel, ScriptedModel, call
from stepwell.testing.redaction import Redaction


class PartsModel:
    """Streams one script after the other; an error is raised where it stands."""

    name = "parts"

    def __init__(self, *scripts: Sequence[StreamPart | Exception]) -> None:
        self.scripts = list(scripts)

    async def respond(self, request: ModelRequest) -> ModelResponse:
        *_, end = [part async for part in self.stream(request)]
        return end.response

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        for part in self.scripts.pop(0):
            await asyncio.sleep(0)
            if isinstance(part, Exception):
                raise part
            yield part


def asking(text: str = "Go", **fields: Any) -> ModelRequest:
    return ModelRequest(messages=(Message.user(text),), **fields)


async def parts_of(model: Any, request: ModelRequest) -> list[StreamPart]:
    return [part async for part in model.stream(request)]


async def drained(model: Any, request: ModelRequest) -> tuple[list[StreamPart], ModelError | None]:
    """What was delivered, and the error that ended it if one did."""
    parts: list[StreamPart] = []
    try:
        async for part in model.stream(request):
            parts.append(part)  # noqa: PERF401 - what came before the error counts
    except ModelError as error:
        return parts, error
    return parts, None


def written(path: Path) -> str:
    return path.read_bytes().decode()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cassettes" / "turns.json"


KEYS = [
    "sk-proj-Abc123def456",
    "sk-ant-api03-Abc_123-xyz",
    "AIzaSyA1234567890abcdefghijklmnopqrstuv",
    "gsk_abcdefgh12345678",
    "xai-abcdefgh12345678",
    "ghp_abcdefghijklmnop1234",
    "github_pat_11ABCDEFG_abcdef",
    "AKIAIOSFODNN7EXAMPLE",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
    "opaque-token-of-mine",
]


@pytest.mark.parametrize("key", KEYS)
async def test_a_key_is_written_nowhere_and_another_key_replays_the_same_turn(
    path: Path, key: str
) -> None:
    def request(secret: str) -> ModelRequest:
        called = ToolCall(id="c", name="f", arguments={"deep": [{"x": f"key={secret}"}]})
        return ModelRequest(
            messages=(
                Message.user(f"My key is {secret}."),
                Message.assistant(f"<{secret}>", [called]),
                Message.tool(ToolResult(call_id="c", tool_name="f", content=f"({secret})")),
            ),
            instruction=Message.system(secret),
            settings=ModelSettings(
                extra_body={"user": secret, secret: 1}, extra_headers={"Authorization": secret}
            ),
            tools=(ToolSchema(name="f", description=secret, parameters={"default": secret}),),
        )

    answer = ModelResponse(
        text=f"It is {key}",
        tool_calls=(ToolCall(id="d", name="f", arguments={"k": key}, malformed=key),),
        thinking=(ThinkingPart(f"the key {key}"),),
    )
    live = CassetteModel(
        path, ScriptedModel([answer, ModelError(key, provider_text=key)]), secrets=[key]
    )
    assert await live.respond(request(key)) == answer, "the caller gets what the model said"
    await drained(live, asking(f"again {key}"))

    assert key not in written(path)
    other = "other-token-of-mine"
    again = CassetteModel(path, secrets=[other])
    replayed = await again.respond(request(other))
    assert replayed.text == "It is [removed]"
    assert replayed.tool_calls[0].arguments == {"k": "[removed]"}
    with pytest.raises(ModelError, match=r"^\[removed\]$"):
        await again.respond(asking(f"again {other}"))


@pytest.mark.parametrize("key", KEYS[:-1])
async def test_what_looks_like_a_key_is_removed_without_being_named(path: Path, key: str) -> None:
    live = CassetteModel(path, ScriptedModel([f"'{key}', Bearer {key} and {key}"]))
    await live.respond(asking(f"Use {key}, please"))

    assert key not in written(path)
    replayed = await CassetteModel(path).respond(asking("Use sk-other-key-123, please"))
    assert replayed.text == "'[removed]', Bearer [removed] and [removed]"


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ('{"api_key": "hunter two"}', '{"api_key": "[removed]"}'),
        ('{"OPENAI_API_KEY" : "hunter\\"2"}', '{"OPENAI_API_KEY" : "[removed]"}'),
        ("{'apiKey': 'hunter2'}", "{'apiKey': '[removed]'}"),
        ('"{\\"client_secret\\": \\"hunter2\\"}"', '"{\\"client_secret\\": \\"[removed]\\"}"'),
        ('{"password": "hunter2', '{"password": "[removed]'),
        ("Authorization: Bearer abc123", "Authorization: Bearer [removed]"),
        ("bearer abcdefghijklmnopqrstuvwx!", "bearer [removed]!"),
        ("the bearer of good news", "the bearer of good news"),
        ("task-management-overview", "task-management-overview"),
        ("the api_key is required", "the api_key is required"),
        ('{"keyboard": "qwertz"}', '{"keyboard": "qwertz"}'),
        ("[removed]", "[removed]"),
        ("DB_PASSWORD=hunter22\nPORT=80", "DB_PASSWORD=[removed]\nPORT=80"),
        ("api_key: abcd1234", "api_key: [removed]"),
        ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI", "AWS_SECRET_ACCESS_KEY=[removed]"),
        ("export TOKEN='tok-123456'", "export TOKEN='[removed]'"),
        ("Authorization: Basic dXNlcjpwYXNz", "Authorization: Basic [removed]"),
        ("max_tokens=4096, tokens: 12345", "max_tokens=4096, tokens: 12345"),
        ("slack xoxb-1234567890-abc", "slack [removed]"),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\nend",
            "[removed]\nend",
        ),
        ('{"token": "tok-123456"}', '{"token": "[removed]"}'),
    ],
)
async def test_texts_lose_their_secrets_and_nothing_else(
    path: Path, text: str, written: str
) -> None:
    await CassetteModel(path, ScriptedModel([text])).respond(asking(text))

    assert (await CassetteModel(path).respond(asking(text))).text == written
    assert (await CassetteModel(path).respond(asking(written))).text == written


async def test_what_goes_by_the_name_of_a_secret_is_removed(path: Path) -> None:
    arguments = {"api_key": "hunter2", "api_key_count": 2, "name": "x", "password": ""}
    await CassetteModel(path, ScriptedModel([call("f", **arguments)])).respond(asking())

    replayed = await CassetteModel(path).respond(asking())
    assert replayed.tool_calls[0].arguments == {**arguments, "api_key": "[removed]"}


async def test_a_secret_that_arrives_in_pieces_is_removed_as_well(path: Path) -> None:
    key = "sk-proj-Abc123def456"
    called = ToolCall(id="c", name="f", arguments={"password": 'hunter"2'})
    said: list[StreamPart] = [
        *(TextDelta(piece) for piece in ("My ta", "sk-listing: s", *key[1:], ", ", "ok")),
        *(ThinkingDelta(piece) for piece in ("Hm ", key[:9], key[9:])),
        ToolCallStart(index=0, id="c", name="f"),
        ToolCallStart(index=1, id="d", name="g"),
        *(
            ToolCallDelta(index=index, arguments=piece)
            for piece in ('{"pass', 'word": "hun', "ter\\", '"2"}')
            for index in (0, 1)
        ),
        ToolCallEnd(index=0, call=called),
        ResponseEnd(ModelResponse(text=f"My task-listing: {key}, ok", tool_calls=(called,))),
    ]
    assert await parts_of(CassetteModel(path, PartsModel(said)), asking()) == said
    replayed = await parts_of(CassetteModel(path), asking())

    assert [type(part) for part in replayed] == [type(part) for part in said]
    end = replayed[-1]
    assert isinstance(end, ResponseEnd)
    assert end.response.text == "My task-listing: [removed], ok"
    assert "".join(p.text for p in replayed if isinstance(p, TextDelta)) == end.response.text
    assert "".join(p.text for p in replayed if isinstance(p, ThinkingDelta)) == "Hm [removed]"
    for index in (0, 1):
        pieces = [p for p in replayed if isinstance(p, ToolCallDelta) and p.index == index]
        arguments = json.loads("".join(piece.arguments for piece in pieces))
        assert arguments == {"password": "[removed]"} == end.response.tool_calls[0].arguments
    assert "hun" not in written(path)


async def test_a_secret_is_found_also_where_json_writes_it_in_another_way(path: Path) -> None:
    secret = 'pass"wört'
    pieces = [json.dumps({"x": secret}), json.dumps({"x": secret}, ensure_ascii=False)]
    said = [*(ToolCallDelta(index=0, arguments=p) for p in pieces), ResponseEnd(ModelResponse())]
    await parts_of(CassetteModel(path, PartsModel(said), secrets=[secret]), asking())

    replayed = await parts_of(CassetteModel(path), asking())
    assert replayed[0] == replayed[1] == ToolCallDelta(index=0, arguments='{"x": "[removed]"}')


async def test_a_secret_that_begins_with_another_is_removed_whole(path: Path) -> None:
    model = CassetteModel(path, ScriptedModel(["hunter2"]), secrets=["hunter", "hunter2"])
    await model.respond(asking())

    assert (await CassetteModel(path).respond(asking())).text == "[removed]"


async def test_a_text_that_became_a_secret_later_still_finds_its_turn(path: Path) -> None:
    await CassetteModel(path, ScriptedModel(["Hi."])).respond(asking("hunter2 here"))

    assert (await CassetteModel(path, secrets=["hunter2"]).respond(asking("hunter2 here"))).text


async def test_a_variable_that_is_not_set_hides_nothing(path: Path) -> None:
    model = CassetteModel(path, ScriptedModel(["Hi."]), secrets=(None, ""))
    await model.respond(asking("Hello"))

    assert '"Hello"' in written(path)


@pytest.mark.parametrize("before", ["", "x", "xy", "DB_PASS=", "some words before "])
def test_a_named_secret_is_found_in_base64_too(before: str) -> None:
    secret = "my-very-secret-passphrase"
    encoded = b64encode(f"{before}{secret} and more".encode()).decode()

    kept = Redaction([secret]).text(f"file: {encoded}")

    assert "[removed]" in kept
    inside = b64encode(secret.encode()).decode()
    assert not any(inside[i : i + 12] in kept for i in range(len(inside) - 12))
