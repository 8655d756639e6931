"""Whatever a run does, the real AI SDK accepts each chunk and shows what the state holds."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepwell.agent import Agent
from stepwell.capabilities.approvals import UseApprovals
from stepwell.capabilities.user_input import UseUserInput
from stepwell.criteria import ErrorPolicy
from stepwell.errors import ModelError
from stepwell.messages import FinishReason, ToolCall
from stepwell.models import ModelResponse
from stepwell.protocols.ai_sdk import ai_sdk_chunks, encode_sse
from stepwell.state import AgentState
from stepwell.testing import MockTool, ScriptedModel
from tests.servers.ai_sdk_chat import ChatClient, client_running, missing

pytestmark = pytest.mark.skipif(missing() is not None, reason=f"no AI SDK client: {missing()}")

Json = dict[str, Any]
TEXTS = st.text(max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["__proto__", "constructor", "prototype", "a"]), inner)
    ),
    max_leaves=4,
)
NAMES = st.sampled_from(["gives", "fails", "unknown", "guarded", "user_input"])


@st.composite
def calls(draw: st.DrawFn) -> ToolCall:
    name = draw(NAMES)
    given = {"question": draw(TEXTS)} if name == "user_input" else {"x": draw(VALUES)}
    malformed = draw(st.none() | st.just("{oops"))
    call_id = draw(st.sampled_from(["", "c1", "c2", "c3"]))
    arguments = {} if malformed else given
    return ToolCall(id=call_id, name=name, arguments=arguments, malformed=malformed)


@st.composite
def turns(draw: st.DrawFn) -> Any:
    if draw(st.integers(0, 9)) == 0:
        return ModelError("the provider is down")
    return ModelResponse(
        text=draw(TEXTS),
        tool_calls=tuple(draw(st.lists(calls(), max_size=3))),
        finish_reason=draw(st.sampled_from(FinishReason)),
    )


async def run_of(script: list[Any], value: Any) -> tuple[list[Json], AgentState]:
    tools = [
        MockTool.returning("gives", value),
        MockTool.raising("fails", ValueError("broken")),
        MockTool.returning("guarded", value),
    ]
    agent = Agent(
        ScriptedModel([*script, "The end."]),
        tools=tools,
        capabilities=[UseApprovals("guarded"), UseUserInput()],
        error_policy=ErrorPolicy.retry_tool_errors(),
        max_steps=4,
    )
    kept: list[AgentState] = []
    chunks = [chunk async for chunk in ai_sdk_chunks(agent, "Go", on_state=kept.append)]
    return chunks, kept[-1]


@pytest.fixture(scope="module")
def client() -> Iterator[ChatClient]:
    with client_running() as running:
        yield running


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(runs=st.lists(st.tuples(st.lists(turns(), max_size=4), VALUES), min_size=1, max_size=12))
def test_any_run_is_shown(client: ChatClient, runs: list[tuple[list[Any], Any]]) -> None:
    async def streamed() -> list[tuple[list[Json], AgentState]]:
        return [await run_of(script, value) for script, value in runs]

    told = asyncio.run(streamed())
    for chunks, _ in told:
        assert all(encode_sse(chunk) for chunk in chunks)
    shown = asyncio.run(client.do(validate=[chunks for chunks, _ in told]))
    for (chunks, state), seen in zip(told, shown, strict=True):
        assert seen["wrong"] == []
        assert seen["errors"] == [c["errorText"] for c in chunks if c["type"] == "error"]
        assert_shows(seen["message"], state)


def model_id(wire_id: str) -> str:
    """The id that the model gave; one that it used again has the message behind it."""
    return wire_id.partition("@")[0]


def assert_shows(message: Json, state: AgentState) -> None:
    parts = message["parts"]
    steps = [record.step for record in state.steps]
    assert [p["text"] for p in parts if p["type"] == "text"] == [s.text for s in steps if s.text]
    shown = [part for part in parts if part["type"] == "dynamic-tool"]
    ran = [execution for step in steps for execution in step.tool_executions]
    ids = [part["toolCallId"] for part in shown]
    assert len(set(ids)) == len(ids)
    assert sorted(map(model_id, ids)) == sorted(e.call.id for e in ran)
    waiting = sorted(str(asked.call_id) for asked in state.pending)
    still_open = {"input-available", "approval-requested"}
    open_ids = [part["toolCallId"] for part in shown if part["state"] in still_open]
    assert sorted(map(model_id, open_ids)) == waiting
    assert all(p["state"].startswith("output-") or p["state"] in still_open for p in shown)
