"""The checker judges what users do: cancel, approve, steer, fork, follow."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from chaos.checker import Demands, Report, checked
from chaos.evidence import Evidence, SubscriberLog
from chaos.operator import facts_of
from chaos.scenario import note_answer, note_text, scenario
from stepwell.journal.status import ExecutionStatus
from stepwell.sessions.records import MessageRole, Session
from tests.integration.chaos.made_evidence import (
    SEED,
    SESSION,
    START,
    answer,
    effects,
    event,
    execution,
    good_evidence,
    line,
    message,
)

GUARDED = 9
"""A scenario with a guarded call that is approved."""


def report_on(evidence: Evidence) -> Report:
    return checked(evidence, Demands(kills=1))


def with_witness(evidence: Evidence, *lines: dict[str, Any]) -> Evidence:
    return replace(evidence, witness=[*evidence.witness, *lines])


def with_end(evidence: Evidence, status: ExecutionStatus, *ends: str) -> Evidence:
    """The first execution with another status, and other ends in the journal."""
    first, second = evidence.executions
    events = [event(1, "e0"), *(event(2 + i, "e0", kind) for i, kind in enumerate(ends))]
    events += [event(len(events) + 1, "e1", "execution.completed")]
    seen = [(one.seq, one.id) for one in events]
    return replace(
        evidence,
        executions=[replace(first, status=status), second],
        events={SESSION: events},
        subscribers=[SubscriberLog("subscriber-0", SESSION, seen)],
    )


def cancelled(outcome: str) -> tuple[dict[str, Any], dict[str, Any]]:
    return (
        line("cancel", 1.0, "sender-1", execution="e0"),
        line("cancel_outcome", 1.1, "sender-1", execution="e0", outcome=outcome),
    )


def test_an_accepted_cancellation_ends_the_execution_once() -> None:
    ended = with_end(good_evidence(), ExecutionStatus.CANCELLED, "execution.cancelled")
    report = report_on(with_witness(ended, *cancelled("accepted")))
    assert report.problems == []
    assert (report.cancels, report.cancelled, report.finished) == (1, 1, 2)


def test_one_that_was_over_before_may_have_completed() -> None:
    report = report_on(with_witness(good_evidence(), *cancelled("over")))
    assert report.problems == []
    assert report.cancels == 0


def test_an_accepted_cancellation_without_effect_is_a_fault() -> None:
    report = report_on(with_witness(good_evidence(), *cancelled("accepted")))
    assert report.wrong_ends == 1


@pytest.mark.parametrize(
    "ends", [(), ("execution.cancelled",) * 2, ("execution.cancelled", "execution.completed")]
)
def test_a_cancelled_execution_has_one_end_in_the_journal(ends: tuple[str, ...]) -> None:
    ended = with_end(good_evidence(), ExecutionStatus.CANCELLED, *ends)
    assert report_on(with_witness(ended, *cancelled("accepted"))).wrong_ends == 1


def test_a_cancelled_execution_that_nobody_cancelled_is_wrong() -> None:
    ended = with_end(good_evidence(), ExecutionStatus.CANCELLED, "execution.cancelled")
    assert report_on(ended).wrong_answers == 1


def guarded_evidence(*, approved: bool) -> Evidence:
    """The good evidence, and a guarded call beside it."""
    calls = [told for told in effects(GUARDED) if told["effect"] == "guarded"]
    assert [told["op"] for told in calls] == ["approve", "begin", "effect"]
    return with_witness(good_evidence(), *(calls if approved else calls[1:]))


def test_an_approved_call_runs_once() -> None:
    report = report_on(guarded_evidence(approved=True))
    assert (report.unapproved_calls, report.silent_repeats, report.approvals) == (0, 0, 1)
    again = [told for told in effects(GUARDED) if told["op"] in ("begin", "effect")]
    twice = with_witness(guarded_evidence(approved=True), *again)
    assert report_on(twice).silent_repeats >= 1


def test_a_guarded_call_without_its_own_approval_is_a_fault() -> None:
    assert report_on(guarded_evidence(approved=False)).unapproved_calls == 1
    other = line("approve", 0.1, "sender-1", execution="e0", call="another", approved=True)
    evidence = with_witness(guarded_evidence(approved=False), other)
    assert report_on(evidence).unapproved_calls == 1


def steered_evidence(*answers: str) -> Evidence:
    """A note to the first execution, and what answers said of it."""
    evidence = good_evidence()
    said = [message(0, MessageRole.USER, note_text("0.0"), steers=True)]
    said += [
        message(9 + i, MessageRole.ASSISTANT, text, event_type=f"answer {i}")
        for i, text in enumerate(answers)
    ]
    told = line("note", 1.0, "sender-1", note="0.0", session=SESSION)
    return with_witness(replace(evidence, messages=[*evidence.messages, *said]), told)


def test_a_note_is_seen_by_the_running_scenario_or_passed_on() -> None:
    assert report_on(steered_evidence(note_answer(["0.0"]))).problems == []
    evidence = steered_evidence()
    seen = [
        replace(one, content=answer(0, notes=["0.0"])) if one.content == answer(0) else one
        for one in evidence.messages
    ]
    report = report_on(replace(evidence, messages=seen))
    assert report.problems == []
    assert report.notes == 1


def test_a_lost_note_and_one_that_is_answered_twice_are_faults() -> None:
    assert report_on(steered_evidence()).lost_notes == 1
    twice = steered_evidence(note_answer(["0.0"]), note_answer(["0.0"]))
    assert report_on(twice).lost_notes == 1


def forked_evidence(text: str, **changes: Any) -> Evidence:
    """A fork of the first execution after it was over."""
    evidence = good_evidence()
    fork = replace(execution(0), id="f0", session_id="fork")
    session = Session(
        id="fork",
        tenant_id="default",
        user_id="chaos",
        agent_type="chaos",
        created_at=START,
        updated_at=START,
        metadata={"forked_from": {"execution_id": "e0", "step_number": 4}},
    )
    said = [
        replace(
            message(0, MessageRole.USER, scenario(0, SEED).text, copied_from="m0"),
            session_id="fork",
            agent_execution_id=None,
        ),
        replace(
            message(0, MessageRole.ASSISTANT, text), session_id="fork", agent_execution_id="f0"
        ),
    ]
    facts = {**facts_of(evidence.executions[0]), **changes}
    told = line("fork", 3.0, "sender-1", source="e0", step=4, facts=facts, execution="f0")
    return with_witness(
        replace(
            evidence,
            executions=[*evidence.executions, fork],
            sessions=[session],
            messages=[*evidence.messages, *said],
            events={**evidence.events, "fork": [event(1, "f0", "execution.completed")]},
        ),
        told,
    )


def test_a_fork_goes_on_with_the_results_of_its_source() -> None:
    report = report_on(forked_evidence(answer(0)))
    assert report.problems == []
    assert report.forks == 1


def test_a_fork_with_another_answer_and_a_changed_source_are_faults() -> None:
    assert report_on(forked_evidence(answer(0, "c0-1-1"))).fork_faults >= 1
    assert report_on(forked_evidence(answer(0), step_count=2)).fork_faults == 1
    later = (START + timedelta(seconds=99)).isoformat()
    assert report_on(forked_evidence(answer(0), completed_at=later)).fork_faults == 1


def test_streamed_text_that_differs_from_the_stored_answer_is_a_fault() -> None:
    evidence = good_evidence()
    (log,) = evidence.subscribers
    streamed = SubscriberLog("subscriber-0", SESSION, log.seen, 1, {"e0": answer(0)})
    assert report_on(replace(evidence, subscribers=[streamed])).problems == []
    doubled = SubscriberLog("subscriber-0", SESSION, log.seen, 1, {"e0": answer(0) * 2})
    assert report_on(replace(evidence, subscribers=[doubled])).wrong_texts == 1


def test_a_reset_is_a_fault_where_nothing_was_deleted() -> None:
    evidence = good_evidence()
    (log,) = evidence.subscribers
    reset = SubscriberLog("subscriber-0", SESSION, log.seen, 1, {}, 1)
    assert report_on(replace(evidence, subscribers=[reset])).log_gaps == 1
