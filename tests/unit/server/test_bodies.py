"""What clients may send."""

from typing import Any

import pytest
from pydantic import ValidationError

from stepwell.server.bodies import (
    AnswerBody,
    ChannelBody,
    FirstMessageBody,
    KeyBody,
    MessageBody,
    ResumeBody,
    SessionBody,
    SessionChanges,
    storable,
)

HALF = "\ud83d"


def fault_of(model: type, given: dict[str, Any]) -> str:
    with pytest.raises(ValidationError) as found:
        model.model_validate(given)  # type: ignore[attr-defined]
    (error,) = found.value.errors()
    return f"{'.'.join(str(part) for part in error['loc'])}: {error['type']}"


def test_a_message_needs_nothing_but_its_content() -> None:
    body = FirstMessageBody.model_validate({"content": "hi"})

    assert body.session == SessionBody()
    assert body.metadata == {}


@pytest.mark.parametrize(
    ("model", "given", "fault"),
    [
        (MessageBody, {}, "content: missing"),
        (MessageBody, {"content": ""}, "content: string_too_short"),
        (MessageBody, {"content": 5}, "content: string_type"),
        (MessageBody, {"content": "a\0b"}, "content: text"),
        (MessageBody, {"content": HALF}, "content: string_unicode"),
        (MessageBody, {"content": "a", "role": "admin"}, "role: extra_forbidden"),
        (MessageBody, {"content": "a", "metadata": {"a": [{"b": "\0"}]}}, "metadata: text"),
        (MessageBody, {"content": "a", "metadata": {"a\0": 1}}, "metadata: text"),
        (MessageBody, {"content": "a", "metadata": {"n": 2**63}}, "metadata: number"),
        (MessageBody, {"content": "a", "metadata": {"n": float("nan")}}, "metadata: number"),
        (
            MessageBody,
            {"content": "a", "context_url": "/" + "a" * 2000},
            "context_url: string_too_long",
        ),
        (
            FirstMessageBody,
            {"content": "a", "session": {"when_busy": "later"}},
            "session.when_busy: enum",
        ),
        (SessionBody, {"title": "a" * 201}, "title: string_too_long"),
        (SessionChanges, {"status": "deleted"}, "status: enum"),
        (SessionChanges, {"status": None}, "status: enum"),
        (ResumeBody, {"steps": -1}, "steps: greater_than_equal"),
        (ResumeBody, {"steps": "5"}, "steps: int_type"),
        (ResumeBody, {"seconds": "5"}, "seconds: float_type"),
        (ResumeBody, {"accept_change": 1}, "accept_change: bool_type"),
        (KeyBody, {"name": "n", "is_admin": "yes"}, "is_admin: bool_type"),
        (ResumeBody, {"cost": float("inf")}, "cost: finite_number"),
        (AnswerBody, {"call_id": "c"}, "answer: missing"),
        (KeyBody, {"name": "n", "expires_in_days": 0}, "expires_in_days: greater_than"),
        (
            ChannelBody,
            {"socket_id": "1", "channel_name": "c"},
            "socket_id: string_pattern_mismatch",
        ),
        (
            ChannelBody,
            {"socket_id": "1.2\n", "channel_name": "c"},
            "socket_id: string_pattern_mismatch",
        ),
    ],
)
def test_what_does_not_fit_is_named(model: type, given: dict[str, Any], fault: str) -> None:
    assert fault_of(model, given) == fault


@pytest.mark.parametrize("answer", [None, True, "yes", 3, 2.5, ["a"], {"done": False}])
def test_an_answer_is_any_json(answer: Any) -> None:
    assert AnswerBody.model_validate({"call_id": "c", "answer": answer}).answer == answer


def test_the_largest_numbers_that_can_be_stored_are_taken() -> None:
    numbers = [2**63 - 1, -(2**63), 1e308]

    assert storable(numbers) is numbers


def test_a_whole_number_of_seconds_is_a_number_too() -> None:
    assert ResumeBody.model_validate({"seconds": 5}).seconds == 5.0


def test_a_change_knows_what_was_left_out() -> None:
    assert SessionChanges.model_validate({"title": None}).model_fields_set == {"title"}
    assert SessionChanges.model_validate({}).model_fields_set == set()
