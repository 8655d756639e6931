"""What a call comes to that an earlier attempt began."""

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from stepwell.errors import SerializationError
from stepwell.messages import ToolCall
from stepwell.serialization.calls import finished_to_json
from stepwell.sessions.endings.end import set_aside_by_change, set_aside_by_crashes
from stepwell.sessions.ledger.open_step import IntendedCall, KnownStep, calls_begun
from stepwell.sessions.ledger.recovery import UNKNOWN_OUTCOME, Asked, what_it_came_to
from stepwell.sessions.records import Execution, StepIntent
from stepwell.sessions.settings import WhenUnknown
from stepwell.state import Answered, ToolOutcome
from stepwell.tools import ToolEffect
from stepwell.tools.results import Finished, blank, completed_result

AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
CALL = ToolCall(id="c", name="pay", arguments={"to": "ada"})
STARTED = IntendedCall(
    call_id="c", tool_name="pay", effect=ToolEffect.EXTERNAL, attempt=1, started_at=AT
)


def ended(value: Any = "paid") -> IntendedCall:
    return replace(STARTED, finished=completed_result(blank(CALL, AT), value))


def intent(*, step_number: int = 2, response: str | None = None, result: str) -> StepIntent:
    stored = (
        '{"call_id": "c", "tool_name": "pay", "effect": "external", "attempt": 1, '
        f'"started_at": "2026-01-01T12:00:00Z", "result": {result}}}'
    )
    return StepIntent(
        execution_id="e",
        tenant_id="t",
        step_number=step_number,
        calls=f"[{stored}]",
        created_at=AT,
        response=response,
    )


def came_to(
    known: IntendedCall | None,
    *,
    call: ToolCall = CALL,
    effect: ToolEffect = ToolEffect.EXTERNAL,
    answer: Any = None,
    when: WhenUnknown = WhenUnknown.TELL,
    replayed: bool = True,
) -> Finished | None:
    answered = None
    if answer is not None:
        kept = {UNKNOWN_OUTCOME: {"began_at": "noon"}}
        answered = Answered(call=call, answer=answer, kept=kept, by_hook=True)
    asked = Asked(
        call=call,
        effect=effect,
        answered=answered,
        known=known,
        is_replayed=replayed,
    )
    return what_it_came_to(asked, when, AT)


def test_a_call_that_nobody_began_may_run() -> None:
    assert came_to(None) is None


def test_a_call_that_ended_has_its_result() -> None:
    finished = came_to(ended())
    assert finished is not None
    assert (finished.execution.outcome, finished.execution.text) == ("completed", "paid")


def test_without_the_models_turn_other_arguments_are_another_call() -> None:
    other = replace(CALL, arguments={"to": "bob"})
    assert came_to(ended(), call=other, replayed=False) is None
    assert came_to(ended(), call=other, replayed=True) is not None
    assert came_to(ended(), replayed=False) is not None


def test_an_intent_says_what_its_calls_came_to() -> None:
    paid = finished_to_json(completed_result(blank(CALL, AT), "paid"))
    known = KnownStep.of(intent(result=paid), 2)
    found = known.calls["c"].finished
    assert found is not None
    assert found.execution.text == "paid"
    assert calls_begun(intent(result=paid), 2) == ()
    assert calls_begun(intent(result="null"), 2) == ("pay",)


def test_an_intent_of_another_step_says_nothing() -> None:
    assert KnownStep.of(intent(result="null"), 3).is_empty
    assert KnownStep.of(None, 3).is_empty
    assert calls_begun(intent(result="null"), 3) == ()


@pytest.mark.parametrize("effect", [ToolEffect.PURE, ToolEffect.IDEMPOTENT])
def test_what_may_be_repeated_runs_again(effect: ToolEffect) -> None:
    assert came_to(replace(STARTED, effect=effect), effect=effect) is None


@pytest.mark.parametrize("then", list(ToolEffect))
def test_a_tool_that_was_external_when_it_began_is_not_repeated(then: ToolEffect) -> None:
    finished = came_to(STARTED, effect=then)
    assert finished is not None
    assert finished.execution.outcome is ToolOutcome.UNKNOWN
    assert finished.execution.is_error
    assert finished.execution.error is None
    assert "2026-01-01T12:00:00+00:00" in finished.execution.text


def test_a_person_can_be_asked() -> None:
    finished = came_to(STARTED, when=WhenUnknown.ASK)
    assert finished is not None
    asked = finished.waits_for
    assert asked is not None
    assert (asked.by_hook, asked.resumes, asked.call_id) == (True, True, "c")
    assert finished.signal is not None
    assert finished.signal.reason == "input_required"


def test_a_call_that_began_again_after_an_answer_is_unknown_again() -> None:
    finished = came_to(STARTED, answer="retry", when=WhenUnknown.ASK)
    assert finished is not None
    assert finished.waits_for is not None


@pytest.mark.parametrize("answer", ["done", " DONE ", {"outcome": "done"}])
def test_done_is_a_result(answer: Any) -> None:
    finished = came_to(None, answer=answer)
    assert finished is not None
    assert finished.execution.succeeded


def test_failed_is_a_failure_and_retry_runs() -> None:
    finished = came_to(None, answer="failed")
    assert finished is not None
    assert finished.execution.outcome is ToolOutcome.FAILED
    assert came_to(None, answer="retry") is None


@pytest.mark.parametrize("answer", ["maybe", {"outcome": 3}, {"x": 1}, 7, ["done"], True])
def test_any_other_answer_is_asked_for_again(answer: Any) -> None:
    finished = came_to(None, answer=answer)
    assert finished is not None
    assert finished.waits_for is not None
    assert "noon" in finished.waits_for.prompt


def test_an_answer_to_another_question_decides_nothing() -> None:
    answered = Answered(call=CALL, answer="done", kept={"other": 1}, by_hook=True)
    asked = Asked(
        call=CALL,
        effect=ToolEffect.EXTERNAL,
        answered=answered,
        known=None,
        is_replayed=True,
    )
    assert what_it_came_to(asked, WhenUnknown.TELL, AT) is None


def test_what_cannot_be_read_is_an_error_before_anything_runs() -> None:
    damaged = intent(response="{", result="null")
    with pytest.raises(SerializationError):
        KnownStep.of(damaged, 2)
    with pytest.raises(SerializationError):
        KnownStep.of(intent(result="[]"), 2)
    with pytest.raises(SerializationError):
        KnownStep.of(replace(damaged, calls="{"), 2)


def test_of_an_execution_that_ends_what_is_damaged_is_not_known() -> None:
    for damaged in (intent(response="{", result="null"), intent(result="[]")):
        known = KnownStep.as_far_as_readable(damaged, 2)
        assert known.response is None
        assert known.calls["c"].finished is None
    assert KnownStep.as_far_as_readable(replace(intent(result="1"), calls="{"), 2).is_empty


def test_what_was_set_aside_says_how_to_go_on() -> None:
    execution = Execution(
        id="e",
        tenant_id="t",
        agent_type="helper",
        definition_hash="",
        created_at=AT,
        updated_at=AT,
        crashes=3,
        step_count=6,
    )
    crashed = set_aside_by_crashes(execution, ("pay", "look"))
    assert "died 3 times in step 7 while running pay, look" in crashed.text
    assert "/executions/e/resume" in crashed.text
    assert "step 7" in set_aside_by_crashes(execution, ()).text
    assert "accept_change" in set_aside_by_change(execution).text
