"""The full format is exact for any state, and no document is misread."""

import json
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepwell import AgentState
from stepwell.errors import SerializationError
from stepwell.serialization import AgentStateSerializer
from tests.examples import examples
from tests.property.states import odd_texts, states

SERIALIZER = AgentStateSerializer()
thorough = settings(
    max_examples=examples(1000), deadline=None, suppress_health_check=list(HealthCheck)
)
quick = settings(thorough, max_examples=examples(150))


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
    assert [it.id for it in SERIALIZER.from_json(document).pending] == [
        it.id for it in state.pending
    ]
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
