"""A model that tries a turn again within the turn."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell import (
    Agent,
    ConfigurationError,
    FallbackModel,
    Message,
    ModelError,
    ModelRequest,
    ModelResponse,
    TextDelta,
    Usage,
)
from stepwell.backoff import Backoff
from stepwell.errors import ModelErrorKind
from stepwell.models import ResponseEnd, RetryingModel, StreamPart, UsageReport
from stepwell.testing import FakeClock, ScriptedModel

REQUEST = ModelRequest(messages=(Message.user("Go"),))


class PartsModel:
    """Streams one script after the other; an error is raised where it stands."""

    name = "parts"

    def __init__(self, *scripts: Sequence[StreamPart | Exception]) -> None:
        self.scripts = scripts
        self.tries = 0

    async def respond(self, request: ModelRequest) -> ModelResponse:
        raise AssertionError("not asked for")

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        self.tries += 1
        for part in self.scripts[self.tries - 1]:
            if isinstance(part, Exception):
                raise part
            yield part


def failing(kind: str | None = "server", text: str = "it broke", **facts: Any) -> ModelError:
    return ModelError(text, kind=kind, **facts)


def end(text: str = "", **facts: Any) -> ResponseEnd:
    return ResponseEnd(ModelResponse(text=text, **facts))


def retrying(model: Any, clock: FakeClock | None = None, **options: Any) -> RetryingModel:
    """Without chance, so that waits can be foreseen."""
    options = {"chance": lambda: 0.0, **options}
    return RetryingModel(model, clock=clock or FakeClock(), **options)


async def drained(model: Any) -> tuple[list[StreamPart], ModelError | None]:
    """What was delivered, and the error that ended it if one did."""
    parts: list[StreamPart] = []
    try:
        async for part in model.stream(REQUEST):
            parts.append(part)  # noqa: PERF401 - what came before the error counts
    except ModelError as error:
        return parts, error
    return parts, None


async def error_of(model: Any, request: ModelRequest = REQUEST) -> ModelError:
    with pytest.raises(ModelError) as raised:
        await model.respond(request)
    return raised.value


async def test_it_tries_again_with_growing_waits_and_pays_for_the_failed_tries() -> None:
    error = failing("overloaded", usage=Usage(input_tokens=3), cost=0.25)
    inner = ScriptedModel(
        [error, error, "Hi."], name="small", usage=Usage(output_tokens=1), cost=0.5
    )
    clock = FakeClock()
    model = retrying(inner, clock)
    response = await model.respond(REQUEST)

    assert (response.text, response.model, model.name) == ("Hi.", "small", "small")
    assert response.usage == Usage(input_tokens=6, output_tokens=1)
    assert response.cost == 1.0
    assert clock.slept == [1.0, 2.0]
    assert inner.requests == [REQUEST] * 3


async def test_an_answer_at_once_waits_for_nothing_and_is_left_as_it_is() -> None:
    clock = FakeClock()
    answer = ModelResponse(text="Hi.", model="m", usage=Usage(input_tokens=1))

    assert await retrying(ScriptedModel([answer]), clock).respond(REQUEST) is answer
    assert clock.slept == []


async def test_chance_shortens_the_wait_but_not_below_what_the_provider_asked() -> None:
    clock = FakeClock()
    errors = [failing(), failing(retry_after=0.1), failing("rate_limit", retry_after=90.0)]
    model = retrying(
        ScriptedModel([*errors, "Hi."]),
        clock,
        max_retries=3,
        backoff=Backoff(initial=2.0, maximum=3.0, jitter=0.5),
        chance=lambda: 1.0,
    )
    await model.respond(REQUEST)

    assert clock.slept == [1.0, 1.5, 90.0]


async def test_it_gives_up_after_the_last_try_and_says_how_many_there_were() -> None:
    errors = [
        failing("server", f"broken {i}", usage=Usage(input_tokens=1), cost=0.5) for i in range(3)
    ]
    last = failing(
        "rate_limit", "slow down", status=429, request_id="r", provider_text="p", retry_after=7.0
    )
    error = await error_of(retrying(ScriptedModel([*errors, last]), max_retries=3))

    assert str(error) == "slow down (gave up after 4 tries)"
    assert (error.kind, error.status, error.request_id) == (ModelErrorKind.RATE_LIMIT, 429, "r")
    assert (error.provider_text, error.retry_after, error.retryable) == ("p", 7.0, True)
    assert (error.usage, error.cost) == (Usage(input_tokens=3), 1.5)
    assert error.__cause__ is last


@pytest.mark.parametrize(
    "error",
    [
        failing("authentication"),
        failing(None),
        failing("rate_limit", retryable=False),
        failing("refusal"),
    ],
)
async def test_what_does_not_pass_is_raised_as_it_is(error: ModelError) -> None:
    clock = FakeClock()

    assert await error_of(retrying(ScriptedModel([error, "Hi."]), clock)) is error
    assert clock.slept == []


async def test_what_its_author_calls_retryable_is_tried_again() -> None:
    odd = failing(None, retryable=True)

    assert (await retrying(ScriptedModel([odd, "Hi."])).respond(REQUEST)).text == "Hi."


async def test_an_error_that_does_not_pass_ends_the_retries() -> None:
    errors = [failing("server", usage=Usage(input_tokens=1)), failing("refusal", "I won't")]
    error = await error_of(retrying(ScriptedModel([*errors, "Hi."])))

    assert str(error) == "I won't (at try 2 of 3; this error is not retried)"
    assert (error.kind, error.usage) == (ModelErrorKind.REFUSAL, Usage(input_tokens=1))


async def test_an_error_of_which_nobody_knows_whether_it_passes_ends_the_retries() -> None:
    inner = ScriptedModel([failing("server"), failing(None, "odd"), "Hi."])

    assert str(await error_of(retrying(inner))) == "odd (at try 2 of 3; this error is not retried)"


async def test_without_retries_the_error_is_raised_as_it_is() -> None:
    error = failing()

    assert await error_of(retrying(ScriptedModel([error]), max_retries=0)) is error


async def test_a_defect_is_not_tried_again() -> None:
    inner = ScriptedModel([KeyError("bug"), "Hi."])
    with pytest.raises(KeyError):
        await retrying(inner).respond(REQUEST)

    assert len(inner.requests) == 1


async def test_it_does_not_wait_past_the_deadline() -> None:
    clock = FakeClock()
    error = failing("rate_limit", "slow down", retry_after=30.0)
    request = ModelRequest(messages=(), seconds_left=30.0)
    raised = await error_of(retrying(ScriptedModel([error, "Hi."]), clock), request)

    assert str(raised) == (
        "slow down (gave up after 1 try: the next would have to wait 30.0 s, and the deadline is "
        "in 30.0 s)"
    )
    assert (raised.kind, raised.retry_after) == (ModelErrorKind.RATE_LIMIT, 30.0)
    assert clock.slept == []


async def test_time_spent_so_far_brings_the_deadline_closer_also_for_the_model() -> None:
    clock = FakeClock()
    lefts: list[float | None] = []

    def slow(request: ModelRequest) -> ModelError:
        lefts.append(request.seconds_left)
        clock.advance(4.0)
        return failing("timeout", "no answer")

    model = retrying(ScriptedModel(slow), clock, max_retries=9)
    raised = await error_of(model, ModelRequest(messages=(), seconds_left=12.5))

    assert lefts == [12.5, 7.5, 1.5]
    assert clock.slept == [1.0, 2.0]
    assert "gave up after 3 tries: the next would have to wait 4.0 s" in str(raised)
    assert "the deadline is in 0.0 s" in str(raised)


async def test_each_retry_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    inner = ScriptedModel([failing(text="one"), failing(text="two"), "Hi."], name="small")
    with caplog.at_level(logging.WARNING, "stepwell.models"):
        await retrying(inner).respond(REQUEST)

    assert caplog.messages == [
        "model small failed: one; waiting 1.0 s, then try 2 of 3",
        "model small failed: two; waiting 2.0 s, then try 3 of 3",
    ]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: RetryingModel("gpt"),
            "RetryingModel needs model objects, got the name 'gpt'",
        ),  # type: ignore[arg-type]
        (lambda: retrying(ScriptedModel([]), max_retries=-1), "0 or more, got -1"),
        (lambda: retrying(ScriptedModel([]), max_retries="2"), "0 or more, got '2'"),
    ],
)
def test_what_can_not_work_is_refused(make: Callable[[], object], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        make()


async def test_a_stream_is_tried_again_as_long_as_nothing_was_delivered() -> None:
    used = Usage(input_tokens=2)
    model = PartsModel(
        [UsageReport(used), failing("overloaded", usage=used, cost=0.5)],
        [],
        [TextDelta("Hi"), end("Hi", usage=Usage(output_tokens=1))],
    )
    parts, error = await drained(retrying(model))

    whole = Usage(input_tokens=2, output_tokens=1)
    assert error is None
    assert parts == [TextDelta("Hi"), end("Hi", usage=whole, cost=0.5, model="parts")]


async def test_nothing_is_tried_again_once_a_part_was_delivered() -> None:
    cut = failing("disconnected", "cut", usage=Usage(input_tokens=2))
    clock = FakeClock()
    at_once = PartsModel([TextDelta("Hel"), cut], [end("Hello")])
    later = PartsModel([failing(usage=Usage(input_tokens=1))], [TextDelta("Hel"), cut])

    assert await drained(retrying(at_once, clock)) == ([TextDelta("Hel")], cut)
    assert (at_once.tries, clock.slept) == (1, [])
    parts, error = await drained(retrying(later))
    assert parts == [TextDelta("Hel")]
    assert error is not None
    assert "cut (not retried, since a part of the response was delivered" in str(error)
    assert error.usage == Usage(input_tokens=3)


async def test_a_fallback_asks_the_next_model_when_the_retries_of_one_ran_out() -> None:
    error = failing(usage=Usage(input_tokens=1))
    first, second = ScriptedModel([error] * 3, name="a"), ScriptedModel(["Hi."], usage=Usage())
    response = await FallbackModel(retrying(first), second).respond(REQUEST)

    assert (response.text, response.usage) == ("Hi.", Usage(input_tokens=3))
    assert len(first.requests) == 3


async def test_in_an_agent_a_hiccup_is_no_step() -> None:
    model = retrying(ScriptedModel([failing("rate_limit"), "Hi."]))
    state = await Agent(model).run("Go")

    assert (state.final_response, state.step_count, state.had_errors) == ("Hi.", 1, False)


def test_by_default_it_throws_real_dice_on_the_real_clock() -> None:
    model = RetryingModel(
        ScriptedModel([failing(), failing(), "Hi."]), backoff=Backoff(initial=0.0)
    )

    assert asyncio.run(model.respond(REQUEST)).text == "Hi."


tries = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from([*ModelErrorKind, "answer", "cut"])),
    min_size=1,
    max_size=5,
)


@given(tries)
def test_each_part_is_delivered_once_and_nothing_is_tried_after_the_first(
    outcomes: list[tuple[int, str]],
) -> None:
    scripts: list[list[StreamPart | Exception]] = []
    for number, (count, outcome) in enumerate(outcomes):
        used = Usage(input_tokens=10**number)
        said: list[StreamPart | Exception] = [TextDelta(f"{number}.{i}") for i in range(count)]
        if outcome == "answer":
            said.append(end(f"answer {number}", usage=used))
        elif outcome != "cut":
            said.append(failing(outcome, usage=used))
        scripts.append(said)
    model = PartsModel(*scripts)
    clock = FakeClock()
    got, error = asyncio.run(drained(retrying(model, clock, max_retries=len(scripts) - 1)))

    asked = scripts[: model.tries]
    deltas = [part for part in got if isinstance(part, TextDelta)]
    assert deltas == [part for part in asked[-1] if isinstance(part, TextDelta)]
    assert not any(isinstance(part, TextDelta) for said in asked[:-1] for part in said)
    assert len(clock.slept) == model.tries - 1
    charged = [10**i for i in range(len(asked)) if outcomes[i][1] != "cut"]
    if error is None:
        assert isinstance(got[-1], ResponseEnd)
        assert got[-1].response.usage == Usage(input_tokens=sum(charged))
    else:
        assert (error.usage or Usage()) == Usage(input_tokens=sum(charged))
        is_last = model.tries == len(scripts)
        assert deltas or is_last or not error.retryable, "given up too early"
