"""What becomes of a call that an earlier attempt began: its result, that it may run again, or that
its outcome is unknown. Writes nothing.
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, cast

from msgspec import Struct, json
from msgspec.structs import replace

from stepwell.messages import ToolCall
from stepwell.sessions.ledger.open_step import IntendedCall
from stepwell.sessions.settings import WhenUnknown
from stepwell.state import Answered, Pending, PendingKind, ToolOutcome
from stepwell.tools import InputRequired, ToolEffect, ToolFailure
from stepwell.tools.results import Finished, blank, completed_result

UNKNOWN_OUTCOME = "unknown_outcome"
"""The key in what a question keeps, by which its answer is known as one of these."""
CHOICES = ("done", "retry", "failed")


class Asked(Struct, frozen=True, kw_only=True, eq=False):
    """A call that is about to run, and what must be known to say whether it may."""

    call: ToolCall
    effect: ToolEffect
    answered: Answered | None
    known: IntendedCall | None
    is_replayed: bool
    """Whether the model's own turn was kept, so that call ids mean the same calls."""
    stopped: Collection[int] = ()
    """The attempts whose worker was shut down, and did not die."""


def what_it_came_to(asked: Asked, when_unknown: WhenUnknown, now: datetime) -> Finished | None:
    """The result of a call that must not run: it ran, or a person has to say. None if it may."""
    known = asked.known
    if known is not None and known.finished is not None:
        arguments = known.finished.execution.call.arguments
        is_same = asked.is_replayed or arguments == asked.call.arguments
        return known.finished if is_same else None
    if known is not None and ToolEffect.EXTERNAL in (known.effect, asked.effect):
        was_stopped = known.attempt in asked.stopped
        if when_unknown is WhenUnknown.ASK:
            return _question(asked.call, known.started_at.isoformat(), now, was_stopped=was_stopped)
        return outcome_unknown(asked.call, known.started_at, now, was_stopped=was_stopped)
    kept = _kept_question(asked.answered)
    return None if kept is None else _result_of_answer(asked, kept, now)


def outcome_unknown(
    call: ToolCall, began_at: datetime, now: datetime, *, was_stopped: bool = False
) -> Finished:
    """The result of a call that began and of which nothing more is known."""
    ended = _how_it_ended(was_stopped=was_stopped)
    text = (
        f"Error: {call.name} began at {began_at.isoformat()}, and then the worker that "
        f"ran it {ended}. It may or may not have taken effect, and it "
        "was not repeated. Find out whether it did before you do it again."
    )
    ran = replace(blank(call, began_at), outcome=ToolOutcome.UNKNOWN, text=text)
    return Finished(execution=replace(ran, completed_at=now))


def _how_it_ended(*, was_stopped: bool) -> str:
    return "was stopped" if was_stopped else "died"


def _question(
    call: ToolCall, began_at: str, now: datetime, *, was_stopped: bool = False
) -> Finished:
    ended = _how_it_ended(was_stopped=was_stopped)
    asked = InputRequired(
        prompt=(
            f"{call.name} began at {began_at}, and then the worker that ran it {ended}. Did it "
            "take effect? Answer done, retry or failed."
        ),
        kind=PendingKind.QUESTION,
        details={
            "options": list(CHOICES),
            "tool": call.name,
            "arguments": dict(call.arguments),
            "began_at": began_at,
        },
        resumes=True,
        kept={UNKNOWN_OUTCOME: {"began_at": began_at}},
    )
    finished = completed_result(blank(call, now), asked)
    waits_for = finished.waits_for
    if waits_for is None:
        return finished
    return replace(finished, waits_for=replace(waits_for, by_hook=True))


def _kept_question(answered: Answered | Pending | None) -> Mapping[str, Any] | None:
    """What the question kept, if that is what was answered."""
    kept: Any = None if answered is None or not answered.by_hook else answered.kept
    if not isinstance(kept, Mapping):
        return None
    return cast("Mapping[str, Any]", kept).get(UNKNOWN_OUTCOME)


def why_no_choice(asked: Pending, answer: Any) -> str | None:
    """What is wrong with an answer to the question whether a call took effect; None if nothing is,
    and for all other questions."""
    if _kept_question(asked) is None or _choice(answer)[0] in CHOICES:
        return None
    return (
        f"the answer to whether {asked.tool_name} took effect must be one of {', '.join(CHOICES)}: "
        'as a text, or as {"outcome": "done", "result": ...}'
    )


def _choice(answer: Any) -> tuple[str, Mapping[str, Any]]:
    given: Mapping[str, Any] = {}
    if isinstance(answer, Mapping):
        given = cast("Mapping[str, Any]", answer)
        answer = given.get("outcome")
    return str(answer).strip().lower(), given


def _result_of_answer(asked: Asked, kept: Mapping[str, Any], now: datetime) -> Finished | None:
    choice, given = _choice(None if asked.answered is None else asked.answered.answer)
    match choice:
        case "done":
            text = "A person confirmed that this call took effect."
            if "result" in given:
                text += f" Its result: {json.encode(given['result']).decode()}"
            return completed_result(blank(asked.call, now), text)
        case "failed":
            failure = ToolFailure("a person found that this call did not take effect")
            return completed_result(blank(asked.call, now), failure)
        case "retry":
            return None
        case _:
            return _question(asked.call, str(kept.get("began_at", "")), now)
