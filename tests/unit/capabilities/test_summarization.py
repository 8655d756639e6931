"""Long conversations: the model is told a summary of the older part, the state keeps all of it."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec import json

from stepwell import (
    Agent,
    AgentState,
    AgentStateSerializer,
    ConfigurationError,
    Message,
    ModelError,
    ModelSettings,
)
from stepwell.agent.metadata_keys import SUMMARY
from stepwell.capabilities.summarization import UseSummarization
from stepwell.capabilities.summarization.summary_wait import WAIT
from stepwell.continuation import AgentStatus
from stepwell.messages import FinishReason, Usage
from stepwell.models import ModelPresets, ModelRequest, ModelResponse
from stepwell.testing import MockTool, ScriptedModel, call

WORDS = "The user wants the report; ten pages of it are written."


def told(request: ModelRequest) -> list[str]:
    return [message.text for message in request.messages]


def conversation(turns: int, size: int = 100) -> AgentState:
    """A state with that many short exchanges behind it."""
    state = AgentState.empty()
    for turn in range(turns):
        asked, answered = f"question {turn} ".ljust(size, "."), f"answer {turn} ".ljust(size, ".")
        state = state.with_message(Message.user(asked), Message.assistant(answered))
    return state


def reader(size: int = 400) -> MockTool:
    return MockTool("read", lambda page=0: f"page {page} ".ljust(size, "."))


def looping(steps: int) -> Iterator[Any]:
    for page in range(steps):
        yield call("read", page=page, id=f"c{page}")
    yield "Done."


async def test_a_short_conversation_is_sent_as_it_is() -> None:
    model = ScriptedModel(["Hello."])
    summarizer = ScriptedModel([])
    use = UseSummarization(max_tokens=1000, model=summarizer)
    state = await Agent(model, capabilities=[use]).run("Hi")

    assert told(model.requests[0]) == ["Hi"]
    assert summarizer.requests == []
    assert SUMMARY not in state.metadata


async def test_what_is_too_long_is_told_as_a_summary_and_the_state_keeps_it_whole() -> None:
    model, summarizer = ScriptedModel(["Hello."]), ScriptedModel([WORDS])
    use = UseSummarization(max_tokens=200, keep_tokens=100, model=summarizer)
    before = conversation(6)
    state = await Agent(model, capabilities=[use]).run(before.with_user_message("Go on"))

    first, *kept = told(model.requests[0])
    assert WORDS in first
    assert model.requests[0].messages[0].is_user()
    assert kept[-1] == "Go on"
    assert kept[0].startswith("answer 4")
    assert [m.text for m in state.messages] == [
        *(m.text for m in before.messages),
        "Go on",
        "Hello.",
    ]
    assert state.metadata[SUMMARY]["text"] == WORDS
    assert state.metadata[SUMMARY]["until"] == len(state.messages) - len(kept) - 1


async def test_the_summarizer_is_told_the_older_part_and_no_tools() -> None:
    summarizer = ScriptedModel([WORDS])
    use = UseSummarization(max_tokens=200, keep_tokens=100, model=summarizer, prompt="Be brief.")
    agent = Agent(ScriptedModel(["Hello."]), tools=[reader()], capabilities=[use])
    await agent.run(conversation(6).with_user_message("Go on"))

    request = summarizer.requests[0]
    assert request.context.messages[0].text == "Be brief."
    assert "User: question 0" in request.messages[0].text
    assert "Assistant: answer 3" in request.messages[0].text
    assert "answer 4" not in request.messages[0].text
    assert request.tools == ()


async def test_the_start_of_the_prompt_stays_the_same_until_the_next_summary() -> None:
    model, summarizer = ScriptedModel(looping(30)), ScriptedModel(lambda _: WORDS)
    use = UseSummarization(max_tokens=1000, keep_tokens=300, model=summarizer)
    agent = Agent(model, tools=[reader()], capabilities=[use], max_steps=40, max_tokens=None)
    state = await agent.run("Read all pages")

    assert state.status is AgentStatus.COMPLETED
    starts = [request.messages[0] for request in model.requests]
    assert len({message.id for message in starts}) == 1 + len(summarizer.requests)
    assert 2 <= len(summarizer.requests) <= 10
    for earlier, later in zip(model.requests, model.requests[1:], strict=False):
        if earlier.messages[0].id == later.messages[0].id:
            shared = list(later.messages)[: len(earlier.messages)]
            assert shared == list(earlier.messages)


async def test_a_later_summary_is_made_of_the_older_one_and_what_followed() -> None:
    replies = iter([f"{WORDS} (1)", f"{WORDS} (2)", f"{WORDS} (3)"])
    summarizer = ScriptedModel(lambda _: next(replies))
    use = UseSummarization(max_tokens=500, keep_tokens=200, model=summarizer)
    model = ScriptedModel(looping(9))
    agent = Agent(model, tools=[reader()], capabilities=[use], max_tokens=None)
    await agent.run("Read all pages")

    first, second = (request.messages[0].text for request in summarizer.requests[:2])
    assert "<summary>" not in first
    assert f"<summary>\n{WORDS} (1)\n</summary>" in second
    assert "page 0 " in first
    assert "page 0 " not in second
    assert "(2)" in told(model.requests[-1])[0] or "(3)" in told(model.requests[-1])[0]


async def test_the_users_request_stays_word_for_word_while_no_kept_message_has_it() -> None:
    model, summarizer = ScriptedModel(looping(12)), ScriptedModel(lambda _: WORDS)
    use = UseSummarization(max_tokens=500, keep_tokens=200, model=summarizer)
    agent = Agent(model, tools=[reader()], capabilities=[use], max_tokens=None)
    await agent.run("Read all pages, but never page 99")

    assert len(summarizer.requests) > 1
    assert "Read all pages, but never page 99" in told(model.requests[-1])[0]


async def test_a_call_is_never_parted_from_its_results() -> None:
    calls = [call("read", page=p, id=f"p{p}") for p in range(5)]
    model = ScriptedModel([calls, calls[:2], calls[2:], "Done."])
    use = UseSummarization(max_tokens=300, keep_tokens=20, model=ScriptedModel(lambda _: WORDS))
    agent = Agent(model, tools=[reader(200)], capabilities=[use], max_tokens=None)
    state = await agent.run("Read")

    assert state.final_response == "Done."
    for request in model.requests:
        open_calls: set[str] = set()
        for message in request.messages:
            if message.tool_result is not None:
                open_calls.remove(message.tool_result.call_id)
            else:
                assert open_calls == set()
            open_calls.update(asked.id for asked in message.tool_calls)
        assert open_calls == set()
    assert [m.is_tool() for m in model.requests[-1].messages] == [False, False, True, True, True]


async def test_usage_and_cost_of_the_summary_count_into_the_step() -> None:
    model = ScriptedModel(["Hello."], usage=Usage(input_tokens=10, output_tokens=1), cost=0.5)
    summarizer = ScriptedModel([WORDS], usage=Usage(input_tokens=300, output_tokens=20), cost=0.25)
    use = UseSummarization(max_tokens=200, model=summarizer)
    state = await Agent(model, capabilities=[use]).run(conversation(6).with_user_message("Go"))

    assert state.usage == Usage(input_tokens=310, output_tokens=21)
    assert state.cost == 0.75
    assert state.steps[0].step.usage.total_tokens == 331


async def test_without_a_model_of_its_own_the_agents_is_asked() -> None:
    model = ScriptedModel([WORDS, "Hello."])
    settings = ModelSettings(model="other", tool_choice="required", temperature=0.5)
    agent = Agent(
        model,
        capabilities=[UseSummarization(max_tokens=200)],
        tools=[reader()],
        settings=settings,
    )
    state = await agent.run(conversation(6).with_user_message("Go"))

    assert state.final_response == "Hello."
    assert model.requests[0].settings == ModelSettings(model="other")
    assert WORDS in told(model.requests[1])[0]


async def test_a_model_is_found_by_its_name() -> None:
    summarizer = ScriptedModel([WORDS])
    presets = ModelPresets({"small": lambda: summarizer})
    use = UseSummarization(max_tokens=200, model="small")
    agent = Agent(ScriptedModel(["Hello."]), capabilities=[use], model_presets=presets)
    await agent.run(conversation(6).with_user_message("Go"))

    assert len(summarizer.requests) == 1


FAILURES: dict[str, Callable[[], Any]] = {
    "model error": lambda: ModelError("503", usage=Usage(input_tokens=7), cost=0.125),
    "any other error": lambda: ValueError("no such thing"),
    "empty": lambda: "",
    "too short": lambda: "ok",
    "filtered": lambda: ModelResponse(text=WORDS, finish_reason=FinishReason.CONTENT_FILTER),
    "not a response": lambda: ModelResponse(text=3),
}


@pytest.mark.parametrize("kind", FAILURES)
async def test_a_summary_that_fails_does_not_fail_the_run(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    model, summarizer = ScriptedModel(["Hello."]), ScriptedModel([FAILURES[kind]()])
    use = UseSummarization(max_tokens=200, model=summarizer)
    before = conversation(6).with_user_message("Go")
    with caplog.at_level(logging.WARNING, logger="stepwell"):
        state = await Agent(model, capabilities=[use]).run(before)

    assert state.final_response == "Hello."
    assert list(model.requests[0].messages) == list(before.messages)
    assert "could not be summarized" in caplog.text
    assert SUMMARY not in state.metadata


async def test_what_a_failed_summary_cost_is_counted() -> None:
    failed = ModelError("503", usage=Usage(input_tokens=7), cost=0.125)
    model = ScriptedModel(["Hello."], usage=Usage(input_tokens=1))
    use = UseSummarization(max_tokens=200, model=ScriptedModel([failed]))
    state = await Agent(model, capabilities=[use]).run(conversation(6).with_user_message("Go"))

    assert (state.usage.input_tokens, state.cost) == (8, 0.125)


async def test_a_failed_summary_is_tried_again_some_steps_later() -> None:
    asked_at: list[int] = []
    model = ScriptedModel(looping(12))

    def summarize(_: ModelRequest) -> Any:
        asked_at.append(len(model.requests))
        return ModelError("503") if len(asked_at) < 3 else WORDS

    use = UseSummarization(max_tokens=200, model=ScriptedModel(summarize))
    agent = Agent(model, tools=[reader(100)], capabilities=[use], max_tokens=None)
    await agent.run(conversation(6).with_user_message("Go"))

    assert asked_at[:3] == [0, 2, 6]
    assert WORDS in told(model.requests[6])[0]


async def test_the_wait_after_a_failed_summary_holds_across_runs_and_storage() -> None:
    asked_in: list[int] = []
    state = conversation(6)
    for run in range(8):

        def summarize(_: ModelRequest, run: int = run) -> Any:
            asked_in.append(run)
            return ModelError("503") if len(asked_in) < 3 else WORDS

        use = UseSummarization(max_tokens=200, model=ScriptedModel(summarize))
        agent = Agent(ScriptedModel(["Hello."]), capabilities=[use], max_tokens=None)
        ended = await agent.run(state.with_user_message("Go"))
        state = AgentStateSerializer().deserialize(AgentStateSerializer().serialize(ended))

    assert asked_in[:3] == [0, 2, 6]
    assert state.metadata[SUMMARY]["text"] == WORDS
    assert WAIT not in state.metadata


async def test_steps_that_fail_shorten_the_wait_too() -> None:
    """Or a conversation too long for the model, with no answers any more, would wait forever."""
    asked_at: list[int] = []
    errors = [ModelError("too long", kind="server") for _ in range(6)]
    model = ScriptedModel([*errors, "Hello."])

    def summarize(_: ModelRequest) -> Any:
        asked_at.append(len(model.requests))
        return ModelError("503") if len(asked_at) < 3 else WORDS

    state = conversation(6).with_user_message("Go")
    for _ in range(7):
        use = UseSummarization(max_tokens=200, model=ScriptedModel(summarize))
        state = await Agent(model, capabilities=[use], max_tokens=None).run(state)

    assert asked_at == [0, 2, 6]


@pytest.mark.parametrize("stored", ["text", {"failures": "x"}, 3])
async def test_a_wait_that_can_not_be_read_is_none(stored: Any) -> None:
    summarizer = ScriptedModel([WORDS])
    use = UseSummarization(max_tokens=200, model=summarizer)
    state = conversation(6).with_metadata({WAIT: stored}).with_user_message("Go")
    await Agent(ScriptedModel(["Hello."]), capabilities=[use]).run(state)

    assert len(summarizer.requests) == 1


async def test_the_summary_outlives_a_turn_that_failed() -> None:
    model = ScriptedModel([ModelError("503", kind="server"), "Hello."])
    summarizer = ScriptedModel([WORDS], cost=0.25)
    use = UseSummarization(max_tokens=200, model=summarizer)
    state = conversation(6).with_user_message("Go")
    failed = await Agent(model, capabilities=[use]).run(state)

    assert failed.status is AgentStatus.FAILED
    assert failed.metadata[SUMMARY]["text"] == WORDS
    assert failed.cost == 0.25

    again = await Agent(model, capabilities=[use]).run(failed)

    assert again.final_response == "Hello."
    assert told(model.requests[0]) == told(model.requests[1])
    assert len(summarizer.requests) == 1


async def test_a_summary_goes_through_json_and_serves_later_executions() -> None:
    model, summarizer = ScriptedModel(["One.", "Two."]), ScriptedModel([WORDS])
    use = UseSummarization(max_tokens=200, keep_tokens=50, model=summarizer)
    agent = Agent(model, capabilities=[use])
    first = await agent.run(conversation(6).with_user_message("Go"))
    stored = json.decode(json.encode(first.metadata))
    loaded = AgentState.empty().with_messages(first.messages).with_metadata(stored)
    await agent.run(loaded.with_user_message("And now?"))

    assert told(model.requests[1]) == [*told(model.requests[0]), "One.", "And now?"]
    assert len(summarizer.requests) == 1


@pytest.mark.parametrize("stored", ["text", {"text": 1}, {"text": "a", "until": 2, "last_id": "x"}])
async def test_a_summary_that_does_not_belong_to_the_messages_is_not_told(stored: Any) -> None:
    model = ScriptedModel(["Hello."])
    use = UseSummarization(max_tokens=1000, model=ScriptedModel([]))
    before = conversation(2).with_metadata({SUMMARY: stored}).with_user_message("Go")
    await Agent(model, capabilities=[use]).run(before)

    assert told(model.requests[0]) == [message.text for message in before.messages]


async def test_one_message_that_is_too_long_is_kept_and_nothing_is_summarized() -> None:
    model, summarizer = ScriptedModel(["Hello."]), ScriptedModel([])
    use = UseSummarization(max_tokens=100, model=summarizer)
    state = await Agent(model, capabilities=[use]).run("a" * 4000)

    assert state.final_response == "Hello."
    assert told(model.requests[0]) == ["a" * 4000]
    assert summarizer.requests == []


async def test_a_few_words_beside_a_huge_result_are_not_worth_a_summary() -> None:
    model, summarizer = ScriptedModel(looping(1)), ScriptedModel([])
    use = UseSummarization(max_tokens=500, model=summarizer)
    state = await Agent(model, tools=[reader(40_000)], capabilities=[use]).run("Read")

    assert state.final_response == "Done."
    assert told(model.requests[1])[0] == "Read"
    assert summarizer.requests == []


async def test_a_summary_that_is_too_long_is_shortened() -> None:
    model, summarizer = ScriptedModel(["Hello."]), ScriptedModel(["word " * 5000])
    use = UseSummarization(max_tokens=2000, keep_tokens=200, model=summarizer)
    await Agent(model, capabilities=[use]).run(conversation(50).with_user_message("Go"))

    assert 500 < len(told(model.requests[0])[0]) <= 2000
    assert "characters left out" in told(model.requests[0])[0]


async def test_large_results_are_told_to_the_summarizer_in_bounded_size() -> None:
    model, summarizer = ScriptedModel(looping(3)), ScriptedModel(lambda _: WORDS)
    use = UseSummarization(max_tokens=30_000, keep_tokens=10, model=summarizer)
    agent = Agent(model, tools=[reader(100_000)], capabilities=[use], max_tokens=None)
    await agent.run("Read")

    assert summarizer.requests
    assert all(len(r.messages[0].text) < 10_000 for r in summarizer.requests)
    assert "characters left out" in summarizer.requests[-1].messages[0].text


async def test_keep_messages_bounds_how_many_are_kept() -> None:
    model, summarizer = ScriptedModel(["Hello."]), ScriptedModel([WORDS])
    use = UseSummarization(max_tokens=10_000, keep_tokens=5_000, keep_messages=3, model=summarizer)
    await Agent(model, capabilities=[use]).run(conversation(200, 400).with_user_message("Go"))

    assert len(model.requests[0].messages) == 4


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"max_tokens": 0}, "max_tokens must be 10 or more"),
        ({"max_tokens": 1.5}, "max_tokens must be a whole number"),
        ({"max_tokens": 100, "keep_tokens": 51}, r"must be at most half of max_tokens \(50\)"),
        ({"keep_tokens": -1}, "keep_tokens must be"),
        ({"keep_messages": 0}, "keep_messages must be"),
        ({"count_tokens": 4}, "pass a function from a Message"),
        ({"prompt": " "}, "prompt is empty"),
        ({"model": ScriptedModel}, "UseSummarization"),
        ({"model": object()}, "UseSummarization"),
    ],
)
def test_a_wrong_setting_is_named(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        UseSummarization(**wrong)


def test_two_of_them_are_a_mistake() -> None:
    with pytest.raises(ConfigurationError, match="UseSummarization was added twice"):
        Agent(ScriptedModel([]), capabilities=[UseSummarization(), UseSummarization()])
