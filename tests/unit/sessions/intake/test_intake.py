"""What people send, as it is checked before anything is written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.sessions.errors import RefusedError
from stepwell.sessions.intake.admission import fingerprint, keyed_message_id, stored_key
from stepwell.sessions.intake.checks import (
    RESERVED,
    RESERVED_IN_MESSAGES,
    TITLE_CHARACTERS,
    check_content,
    check_key,
    check_metadata,
    check_title,
    title_of,
)
from stepwell.sessions.intake.queue_entry import later_than
from stepwell.sessions.records import Session
from stepwell.testing import FakeClock


def refused(check: object, *sent: object) -> str:
    """The code with which it was refused."""
    with pytest.raises(RefusedError) as caught:
        check(*sent)  # type: ignore[operator]
    return caught.value.code


def test_a_message_must_say_something_and_not_too_much() -> None:
    assert check_content(" Hello ", 10) == " Hello "
    assert refused(check_content, " \n\t", 10) == "empty_message"
    assert refused(check_content, "", 10) == "empty_message"
    assert refused(check_content, "a" * 11, 10) == "message_too_long"


def test_text_that_not_every_database_can_hold_is_refused() -> None:
    assert refused(check_content, "a\x00b", 10) == "bad_text"
    assert refused(check_content, "half \ud83d", 10) == "bad_text"


def test_a_title_is_the_first_line_that_says_something() -> None:
    assert title_of("\n \n Book  a\ttable \nfor two") == "Book a table"
    long = title_of("word " * 40)
    assert len(long) == TITLE_CHARACTERS
    assert long.endswith("...")


@given(st.text(min_size=1).filter(str.strip))
def test_every_message_gives_a_title_that_may_be_stored(content: str) -> None:
    title = title_of(content)
    assert 0 < len(title) <= TITLE_CHARACTERS
    assert "\n" not in title


def test_a_title_that_is_given_is_one_line_of_bounded_length() -> None:
    assert check_title(None) is None
    assert check_title(" a\nb ") == "a b"
    assert refused(check_title, "   ") == "bad_title"
    assert refused(check_title, "a" * 201) == "bad_title"


def test_an_idempotency_key_is_short_and_printable() -> None:
    assert check_key(None) is None
    assert check_key("order 7") == "order 7"
    assert refused(check_key, "") == "bad_idempotency_key"
    assert refused(check_key, "a\nb") == "bad_idempotency_key"
    assert refused(check_key, "a" * 201) == "bad_idempotency_key"


@pytest.mark.parametrize("name", RESERVED)
def test_metadata_of_the_server_cannot_be_sent(name: str) -> None:
    assert refused(check_metadata, {name: True}) == "bad_metadata"


def test_a_message_may_not_hold_what_the_server_says_of_executions() -> None:
    for name in RESERVED_IN_MESSAGES:
        assert refused(check_metadata, {name: 1}, RESERVED_IN_MESSAGES) == "bad_metadata"


def test_metadata_are_json_of_bounded_size() -> None:
    assert check_metadata({"a": [1, None, {"b": "ü"}]}) == {"a": [1, None, {"b": "ü"}]}
    assert refused(check_metadata, {"a": object()}) == "bad_metadata"
    assert refused(check_metadata, {"a": float("nan")}) == "bad_metadata"
    assert refused(check_metadata, {"a": "x" * 20_001}) == "bad_metadata"
    assert refused(check_metadata, {"a": ["\x00"]}) == "bad_text"
    deep: object = 1
    for _ in range(200):
        deep = [deep]
    assert refused(check_metadata, {"a": deep}) == "bad_metadata"


@given(st.text(max_size=6), st.text(max_size=6), st.text(max_size=6), st.text(max_size=6))
def test_keys_of_two_users_never_meet(user: str, key: str, other: str, its: str) -> None:
    same = (user, key) == (other, its)
    assert (stored_key(user, key) == stored_key(other, its)) is same


def test_a_key_is_stored_with_its_user_and_names_the_message() -> None:
    assert stored_key("ada", "k1") == "ada:k1"
    assert keyed_message_id("t1", "ada:k1") != keyed_message_id("t2", "ada:k1")


def test_a_fingerprint_tells_bodies_apart() -> None:
    assert fingerprint("a", None) == fingerprint("a", None)
    assert fingerprint("a", None) != fingerprint("a", "s1")
    assert fingerprint("ab", "c") != fingerprint("a", "bc")


def test_arrival_is_behind_what_the_session_has_even_if_the_clock_went_back() -> None:
    clock = FakeClock()
    now = clock.now()
    clock.advance(60)
    session = Session(
        id="s",
        tenant_id="t",
        user_id="u",
        agent_type="a",
        created_at=now,
        updated_at=now,
        last_message_at=clock.now(),
    )
    assert later_than(session, now) > clock.now()
    clock.advance(60)
    assert later_than(session, clock.now()) == clock.now()
