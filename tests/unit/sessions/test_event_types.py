"""Two vocabularies side by side in the journal: their words differ, and names follow words."""

import pytest

from stepwell.journal.envelope import EnvelopeType, TransientType
from stepwell.sessions.records import EventType


@pytest.mark.parametrize("words", [EventType, EnvelopeType, TransientType])
def test_a_member_is_named_as_its_wire_word(words: type[EventType]) -> None:
    assert [it.name for it in words] == [it.value.upper().replace(".", "_") for it in words]


def test_no_word_stands_in_two_vocabularies() -> None:
    names = [it.name for words in (EventType, EnvelopeType, TransientType) for it in words]
    assert len(names) == len(set(names))
