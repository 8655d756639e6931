"""The file of a cassette: readable, strict, whole, and shared by turns that overlap."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from stepwell import (
    ConfigurationError,
    Message,
    ModelError,
    ModelRequest,
    ModelResponse,
    ModelSettings,
    StepwellError,
)
from stepwell.models import StreamPart, ThinkingEffort
from stepwell.testing import CassetteModel, ScriptedModel, call


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


def turns_in(path: Path) -> list[Any]:
    return json.loads(written(path))["turns"]


def put(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def beside(path: Path) -> list[Path]:
    return list(path.parent.iterdir())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cassettes" / "turns.json"


async def test_the_file_is_for_people_to_read(path: Path) -> None:
    request = asking("Grüße", settings=ModelSettings(thinking=ThinkingEffort.LOW, stop=("x",)))
    await CassetteModel(path, ScriptedModel(["Hi.\n"], name="small")).respond(request)

    assert (
        written(path)
        == """{
  "version": 1,
  "turns": [
    {
      "model": "small",
      "request": {
        "messages": [
          {
            "role": "user",
            "parts": [
              {
                "type": "text",
                "text": "Grüße"
              }
            ]
          }
        ],
        "settings": {
          "stop": [
            "x"
          ],
          "thinking": "low"
        }
      },
      "response": {
        "text": "Hi.\\n",
        "finish_reason": "stop",
        "usage": {
          "input_tokens": 10,
          "output_tokens": 5
        },
        "model": "small"
      }
    }
  ]
}
"""
    )


async def test_recording_twice_gives_the_same_bytes_and_leaves_nothing_beside(path: Path) -> None:
    contents: list[str] = []
    for _ in range(2):
        model = CassetteModel(path, ScriptedModel(["One.", call("f", b=1, a=2)]), mode="record")
        await model.respond(asking("1"))
        await parts_of(model, asking("2"))
        contents.append(written(path))

    assert contents[0] == contents[1]
    assert beside(path) == [path]


async def test_half_a_character_is_kept_too(path: Path) -> None:
    await CassetteModel(path, ScriptedModel(["cut \ud83d"])).respond(asking("a \udc00"))

    assert (await CassetteModel(path).respond(asking("a \udc00"))).text == "cut \ud83d"
    assert "cut \\ud83d" in written(path)


GOOD = {"request": {"messages": []}, "response": {"text": "Hi."}}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "Expecting value"),
        ('{"version": 1,', "line 1 column"),
        (b"\xff\xfe", "codec can't decode"),
        ("[]", r'it is not \{"version"'),
        ({"turns": []}, r'it is not \{"version"'),
        ({"version": 2, "turns": []}, "it has version 2, and this Stepwell knows version 1"),
        ({"version": 1}, 'it has version instead of "version", "turns"'),
        ({"version": 1, "turns": {}}, "instead of"),
        ({"version": 1, "turns": [], "by": "me"}, "it has by, turns, version instead"),
        ({"version": 1, "turns": [GOOD, 7]}, r"Expected `object`, got `int` - at `turns\[1\]`"),
        ({"version": 1, "turns": [{"response": {}}]}, r"`request` - at `turns\[0\]`|turns\[0\]"),
        (
            {"version": 1, "turns": [{**GOOD, "response": {"text": 5}}]},
            r"Expected `str`, got `int` - at `turns\[0\]\.response\.text`",
        ),
        (
            {"version": 1, "turns": [{**GOOD, "response": {"txt": "Hi."}}]},
            r"unknown field `txt` - at `turns\[0\]\.response`",
        ),
        (
            {
                "version": 1,
                "turns": [{**GOOD, "parts": [{"type": "text_delta", "text": "H", "x": 1}]}],
            },
            r"unknown field `x` - at `turns\[0\]\.parts\[0\]`",
        ),
        (
            {"version": 1, "turns": [{**GOOD, "parts": [{"type": "sound"}]}]},
            r"'sound' - at `turns\[0\]\.parts\[0\]\.type`",
        ),
        ({"version": 1, "turns": [{**GOOD, "note": "x"}]}, r"`note`"),
        ({"version": 1, "turns": [{"request": {}}]}, r"`turns\[0\]` needs a response or an error"),
        (
            {"version": 1, "turns": [{**GOOD, "error": {"message": "x"}}]},
            "needs a response or an error, and not both",
        ),
        (
            {"version": 1, "turns": [{"request": {}, "error": {"message": "x", "kind": "odd"}}]},
            r"'odd' - at `turns\[0\]\.error\.kind`",
        ),
        ('{"version": 1, "turns": [NaN]}', "NaN is not JSON"),
    ],
)
def test_a_file_that_is_not_a_cassette_is_refused_with_the_place(
    path: Path, content: Any, words: str
) -> None:
    put(path, json.dumps(content) if isinstance(content, dict) else content)

    with pytest.raises(ConfigurationError, match=words) as raised:
        CassetteModel(path)
    assert f"cassette {path} can't be read" in str(raised.value)
    assert "record it again" in str(raised.value)


async def test_a_failed_write_says_so_and_leaves_the_old_file_whole(path: Path) -> None:
    model = CassetteModel(path, ScriptedModel(["One.", "Two."]))
    await model.respond(asking("1"))
    before = written(path)
    path.with_name(f".turns.json.{os.getpid()}.tmp").mkdir()
    with pytest.raises(StepwellError, match=r"turns.json can't be written: .*directory"):
        await model.respond(asking("2"))

    assert written(path) == before


async def test_turns_at_the_same_time_do_not_lose_one_another(path: Path) -> None:
    def answer(request: ModelRequest) -> str:
        return f"to {request.messages[0].text}"

    class SlowModel(ScriptedModel):
        async def respond(self, request: ModelRequest) -> ModelResponse:
            for _ in range(int(request.messages[0].text) * 7 % 5):
                await asyncio.sleep(0)
            return await super().respond(request)

    model = CassetteModel(path, SlowModel(answer))
    other = CassetteModel(path, SlowModel(answer))
    asked = [str(number) for number in range(20)]
    await asyncio.gather(
        *(model.respond(asking(text)) for text in asked[:10]),
        *(drained(other, asking(text)) for text in asked[10:]),
    )
    again = CassetteModel(path)
    replayed = await asyncio.gather(*(again.respond(asking(text)) for text in asked))

    assert [response.text for response in replayed] == [f"to {text}" for text in asked]
    assert len(turns_in(path)) == 20


async def test_threads_do_not_lose_one_anothers_turns(path: Path) -> None:
    def record(number: int) -> None:
        model = CassetteModel(path, ScriptedModel([f"to {number}"]))
        asyncio.run(model.respond(asking(str(number))))

    await asyncio.gather(*(asyncio.to_thread(record, number) for number in range(16)))

    assert len(turns_in(path)) == 16
