"""Recording turns and replaying them. The disk is used: a file is what this is about."""

import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from stepwell import (
    Agent,
    AgentStatus,
    ConfigurationError,
    FallbackModel,
    FinishReason,
    Message,
    ModelError,
    ModelRequest,
    ModelResponse,
    ModelSettings,
    StepwellError,
    TextDelta,
    ThinkingDelta,
    ToolCall,
    Usage,
)
from stepwell.errors import ModelErrorKind
from stepwell.messages import FilePart, History, ImagePart, ThinkingPart, ToolResult
from stepwell.models import (
    CachedContext,
    ResponseEnd,
    ResponseFormat,
    StreamPart,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    ToolSchema,
    UsageReport,
)
from stepwell.testing import CassetteModel, MockTool, ScriptedModel, call


class PartsModel:
    """Streams one script after the other; an error is raised where it stands."""

    name = "parts"

    def __init__(self, *scripts: Sequence[StreamPart | Exception]) -> None:
        self.scripts = list(scripts)
        self.is_open = False

    async def respond(self, request: ModelRequest) -> ModelResponse:
        *_, end = [part async for part in self.stream(request)]
        return end.response

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        self.is_open = True
        try:
            for part in self.scripts.pop(0):
                if isinstance(part, Exception):
                    raise part
                yield part
        finally:
            self.is_open = False


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


def facts_of(error: ModelError | None) -> dict[str, Any]:
    assert error is not None
    return {"text": str(error), **vars(error)}


def written(path: Path) -> str:
    return path.read_bytes().decode()


def turns_in(path: Path) -> list[Any]:
    return json.loads(written(path))["turns"]


def put(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def is_there(path: Path) -> bool:
    return path.exists()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cassettes" / "turns.json"


async def test_what_is_not_recorded_is_recorded_and_then_replayed(path: Path) -> None:
    model = ScriptedModel(["One.", "Two."], name="small")
    first = CassetteModel(path, model)
    recorded = [await first.respond(asking("1")), await first.respond(asking("2"))]
    again = CassetteModel(path, ScriptedModel([]))
    replayed = [await again.respond(asking("1")), await again.respond(asking("2"))]

    assert [r.text for r in recorded] == ["One.", "Two."]
    assert replayed == recorded


async def test_auto_records_only_what_is_missing(path: Path) -> None:
    await CassetteModel(path, ScriptedModel(["One."])).respond(asking("1"))
    live = ScriptedModel(["Two."])
    model = CassetteModel(path, live)

    assert (await model.respond(asking("2"))).text == "Two."
    assert (await model.respond(asking("1"))).text == "One."
    assert len(live.requests) == 1
    assert len(turns_in(path)) == 2


async def test_replay_never_calls_the_model(path: Path) -> None:
    await CassetteModel(path, ScriptedModel(["One."], name="small")).respond(asking("1"))
    live = ScriptedModel(["Live."])
    model = CassetteModel(path, live, mode="replay")

    assert (await model.respond(asking("1"))).text == "One."
    with pytest.raises(StepwellError):
        await model.respond(asking("2"))
    assert live.requests == []


async def test_record_always_calls_and_begins_the_file_anew(path: Path) -> None:
    await CassetteModel(path, ScriptedModel(["Old.", "Older."])).respond(asking("old"))
    model = CassetteModel(path, ScriptedModel(["New.", "Newer."]), mode="record")
    assert "Old." in written(path), "nothing was asked yet"
    await model.respond(asking("1"))
    await model.respond(asking("1"))

    turns = turns_in(path)
    assert [turn["response"]["text"] for turn in turns] == ["New.", "Newer."]


async def test_record_does_not_mind_what_is_in_the_file(path: Path) -> None:
    put(path, "not JSON")
    await CassetteModel(path, ScriptedModel(["New."]), mode="record").respond(asking())

    assert (await CassetteModel(path).respond(asking())).text == "New."


async def test_the_name_is_that_of_the_model_also_without_it(path: Path) -> None:
    live = CassetteModel(path, ScriptedModel(["One."], name="small"))
    assert live.name == "small"
    await live.respond(asking())

    assert CassetteModel(path).name == "small"
    put(path, '{"version": 1, "turns": []}')
    assert CassetteModel(path).name == "cassette"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mode": "play"}, "unknown mode 'play' of a cassette; known: auto, record, replay"),
        ({"mode": "record"}, "needs a model"),
        ({"mode": "replay"}, "there is no cassette .*turns.json; record it first: CassetteModel"),
        ({"mode": "auto"}, "there is no cassette"),
        ({"model": "gpt"}, "got the name 'gpt'"),
        ({"model": ScriptedModel([]), "secrets": "key"}, r"write secrets=\(key,\)"),
        ({"model": ScriptedModel([]), "secrets": [7]}, "a secret is a text, not a int"),
    ],
)
def test_what_can_not_work_is_refused(path: Path, options: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        CassetteModel(path, **options)


STREAMED: list[StreamPart] = [
    ThinkingDelta("Hm"),
    TextDelta("Hel"),
    TextDelta("lo"),
    ToolCallStart(index=0, id="c1", name="add"),
    ToolCallDelta(index=0, arguments='{"a"'),
    ToolCallDelta(index=0, arguments=": 1}"),
    ToolCallEnd(index=0, call=ToolCall(id="c1", name="add", arguments={"a": 1})),
    UsageReport(Usage(input_tokens=2, output_tokens=3)),
    ResponseEnd(
        ModelResponse(
            text="Hello",
            tool_calls=(ToolCall(id="c1", name="add", arguments={"a": 1}, signature="s"),),
            thinking=(ThinkingPart("Hm", "sig", "t1", "acme"),),
            finish_reason=FinishReason.TOOL_CALLS,
            usage=Usage(input_tokens=2, output_tokens=3),
            cost=0.125,
            model="acme-1",
            request_id="r-1",
        )
    ),
]


async def test_a_stream_is_replayed_part_by_part_and_also_whole(path: Path) -> None:
    recorded = await parts_of(CassetteModel(path, PartsModel(STREAMED)), asking())

    assert recorded == STREAMED
    assert await parts_of(CassetteModel(path), asking()) == STREAMED
    assert await CassetteModel(path).respond(asking()) == STREAMED[-1].response  # type: ignore[union-attr]


async def test_a_whole_turn_is_replayed_also_as_a_stream(path: Path) -> None:
    model = CassetteModel(path, ScriptedModel(["Hi you.", call("add", id="c1")]))
    spoken, silent = await model.respond(asking("1")), await model.respond(asking("2"))

    again = CassetteModel(path)
    assert await parts_of(again, asking("1")) == [TextDelta("Hi you."), ResponseEnd(spoken)]
    assert await parts_of(again, asking("2")) == [ResponseEnd(silent)]


async def test_a_model_that_can_not_stream_is_recorded_by_a_stream(path: Path) -> None:
    class WholeModel:
        async def respond(self, request: ModelRequest) -> ModelResponse:
            return ModelResponse(text="Hi.")

    live: Any = WholeModel()
    recorded = await parts_of(CassetteModel(path, live), asking())

    assert recorded == [TextDelta("Hi."), ResponseEnd(ModelResponse(text="Hi."))]
    assert await parts_of(CassetteModel(path), asking()) == recorded


async def test_the_turn_is_on_disk_before_the_last_part_is_delivered(path: Path) -> None:
    async for part in CassetteModel(path, PartsModel(STREAMED)).stream(asking()):
        assert is_there(path) == isinstance(part, ResponseEnd)


async def test_a_stream_that_is_given_up_is_not_recorded(path: Path) -> None:
    live = PartsModel(STREAMED, STREAMED)
    model = CassetteModel(path, live)
    stream: Any = model.stream(asking())
    await anext(stream)
    await stream.aclose()
    assert not live.is_open
    assert not is_there(path)

    assert await parts_of(model, asking()) == STREAMED, "asked again, it is recorded"
    assert len(turns_in(path)) == 1


ERROR = ModelError(
    "429 from acme",
    kind="rate_limit",
    error_type="timeout",
    retryable=False,
    retry_after=1.5,
    status=429,
    request_id="r-1",
    provider_text="slow down",
    usage=Usage(input_tokens=3),
    cost=0.25,
)


@pytest.mark.parametrize("error", [ERROR, ModelError("plain"), ModelError("", kind="server")])
async def test_errors_are_recorded_and_raised_again_with_all_facts(
    path: Path, error: ModelError
) -> None:
    live = CassetteModel(path, ScriptedModel([error]))
    with pytest.raises(ModelError) as raised:
        await live.respond(asking())
    assert raised.value is error
    with pytest.raises(ModelError) as replayed:
        await CassetteModel(path).respond(asking())
    parts, streamed = await drained(CassetteModel(path), asking())

    assert facts_of(replayed.value) == facts_of(error)
    assert (parts, facts_of(streamed)) == ([], facts_of(error))


async def test_that_nobody_knows_whether_to_retry_is_a_fact_as_well(path: Path) -> None:
    error = ModelError("odd", kind="server")
    error.retryable = None
    await drained(CassetteModel(path, ScriptedModel([error])), asking())
    _, replayed = await drained(CassetteModel(path), asking())

    assert facts_of(replayed)["retryable"] is None


async def test_a_stream_that_breaks_is_replayed_up_to_where_it_broke(path: Path) -> None:
    live = CassetteModel(path, PartsModel([TextDelta("Hel"), ERROR]))
    assert await drained(live, asking()) == ([TextDelta("Hel")], ERROR)

    parts, error = await drained(CassetteModel(path), asking())
    assert (parts, facts_of(error)) == ([TextDelta("Hel")], facts_of(ERROR))
    with pytest.raises(ModelError, match="429 from acme"):
        await CassetteModel(path).respond(asking())


async def test_a_stream_without_its_end_is_recorded_as_an_error(path: Path) -> None:
    parts, error = await drained(CassetteModel(path, PartsModel([TextDelta("Hel")])), asking())

    assert parts == [TextDelta("Hel")]
    assert error is not None
    assert error.kind is ModelErrorKind.INCOMPLETE_STREAM
    assert (await drained(CassetteModel(path), asking()))[0] == parts


async def test_a_defect_is_not_recorded(path: Path) -> None:
    with pytest.raises(KeyError):
        await CassetteModel(path, ScriptedModel([KeyError("bug")])).respond(asking())

    assert not is_there(path)


async def test_an_answer_that_is_none_can_not_be_recorded(path: Path) -> None:
    class OddModel:
        async def respond(self, request: ModelRequest) -> Any:
            return ModelResponse(text=None)  # type: ignore[arg-type]

    odd: Any = OddModel()
    with pytest.raises(StepwellError, match=r"can't be recorded .* at `turn\.response\.text"):
        await CassetteModel(path, odd).respond(asking())
    with pytest.raises(StepwellError, match="holds JSON only, and nan has no form"):
        await CassetteModel(path, ScriptedModel([ModelResponse(cost=float("nan"))])).respond(
            asking()
        )
    with pytest.raises(StepwellError, match="holds JSON only, and b'x' has no form"):
        await CassetteModel(path, ScriptedModel([call("f", x=b"x")])).respond(asking())
    assert not is_there(path)


async def test_identical_requests_are_answered_in_the_order_of_the_recording(path: Path) -> None:
    model = CassetteModel(path, ScriptedModel(["One.", "Two."]))
    await model.respond(asking())
    await model.respond(asking())
    again = CassetteModel(path)
    texts = [(await again.respond(asking())).text for _ in range(2)]

    assert texts == ["One.", "Two."]
    with pytest.raises(StepwellError, match="was recorded 2 times and is asked once more"):
        await again.respond(asking())


async def test_auto_records_what_is_asked_more_often_than_it_was_recorded(path: Path) -> None:
    await CassetteModel(path, ScriptedModel(["One."])).respond(asking())
    model = CassetteModel(path, ScriptedModel(["Two."]))

    assert [(await model.respond(asking())).text for _ in range(2)] == ["One.", "Two."]
    again = CassetteModel(path)
    assert [(await again.respond(asking())).text for _ in range(2)] == ["One.", "Two."]


def conversation(call_id: str, message_id: str) -> ModelRequest:
    called = ToolCall(id=call_id, name="add", arguments={"b": 2, "a": 1})
    result = ToolResult(call_id=call_id, tool_name="add", content="3")
    metadata = {"seen": message_id}
    return ModelRequest(
        messages=History.of(
            [
                Message.user("Add.", id=message_id, metadata=metadata),
                Message.assistant("", [called], id=f"{message_id}-1"),
                Message.tool(result, id=f"{message_id}-2"),
            ]
        ),
    )


async def test_random_ids_metadata_headers_and_time_do_not_matter(path: Path) -> None:
    def headed(request: ModelRequest, key: str, seconds: float) -> ModelRequest:
        headers = ModelSettings(temperature=0.5, extra_headers={"X-Run": key})
        return replace(request, settings=headers, seconds_left=seconds)

    first = headed(conversation("call_9f_1", "m-1"), "one", 5.0)
    other = headed(conversation("call_3c_7", "m-2"), "two", 50.0)
    await CassetteModel(path, ScriptedModel(["Three."])).respond(first)

    assert (await CassetteModel(path).respond(other)).text == "Three."
    assert "X-Run" not in written(path)


async def test_the_order_of_names_in_an_object_does_not_matter(path: Path) -> None:
    def schema(*names: str) -> ModelRequest:
        parameters = {"type": "object", "properties": {name: {} for name in names}}
        return asking(tools=(ToolSchema(name="f", description="", parameters=parameters),))

    await CassetteModel(path, ScriptedModel(["ok"])).respond(schema("a", "b"))

    assert (await CassetteModel(path).respond(schema("b", "a"))).text == "ok"


async def test_calls_that_are_mixed_up_are_another_request(path: Path) -> None:
    def results(first: str, second: str) -> ModelRequest:
        calls = [ToolCall(id=i, name="add") for i in ("x", "y")]
        told = [ToolResult(call_id=i, tool_name="add", content="3") for i in (first, second)]
        messages = (Message.assistant("", calls), *(Message.tool(r) for r in told))
        return ModelRequest(messages=messages)

    await CassetteModel(path, ScriptedModel(["ok"])).respond(results("x", "y"))
    with pytest.raises(StepwellError, match=r"messages\[1\].parts\[0\].call_id: recorded 'call_1'"):
        await CassetteModel(path).respond(results("y", "x"))


BASE = asking(
    "Go",
    context=CachedContext(messages=(Message.system("Be brief."),)),
    tools=(ToolSchema(name="add", description="Adds.", parameters={"type": "object"}),),
    settings=ModelSettings(temperature=0.5),
)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"messages": (Message.user("Come"),)},
            r"messages\[0\].parts\[0\].text: recorded 'Go', asked 'Come'\.",
        ),
        (
            {"messages": (Message.system("Go"),)},
            r"messages\[0\].role: recorded 'user', asked 'system'",
        ),
        (
            {"messages": (*BASE.messages, Message.user("On"))},
            r"messages\[1\]: recorded nothing, asked \{'role': 'user'",
        ),
        ({"context": CachedContext()}, r"context: recorded \[.*asked nothing"),
        ({"tools": ()}, "tools: recorded .*asked nothing"),
        ({"settings": ModelSettings(temperature=0.6)}, "temperature: recorded 0.5, asked 0.6"),
        ({"settings": ModelSettings(temperature=0.5, seed=1)}, "settings.seed"),
        (
            {"settings": ModelSettings(temperature=0.5, extra_body={"a": [1]})},
            "settings.extra_body",
        ),
        (
            {"settings": ModelSettings(temperature=0.5, extra_body={"a": 1, "b": None})},
            "settings.extra_body",
        ),
        ({"instruction": Message.system("Now.")}, "instruction: recorded nothing"),
        ({"response_format": ResponseFormat()}, r"response_format: recorded nothing, asked \{\}"),
    ],
)
async def test_a_request_that_differs_is_named_with_the_place_and_the_way_to_record_it(
    path: Path, changes: Any, words: str
) -> None:
    model = CassetteModel(path, ScriptedModel(["far", "near"]))
    far = asking("Something else entirely", settings=ModelSettings(model="m", seed=9))
    await model.respond(far)
    await model.respond(BASE)

    with pytest.raises(StepwellError, match=words) as raised:
        await CassetteModel(path).respond(replace(BASE, **changes))
    assert "the nearest, turns[1], differs at" in str(raised.value)
    assert 'To record it: CassetteModel(path, model, mode="auto")' in str(raised.value)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize(
    ("recorded", "asked"), [({"a": 1}, {"a": 1.0}), ({"a": 1}, {"a": True}), ({}, {"a": None})]
)
async def test_requests_that_differ_in_json_only_differ(
    path: Path, recorded: dict[str, Any], asked: dict[str, Any]
) -> None:
    def request(body: dict[str, Any]) -> ModelRequest:
        return asking(settings=ModelSettings(seed=1, extra_body={"x": body}))

    await CassetteModel(path, ScriptedModel(["x"])).respond(request(recorded))
    with pytest.raises(StepwellError, match=r"settings\.extra_body\.x\.a: recorded .*, asked "):
        await CassetteModel(path).respond(request(asked))


async def test_of_long_texts_the_place_is_shown_where_they_begin_to_differ(path: Path) -> None:
    same = "word " * 100
    await CassetteModel(path, ScriptedModel(["x"])).respond(asking(f"{same}ONE{same}"))
    with pytest.raises(StepwellError) as raised:
        await CassetteModel(path).respond(asking(f"{same}TWO{same}"))

    assert "recorded ...'word word" in str(raised.value)
    assert "ONE" in str(raised.value)
    assert "TWO" in str(raised.value)
    assert len(str(raised.value)) < 700


async def test_an_empty_cassette_says_so(path: Path) -> None:
    put(path, '{"version": 1, "turns": []}')
    with pytest.raises(StepwellError, match="it has no turns at all"):
        await CassetteModel(path).respond(asking())


async def test_a_format_is_the_same_however_it_is_written(path: Path) -> None:
    schema = {"type": "object", "properties": {}}
    await CassetteModel(path, ScriptedModel(["{}"])).respond(
        asking(response_format=ResponseFormat(schema=schema))
    )

    assert (await CassetteModel(path).respond(asking(response_format=schema))).text == "{}"


async def test_of_an_attachment_only_a_digest_is_written(path: Path) -> None:
    def picture(data: str) -> ModelRequest:
        image, file = ImagePart(data=data, media_type="image/png"), FilePart(data="aGk=", name="f")
        return ModelRequest(messages=(Message.user([image, file]),))

    await CassetteModel(path, ScriptedModel(["A cat."])).respond(picture("A" * 5000))

    assert len(written(path)) < 1500
    assert "aGk=" not in written(path)
    assert (await CassetteModel(path).respond(picture("A" * 5000))).text == "A cat."
    with pytest.raises(StepwellError, match=r"parts\[0\].data"):
        await CassetteModel(path).respond(picture("A" * 4999 + "B"))


async def test_an_agents_run_is_replayed_with_other_ids_and_the_same_state(path: Path) -> None:
    async def run(model: Any) -> Any:
        tools = [MockTool.returning("add", 3), MockTool.returning("sub", 1)]
        return await Agent(model, tools=tools).run("Go")

    # Calls without ids are given some by the driver, and those differ from run to run.
    turns = [[call("add", a=1), call("sub", a=2)], call("add", id="own"), "Done."]
    recorded = await run(CassetteModel(path, ScriptedModel(turns)))
    replayed = await run(CassetteModel(path, mode="replay"))

    assert replayed.status is AgentStatus.COMPLETED
    assert [m.text for m in replayed.messages] == [m.text for m in recorded.messages]
    assert (replayed.usage, replayed.cost) == (recorded.usage, recorded.cost)
    assert replayed.final_response == "Done."


async def test_an_agents_stream_is_replayed(path: Path) -> None:
    async def text(model: Any) -> list[str]:
        return [p.text async for p in Agent(model).stream("Go") if isinstance(p, TextDelta)]

    live = await text(CassetteModel(path, ScriptedModel(["Hi to you."])))

    assert await text(CassetteModel(path)) == live != []


async def test_a_run_with_an_unknown_request_ends_explained(path: Path) -> None:
    await Agent(CassetteModel(path, ScriptedModel(["Hi."]))).run("Go")
    state = await Agent(FallbackModel(CassetteModel(path), ScriptedModel(["No."]))).run("Come")

    assert state.status is AgentStatus.FAILED
    assert "recorded 'Go', asked 'Come'" in state.explain()
