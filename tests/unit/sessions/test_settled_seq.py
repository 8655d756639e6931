"""Up to where the stored messages of a session tell all that its log does."""

from stepwell.sessions.settled_seq import first_seq_in, settled_seq
from stepwell.testing.stores_rows import a_session, an_execution


def test_when_all_is_over_everything_is_settled() -> None:
    assert settled_seq(a_session(last_seq=9), []) == 9
    assert settled_seq(a_session(), []) == 0


def test_the_earliest_of_those_that_go_on_decides() -> None:
    early, late = (an_execution(str(seq), metadata={"first_seq": seq}) for seq in (4, 7))
    assert settled_seq(a_session(last_seq=9), [early, late]) == 3
    assert settled_seq(a_session(last_seq=9), [late, early]) == 3


def test_one_that_says_nothing_is_followed_from_the_beginning() -> None:
    old, new = an_execution("a"), an_execution("b", metadata={"first_seq": 7})
    assert settled_seq(a_session(last_seq=9), [old, new]) == 0


def test_an_execution_begins_behind_what_is_logged() -> None:
    assert first_seq_in(a_session()) == {"first_seq": 1}
    assert first_seq_in(a_session(last_seq=9)) == {"first_seq": 10}
