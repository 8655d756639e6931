"""Ids that follow from others."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from stepwell.sessions.ids import derived_id

PARTS = st.lists(st.text(max_size=8), max_size=4)


def test_the_same_parts_give_the_same_id_in_every_process() -> None:
    assert derived_id("e1", "step", 2) == "b254a261-c402-5116-921f-354e3ce0ced8"
    assert derived_id("e1", "step", 2) == derived_id("e1", "step", 2)
    assert UUID(derived_id("e1", "step", 2)).version == 5


def test_a_number_and_its_text_are_the_same_part() -> None:
    assert derived_id("e1", 2) == derived_id("e1", "2")


@given(st.text(max_size=8), PARTS, st.text(max_size=8), PARTS)
def test_other_parts_give_another_id(
    owner: str, parts: list[str], other: str, others: list[str]
) -> None:
    is_same = (owner, parts) == (other, others)
    assert (derived_id(owner, *parts) == derived_id(other, *others)) is is_same
