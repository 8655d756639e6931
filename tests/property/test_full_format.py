"""The full format is exact for any state, whole and in increments, and no document is misread."""

import asyncio
import json
import re
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stepwell import AgentState
from stepwell.errors import SerializationError
from stepwell.serialization import AgentStateSerializer
from tests.property.states import mappings, messages, odd_texts, states
from tests.property.test_runs import Scenario, scenarios

SERIALIZER = AgentStateSerializer()
thorough = settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))
quick = settings(thorough, max_examples=150)


def types_of(value: object) -> str:
    """What ``==`` does not see: True and 1 are equal, and so are 1 and 1.0."""
    return repr(value)


@thorough
@given(states())
def test_b107_any_state_comes_back_as_it_was(state: AgentState) -> None:
    """B107, B108: with steps of any stop reason in a state of any status, and any value in it."""
    document = SERIALIZER.to_json(state)
    assert SERIALIZER.from_json(document) == state
    assert SERIALIZER.from_json(document.decode()) == state
    assert types_of(SERIALIZER.from_json(document).metadata) == types_of_stored(state.metadata)
    assert SERIALIZER.to_json(SERIALIZER.from_json(document)) == document


def types_of_stored(metadata: object) -> str:
    """Our own words come back as the texts that they are."""
    return re.sub(r"<\w+\.\w+: ('\w+')>", r"\1", types_of(metadata))


@quick
@given(states())
def test_the_same_as_data_that_went_through_any_json_and_lost_its_order(state: AgentState) -> None:
    data = SERIALIZER.serialize(state)
    assert SERIALIZER.deserialize(json.loads(json.dumps(data))) == state
    assert SERIALIZER.deserialize(json.loads(json.dumps(data, sort_keys=True))) == state
    assert SERIALIZER.from_json(json.dumps(data, indent=2)) == state


@quick
@given(states(), st.data())
def test_a_damaged_document_is_an_error_and_never_another_state(
    state: AgentState, data: st.DataObject
) -> None:
    document = SERIALIZER.to_json(state)
    place = data.draw(st.integers(0, len(document) - 1), label="place")
    kind = data.draw(st.sampled_from(["cut", "flip", "drop", "double", "insert"]), label="kind")
    damaged = {
        "cut": document[:place],
        "flip": document[:place]
        + bytes([document[place] ^ data.draw(st.integers(1, 255))])
        + document[place + 1 :],
        "drop": document[:place] + document[place + 1 :],
        "double": document[:place] + document[place : place + 1] * 2 + document[place + 1 :],
        "insert": document[:place]
        + data.draw(st.binary(min_size=1, max_size=4))
        + document[place:],
    }[kind]
    try:
        loaded = SERIALIZER.from_json(damaged)
    except SerializationError:
        return
    assert loaded == state, "only what changes nothing, as white space, may be let through"


@quick
@given(st.binary(max_size=60) | odd_texts)
def test_anything_else_is_an_error(document: bytes | str) -> None:
    with pytest.raises(SerializationError):
        SERIALIZER.from_json(document)


@quick
@given(states(), st.lists(st.lists(messages, max_size=2), max_size=3), st.lists(mappings))
def test_increments_lead_to_the_same_state(
    state: AgentState, said: list[list[object]], changes: list[dict[str, object]]
) -> None:
    path = [state]
    for added in said:
        path.append(path[-1].with_message(*added))  # pyright: ignore[reportArgumentType]
    for change in changes:
        path.append(path[-1].with_metadata(change))
    assert rebuilt(path) == path[-1]


@quick
@given(states(), states())
def test_an_increment_leads_from_any_state_to_any_other_of_the_agent(
    one: AgentState, other: AgentState
) -> None:
    other = replace(
        other,
        agent_id=one.agent_id,
        created_at=one.created_at,
        parent_agent_id=one.parent_agent_id,
    )
    assert rebuilt([one, other]) == other


@settings(quick, max_examples=100)
@given(scenarios)
def test_every_step_of_a_run_can_be_resumed_from_what_was_stored(plan: dict[str, object]) -> None:
    async def path() -> list[AgentState]:
        scenario = Scenario(plan)
        first = scenario.agent.new_state("go")
        run = scenario.agent.iterator(first, cancellation=scenario.cancellation)
        return [first, *[state async for state in run]]

    states_of_run = asyncio.run(path())
    for length in range(1, len(states_of_run) + 1):
        reached = states_of_run[:length]
        assert rebuilt(reached) == without_transients(reached[-1])
        assert SERIALIZER.from_json(SERIALIZER.to_json(reached[-1])) == without_transients(
            reached[-1]
        )


def without_transients(state: AgentState) -> AgentState:
    execution = state.execution
    if execution is None:
        return state
    kept = replace(
        execution,
        in_flight=None,
        entered_monotonic=None,
        signals=(),
        continue_requests=(),
        typed_output=None,
    )
    return replace(state, execution=kept)


def rebuilt(path: list[AgentState]) -> AgentState:
    chain = [SERIALIZER.to_json(path[0])]
    for one, other in pairwise(path):
        chain.append(SERIALIZER.increment_to_json(one, other))
    return SERIALIZER.from_increments(chain[0], chain[1:])
