"""A model that asks another when one fails."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell import (
    Agent,
    AgentStatus,
    ConfigurationError,
    ErrorPolicy,
    FallbackModel,
    Message,
    ModelError,
    ModelRequest,
    ModelResponse,
    ModelSettings,
    TextDelta,
    Usage,
)
from stepwell.errors import ErrorType, ModelErrorKind
from stepwell.models import ResponseEnd, StreamPart, UsageReport
from stepwell.testing import FakeClock, ScriptedModel

REQUEST = ModelRequest(messages=(Message.user("Go"),))
NOT_BY_DEFAULT = {"refusal", "content_filter", "invalid_request", "context_too_long"}


class PartsModel:
    """Streams what it was given; an error is raised where it stands."""

    def __init__(self, name: str, said: Sequence[StreamPart | Exception]) -> None:
        self.name = name
        self.said = said
        self.requests: list[ModelRequest] = []
        self.is_open = False

    async def respond(self, request: ModelRequest) -> ModelResponse:
        async for part in self.stream(request):
            if isinstance(part, ResponseEnd):
                return part.response
        raise AssertionError("no end")

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        self.requests.append(request)
        self.is_open = True
        try:
            for part in self.said:
                if isinstance(part, Exception):
                    raise part
                yield part
        finally:
            self.is_open = False


class WholeModel:
    """Can't stream, and has no name."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    async def respond(self, request: ModelRequest) -> Any:
        return self.answer


def failing(kind: str | None = "server", text: str = "it broke", **facts: Any) -> ModelError:
    return ModelError(text, kind=kind, **facts)


def end(text: str = "", **facts: Any) -> ResponseEnd:
    return ResponseEnd(ModelResponse(text=text, **facts))


async def parts_of(model: Any, request: ModelRequest = REQUEST) -> list[StreamPart]:
    return [part async for part in model.stream(request)]


async def drained(model: Any) -> tuple[list[StreamPart], ModelError | None]:
    """What was delivered, and the error that ended it if one did."""
    parts: list[StreamPart] = []
    try:
        async for part in model.stream(REQUEST):
            parts.append(part)  # noqa: PERF401 - what came before the error counts
    except ModelError as error:
        return parts, error
    return parts, None


async def said_before_failing(model: Any) -> tuple[list[StreamPart], ModelError]:
    parts, error = await drained(model)
    assert error is not None
    return parts, error


async def test_the_first_model_answers_and_no_other_is_asked() -> None:
    first, second = ScriptedModel(["One."], name="a"), ScriptedModel(["Two."], name="b")
    response = await FallbackModel(first, second).respond(REQUEST)

    assert (response.text, response.model) == ("One.", "a")
    assert first.requests == [REQUEST]
    assert second.requests == []


async def test_the_next_model_answers_and_pays_for_the_one_that_failed() -> None:
    error = failing("rate_limit", usage=Usage(input_tokens=7, cached_tokens=3), cost=0.5)
    first = ScriptedModel([error], name="a")
    second = ScriptedModel(["Two."], name="b", usage=Usage(input_tokens=1), cost=0.25)
    response = await FallbackModel(first, second).respond(REQUEST)

    assert (response.text, response.model) == ("Two.", "b")
    assert response.usage == Usage(input_tokens=8, cached_tokens=3)
    assert response.cost == 0.75


async def test_the_response_names_the_model_that_gave_it_even_if_that_one_did_not() -> None:
    model = FallbackModel(ScriptedModel([failing()]), WholeModel(ModelResponse(text="Hi.")))

    assert (await model.respond(REQUEST)).model == "WholeModel"


def test_its_name_tells_all_names() -> None:
    model = FallbackModel(ScriptedModel([], name="big"), WholeModel(None))

    assert model.name == "fallback(big, WholeModel)"


@pytest.mark.parametrize("kind", [*ModelErrorKind, None])
async def test_by_default_it_falls_back_on_what_is_the_providers_fault(kind: str | None) -> None:
    second = ScriptedModel(["Two."])
    model = FallbackModel(ScriptedModel([failing(kind)]), second)

    if kind in NOT_BY_DEFAULT:
        with pytest.raises(ModelError):
            await model.respond(REQUEST)
        assert second.requests == []
    else:
        assert (await model.respond(REQUEST)).text == "Two."


@pytest.mark.parametrize(
    ("on", "falls_back", "stays"),
    [
        (("rate_limit",), ["rate_limit", "overloaded"], ["server", "timeout", None]),
        ("rate_limit", ["rate_limit", "overloaded"], ["server"]),
        ([ModelErrorKind.RATE_LIMIT], ["rate_limit"], ["overloaded"]),
        ([ErrorType.RATE_LIMIT], ["rate_limit", "overloaded"], ["server"]),
        (["refusal", "connect"], ["refusal", "connect"], ["timeout", "content_filter", None]),
        ({"model"}, ["refusal", "server", None], ["rate_limit", "timeout"]),
        (["timeout"], ["timeout"], ["connect"]),
    ],
)
async def test_it_falls_back_on_the_chosen_kinds(
    on: Any, falls_back: list[str | None], stays: list[str | None]
) -> None:
    for kind in falls_back:
        model = FallbackModel(ScriptedModel([failing(kind)]), ScriptedModel(["Two."]), on=on)
        assert (await model.respond(REQUEST)).text == "Two."
    for kind in stays:
        error = failing(kind)
        model = FallbackModel(ScriptedModel([error]), ScriptedModel(["Two."]), on=on)
        with pytest.raises(ModelError) as raised:
            await model.respond(REQUEST)
        assert raised.value is error


@pytest.mark.parametrize(
    ("models", "on", "words"),
    [
        ((), None, "at least one model"),
        (
            ("openai:gpt-5",),
            None,
            r"needs model objects, got the name 'openai:gpt-5'.*ModelPresets",
        ),
        (([ScriptedModel([])],), None, r"write FallbackModel\(\*models\)"),
        ((ScriptedModel,), None, "got the class ScriptedModel"),
        ((ScriptedModel([]), 7), None, r"7 has no respond\(\)"),
        ((ScriptedModel([]),), (), "would never fall back"),
        ((ScriptedModel([]),), ["rate_limits"], "'rate_limits' in on. Known kinds: .*rate_limit"),
        ((ScriptedModel([]),), [429], "429 in on. Known kinds"),
    ],
)
def test_what_can_not_work_is_refused(models: Any, on: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        FallbackModel(*models, on=on)


async def test_when_all_fail_the_error_tells_each_failure_and_sums_what_was_paid() -> None:
    first = failing("overloaded", "busy", retry_after=30.0, usage=Usage(input_tokens=1), cost=0.5)
    second = failing("rate_limit", "slow down", retry_after=2.0, status=429)
    third = failing(
        "authentication",
        "bad key",
        status=401,
        request_id="r-3",
        provider_text="no",
        usage=Usage(output_tokens=2),
        cost=0.25,
    )
    models = [
        ScriptedModel([error], name=name)
        for name, error in (("a", first), ("b", second), ("c", third))
    ]
    with pytest.raises(ModelError) as raised:
        await FallbackModel(*models).respond(REQUEST)
    error = raised.value

    assert str(error) == "all 3 models failed: a: busy; b: slow down; c: bad key"
    assert (error.kind, error.error_type) == (ModelErrorKind.AUTHENTICATION, ErrorType.MODEL)
    assert (error.status, error.request_id, error.provider_text) == (401, "r-3", "no")
    assert error.retryable is True, "the first two may answer a little later"
    assert error.retry_after == 2.0
    assert (error.usage, error.cost) == (Usage(input_tokens=1, output_tokens=2), 0.75)
    assert error.__cause__ is third


@pytest.mark.parametrize(
    ("first", "second", "retryable"),
    [
        (failing("quota"), failing("authentication"), False),
        (failing(None), failing("authentication"), None),
        (failing("server"), failing(None, retryable=False), True),
    ],
)
async def test_when_all_fail_asking_again_may_help_if_it_may_help_with_one(
    first: ModelError, second: ModelError, retryable: bool | None
) -> None:
    with pytest.raises(ModelError) as raised:
        await FallbackModel(ScriptedModel([first]), ScriptedModel([second])).respond(REQUEST)

    assert raised.value.retryable is retryable
    assert raised.value.usage is None, "nobody said that anything was used"


async def test_a_kind_that_was_not_chosen_ends_it_and_is_told_with_what_came_before() -> None:
    last = failing("refusal", "I won't", usage=Usage(input_tokens=2))
    third = ScriptedModel(["Three."])
    model = FallbackModel(
        ScriptedModel([failing("server", "down", usage=Usage(input_tokens=1))], name="a"),
        ScriptedModel([last], name="b"),
        third,
    )
    with pytest.raises(ModelError) as raised:
        await model.respond(REQUEST)

    assert str(raised.value) == "a: down; b: I won't (no fallback on refusal)"
    assert (raised.value.kind, raised.value.retryable) == (ModelErrorKind.REFUSAL, False)
    assert raised.value.usage == Usage(input_tokens=3)
    assert third.requests == []


async def test_the_error_of_an_only_model_is_raised_as_it_is() -> None:
    error = failing("server")
    with pytest.raises(ModelError) as raised:
        await FallbackModel(ScriptedModel([error])).respond(REQUEST)

    assert raised.value is error


async def test_a_defect_of_a_model_is_no_reason_to_ask_another() -> None:
    second = ScriptedModel(["Two."])
    with pytest.raises(KeyError):
        await FallbackModel(ScriptedModel([KeyError("bug")]), second).respond(REQUEST)

    assert second.requests == []


async def test_what_speaks_to_one_provider_reaches_the_first_model_only() -> None:
    first, second = ScriptedModel([failing()]), ScriptedModel(["Two."])
    settings = ModelSettings(
        model="gpt-x", temperature=0.5, extra_body={"a": 1}, extra_headers={"Authorization": "k"}
    )
    request = ModelRequest(messages=REQUEST.messages, settings=settings)
    await FallbackModel(first, second).respond(request)

    assert first.requests[0].settings == settings
    assert second.requests[0].settings == ModelSettings(temperature=0.5)
    assert second.requests[0].messages is request.messages


async def test_the_next_model_is_told_how_much_time_is_left_by_then() -> None:
    clock = FakeClock()

    def hangs(_: ModelRequest) -> ModelError:
        clock.advance(8)
        return failing("timeout")

    second, third = ScriptedModel([failing()]), ScriptedModel(["Three."])
    model = FallbackModel(ScriptedModel(hangs), ScriptedModel(hangs), second, third, clock=clock)
    await model.respond(ModelRequest(messages=(), seconds_left=10.0))

    assert [m.requests[0].seconds_left for m in (second, third)] == [0.0, 0.0]


async def test_each_fallback_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    model = FallbackModel(
        ScriptedModel([failing(text="it broke")], name="a"), ScriptedModel(["Two."], name="b")
    )
    with caplog.at_level(logging.WARNING, "stepwell.models"):
        await model.respond(REQUEST)

    assert caplog.messages == ["model a failed: it broke; falling back to b"]


async def test_what_is_no_response_is_left_to_the_caller_to_name() -> None:
    odd = ModelResponse(text="x", usage=None)  # type: ignore[arg-type]
    model = FallbackModel(ScriptedModel([failing()]), WholeModel(odd))

    assert await model.respond(REQUEST) is odd
    assert await parts_of(FallbackModel(WholeModel("not a response"))) == [
        ResponseEnd("not a response")  # type: ignore[arg-type]
    ]


async def test_a_stream_falls_back_as_long_as_nothing_was_delivered() -> None:
    first = PartsModel("a", [failing("overloaded", usage=Usage(input_tokens=4), cost=1.0)])
    used = UsageReport(Usage(output_tokens=2))
    second = PartsModel(
        "b", [TextDelta("Hi"), used, end("Hi", usage=Usage(output_tokens=2), model="b-2")]
    )

    both = Usage(input_tokens=4, output_tokens=2)
    assert await parts_of(FallbackModel(first, second)) == [
        TextDelta("Hi"),
        UsageReport(both, 1.0),
        end("Hi", usage=both, cost=1.0, model="b-2"),
    ]


async def test_nothing_is_tried_again_once_a_part_was_delivered() -> None:
    error = failing("disconnected")
    second = ScriptedModel(["Two."])
    model = FallbackModel(PartsModel("a", [TextDelta("Hel"), error]), second)
    parts, raised = await said_before_failing(model)

    assert parts == [TextDelta("Hel")]
    assert raised is error
    assert second.requests == []


async def test_an_error_after_delivery_tells_and_sums_what_failed_before() -> None:
    first = failing("server", "down", usage=Usage(input_tokens=1), cost=0.5)
    second = failing("disconnected", "cut", usage=Usage(input_tokens=2), retry_after=1.0)
    model = FallbackModel(
        ScriptedModel([first], name="a"), PartsModel("b", [TextDelta("Hel"), second])
    )
    parts, raised = await said_before_failing(model)

    assert parts == [TextDelta("Hel")]
    assert str(raised) == (
        "cut (not retried, since a part of the response was delivered; earlier failures: a: down)"
    )
    assert (raised.kind, raised.retry_after) == (ModelErrorKind.DISCONNECTED, 1.0)
    assert (raised.usage, raised.cost) == (Usage(input_tokens=3), 0.5)
    assert raised.__cause__ is second


async def test_a_report_of_usage_is_not_an_answer_yet() -> None:
    report = UsageReport(Usage(input_tokens=9))
    first = PartsModel("a", [report, report, failing("overloaded", usage=report.usage)])
    second = PartsModel("b", [report, TextDelta("Hi"), end("Hi", model="b")])

    twice = UsageReport(Usage(input_tokens=18))
    assert await parts_of(FallbackModel(first, second)) == [
        twice,
        TextDelta("Hi"),
        end("Hi", usage=report.usage, model="b"),
    ]


async def test_a_model_that_can_not_stream_gives_its_answer_as_one_part() -> None:
    model = FallbackModel(ScriptedModel([failing()]), WholeModel(ModelResponse(text="Hi.")))
    silent = FallbackModel(WholeModel(ModelResponse(model="x")))

    assert await parts_of(model) == [TextDelta("Hi."), end("Hi.", model="WholeModel")]
    assert await parts_of(silent) == [end(model="x")]


async def test_a_stream_without_its_end_is_an_error() -> None:
    whole = PartsModel("b", [end("Hi", model="b")])
    empty, cut = PartsModel("a", []), PartsModel("a", [TextDelta("Hel")])

    assert await parts_of(FallbackModel(empty, whole)) == [end("Hi", model="b")]
    parts, raised = await said_before_failing(FallbackModel(cut, whole))
    assert parts == [TextDelta("Hel")]
    assert raised.kind is ModelErrorKind.INCOMPLETE_STREAM
    assert "stream of a ended without its final part" in str(raised)


async def test_a_stream_that_is_given_up_lets_go_of_the_connection() -> None:
    model = PartsModel("a", [TextDelta("Hel"), TextDelta("lo"), end("Hello")])
    stream: Any = FallbackModel(model).stream(REQUEST)
    await anext(stream)
    assert model.is_open
    await stream.aclose()

    assert not model.is_open


async def test_the_connection_is_free_when_the_last_part_arrives() -> None:
    model = PartsModel("a", [TextDelta("Hi"), end("Hi"), TextDelta("too late")])
    open_at = {type(part): model.is_open async for part in FallbackModel(model).stream(REQUEST)}

    assert open_at == {TextDelta: True, ResponseEnd: False}


async def test_an_agent_runs_and_streams_with_it() -> None:
    def model() -> FallbackModel:
        error = failing("rate_limit", usage=Usage(input_tokens=3), cost=0.5)
        return FallbackModel(ScriptedModel([error], name="a"), ScriptedModel(["Hi you."], name="b"))

    state = await Agent(model()).run("Go")
    text = [p.text async for p in Agent(model()).stream("Go") if isinstance(p, TextDelta)]

    assert (state.final_response, state.steps[0].step.model) == ("Hi you.", "b")
    assert (state.usage.input_tokens, state.cost) == (13, 0.5)
    assert "".join(text) == "Hi you."


async def test_a_run_whose_models_all_fail_ends_explained_and_can_be_retried() -> None:
    first, second = failing("overloaded", "busy"), failing("authentication", "bad key")
    model = FallbackModel(
        ScriptedModel([first, first], name="a"), ScriptedModel([second, "Hi."], name="b")
    )
    clock = FakeClock()
    state = await Agent(model, error_policy=ErrorPolicy.retry_all(3), clock=clock).run("Go")

    assert state.status is AgentStatus.COMPLETED
    assert state.final_response == "Hi."
    assert "a: busy; b: bad key" in state.steps[0].step.errors[0].message


outcomes = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from([*ModelErrorKind, "answer", "cut"])),
    min_size=1,
    max_size=5,
)


@given(outcomes)
def test_each_part_is_delivered_once_and_nothing_is_asked_after_the_first(
    outcomes: list[tuple[int, str]],
) -> None:
    models: list[PartsModel] = []
    for number, (parts, outcome) in enumerate(outcomes):
        used = Usage(input_tokens=10**number)
        said: list[StreamPart | Exception] = [TextDelta(f"{number}.{i}") for i in range(parts)]
        if outcome == "answer":
            said.append(end(f"answer {number}", usage=used))
        elif outcome != "cut":
            said.append(failing(outcome, usage=used))
        models.append(PartsModel(str(number), said))

    got, error = asyncio.run(drained(FallbackModel(*models)))
    asked = [model for model in models if model.requests]
    last = asked[-1]

    assert asked == models[: len(asked)], "in order, none left out"
    assert all(len(model.requests) == 1 for model in asked), "no model twice"
    deltas = [part for part in got if isinstance(part, TextDelta)]
    assert deltas == [part for part in last.said if isinstance(part, TextDelta)]
    assert not any(isinstance(part, TextDelta) for model in asked[:-1] for part in model.said)
    charged = Usage(input_tokens=sum(10**i for i in range(len(asked)) if outcomes[i][1] != "cut"))
    if error is None:
        assert isinstance(got[-1], ResponseEnd)
        assert got[-1].response.usage == charged
    else:
        assert (error.usage or Usage()) == charged
