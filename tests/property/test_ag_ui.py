"""Random runs as AG-UI events: every stream is one a client accepts, and ends in the history."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepwell import AgentState
from stepwell.protocols.ag_ui import ag_ui_events, state_from_ag_ui
from stepwell.protocols.ag_ui.messages import wire_messages
from stepwell.protocols.client_stream import ClientInputError
from tests.examples import examples
from tests.property.test_runs import Scenario, scenarios
from tests.unit.protocols.ag_ui_rules import checked

thorough = settings(
    max_examples=examples(100), deadline=None, suppress_health_check=list(HealthCheck)
)


async def told(plan: dict[str, Any]) -> tuple[list[dict[str, Any]], AgentState]:
    scenario, states = Scenario(plan), list[AgentState]()
    events = [
        event
        async for event in ag_ui_events(
            scenario.agent,
            "Go.",
            thread_id="t",
            run_id="r",
            cancellation=scenario.cancellation,
            on_state=states.append,
        )
    ]
    return events, states[-1]


@thorough
@given(plan=scenarios)
async def test_every_run_is_a_stream_that_clients_accept(plan: dict[str, Any]) -> None:
    events, state = await told(plan)
    waiting = [p.call_id for p in state.pending if p.call_id]

    assert checked(events) == wire_messages(state.messages, waiting)
    # What was told on the way stood in the order of the history already.
    assert {"type": "MESSAGES_SNAPSHOT", "messages": []} not in events


@thorough
@given(plan=scenarios)
async def test_every_call_that_was_told_has_one_result(plan: dict[str, Any]) -> None:
    events, state = await told(plan)
    called = [e["toolCallId"] for e in events if e["type"] == "TOOL_CALL_START"]
    given_back = [e["toolCallId"] for e in events if e["type"] == "TOOL_CALL_RESULT"]

    assert sorted(called) == sorted(given_back)
    assert len(called) == sum(len(message.tool_calls) for message in state.messages)


@thorough
@given(plan=scenarios)
async def test_what_a_client_has_in_the_end_comes_back_as_the_history(plan: dict[str, Any]) -> None:
    events, state = await told(plan)
    sent = {"threadId": "t", "runId": "r2", "messages": checked(events)}

    assert list(state_from_ag_ui(sent).messages) == list(state.messages)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@thorough
@given(messages=json_values | st.lists(json_values), resume=json_values)
def test_odd_input_is_refused_and_never_breaks(messages: Any, resume: Any) -> None:
    sent = {"threadId": "t", "runId": "r", "messages": messages, "resume": resume}

    with pytest.raises(ClientInputError, match=r"messages|resume|\$"):
        state_from_ag_ui(sent)
