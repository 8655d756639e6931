"""The full format is exact for any state in increments too, and for each step of a run."""

import asyncio
from itertools import pairwise

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stepwell import AgentState
from stepwell.serialization import AgentStateSerializer
from tests.examples import examples
from tests.property.states import mappings, messages, states
from tests.property.test_runs import Scenario, scenarios

SERIALIZER = AgentStateSerializer()
quick = settings(max_examples=examples(150), suppress_health_check=list(HealthCheck))


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


@settings(quick, max_examples=examples(100))
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
