"""Whatever the history and the limits: the request is valid for a provider, holds the newest
message, and stays under the limit where that is possible.
"""

import asyncio
from collections.abc import Sequence

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepwell import Agent, AgentState, Message, ToolCall
from stepwell.capabilities.summarization import UseSummarization
from stepwell.capabilities.summarization.token_tally import estimate_tokens
from stepwell.messages import ToolResult
from stepwell.testing import MockTool, ScriptedModel, call
from tests.examples import examples

WORDS = "The user wants the report."
SMALLEST = 400
"""Below it a limit leaves no room for the words around a summary."""

sizes = st.integers(0, 2000)


@st.composite
def exchanges(draw: st.DrawFn) -> list[Message]:
    """A piece of conversation: the user, an answer, or parallel calls with their results."""
    match draw(st.integers(0, 3)):
        case 0:
            return [Message.user("u" * draw(sizes))]
        case 1:
            return [Message.assistant("a" * draw(sizes))]
        case 2:
            return [Message.user("u"), Message.user("v" * draw(sizes))]
        case _:
            ids = [f"c{n}" for n in range(draw(st.integers(1, 4)))]
            calls = [ToolCall(id=i, name="read", arguments={"x": "y" * draw(sizes)}) for i in ids]
            results = [
                Message.tool(ToolResult(call_id=i, tool_name="read", content="r" * draw(sizes)))
                for i in draw(st.permutations(ids))
            ]
            return [Message.assistant("t" * draw(st.integers(0, 50)), calls), *results]


histories = st.lists(exchanges(), max_size=14).map(lambda parts: [m for p in parts for m in p])
turns = st.lists(st.lists(sizes, min_size=1, max_size=3), max_size=6)
limits = st.integers(SMALLEST, 6000).flatmap(
    lambda most: st.tuples(
        st.just(most), st.none() | st.integers(0, most // 2), st.none() | st.integers(1, 9)
    )
)


def units(messages: Sequence[Message]) -> list[list[Message]]:
    """The messages in pieces that can't be parted: a message, or calls with all their results."""
    pieces: list[list[Message]] = []
    for message in messages:
        if message.is_tool() and pieces:
            pieces[-1].append(message)
        else:
            pieces.append([message])
    return pieces


def check_valid(messages: Sequence[Message]) -> None:
    open_calls: set[str] = set()
    for message in messages:
        if message.tool_result is not None:
            assert message.tool_result.call_id in open_calls
            open_calls.remove(message.tool_result.call_id)
        else:
            assert not open_calls
        open_calls.update(asked.id for asked in message.tool_calls)
    assert not open_calls


@settings(max_examples=examples(120), deadline=None, suppress_health_check=list(HealthCheck))
@given(history=histories, steps=turns, limit=limits)
def test_requests_are_valid_hold_the_newest_and_keep_the_limit(
    history: list[Message], steps: list[list[int]], limit: tuple[int, int | None, int | None]
) -> None:
    most, keep_tokens, keep_messages = limit
    script = [[call("read", size=size, id=f"s{n}") for n, size in enumerate(s)] for s in steps]
    model, summarizer = ScriptedModel([*script, "Done."]), ScriptedModel(lambda _: WORDS)
    use = UseSummarization(
        max_tokens=most, keep_tokens=keep_tokens, keep_messages=keep_messages, model=summarizer
    )
    tool = MockTool("read", lambda size=0: "r" * size)
    agent = Agent(model, tools=[tool], capabilities=[use], max_tokens=None)
    start = AgentState.empty().with_message(*history, Message.user("Go"))
    state = asyncio.run(agent.run(start))

    assert state.final_response == "Done."
    assert list(state.messages)[: len(start.messages)] == list(start.messages)
    for index, request in enumerate(model.requests):
        newest = state.messages[: len(start.messages) + sum(1 + len(s) for s in steps[:index])]
        check_valid(request.messages)
        assert request.messages[-1] == newest[-1]
        was_cut = request.messages[0].id.startswith("summary:")
        assert was_cut or list(request.messages) == list(newest)
        if was_cut:
            assert request.messages[0].is_user()
            kept = list(request.messages)[1:]
            assert kept == list(newest)[-len(kept) :]
        if sum(map(estimate_tokens, request.messages)) > most:
            last_unit = sum(map(estimate_tokens, units(newest)[-1]))
            assert last_unit + most // 4 > most
