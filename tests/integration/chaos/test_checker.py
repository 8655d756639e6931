"""The checker finds what it is for: each test spoils good evidence in one way."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from chaos.checker import Demands, Report, checked
from chaos.evidence import Evidence, SubscriberLog
from chaos.scenario import scenario
from stepwell.journal.status import ExecutionStatus
from stepwell.sessions.records import MessageRole
from tests.integration.chaos.made_evidence import (
    SEED,
    SESSION,
    answer,
    call_of,
    effects,
    event,
    execution,
    good_evidence,
    line,
    message,
)

DEMANDS = Demands(kills=1, min_hits=1, points=("in:tool",))


def report_on(evidence: Evidence, demands: Demands = DEMANDS) -> Report:
    return checked(evidence, demands)


def test_good_evidence_has_no_problems() -> None:
    report = report_on(good_evidence())
    assert report.problems == []
    assert report.finished == 2
    assert report.kills_in_flight == 1
    assert report.unknown_outcomes == 1
    assert report.crash_points_hit == {"in:tool": 1}
    assert report.takeovers == 1
    assert report.takeover_p99_s == pytest.approx(2.0)
    assert report.reconnects == 1


def with_effect_again(evidence: Evidence, tool: str, **changes: Any) -> Evidence:
    again = [
        {**told, **changes}
        for told in effects(0)
        if told["call"] == call_of(0, tool) and told["op"] in ("begin", "effect")
    ]
    return replace(evidence, witness=[*evidence.witness, *again])


def lost(evidence: Evidence) -> Evidence:
    return replace(evidence, executions=evidence.executions[:1])


def still_running(evidence: Evidence) -> Evidence:
    first, second = evidence.executions
    running = replace(second, status=ExecutionStatus.RUNNING, completed_at=None)
    return replace(evidence, executions=[first, running])


def never_sent(evidence: Evidence) -> Evidence:
    return replace(evidence, executions_asked=3)


def step_told_twice(evidence: Evidence) -> Evidence:
    twice = message(0, MessageRole.INFO, "Step 1 again", event_type="step.completed", step=1)
    return replace(evidence, messages=[*evidence.messages, twice])


def sent_twice(evidence: Evidence) -> Evidence:
    twice = message(5, MessageRole.USER, scenario(0, SEED).text)
    return replace(evidence, messages=[*evidence.messages, twice])


def answered_twice(evidence: Evidence) -> Evidence:
    twice = message(0, MessageRole.ASSISTANT, answer(0))
    return replace(evidence, messages=[*evidence.messages, twice])


def external_again(evidence: Evidence) -> Evidence:
    return with_effect_again(evidence, "external")


def idempotent_under_another_key(evidence: Evidence) -> Evidence:
    return with_effect_again(evidence, "idempotent", key="another")


def idempotent_applied_twice(evidence: Evidence) -> Evidence:
    return with_effect_again(evidence, "idempotent")


def failed(evidence: Evidence) -> Evidence:
    first, second = evidence.executions
    return replace(evidence, executions=[replace(first, status=ExecutionStatus.FAILED), second])


def other_answer(evidence: Evidence) -> Evidence:
    messages = [
        replace(one, content=answer(0, call_of(0, "external"))) if one.content == answer(0) else one
        for one in evidence.messages
    ]
    return replace(evidence, messages=messages)


def result_nobody_gave(evidence: Evidence) -> Evidence:
    witness = [
        told
        for told in evidence.witness
        if not (told["op"] == "effect" and told["call"] == call_of(0, "idempotent"))
    ]
    return replace(evidence, witness=witness)


def skipped_step(evidence: Evidence) -> Evidence:
    first, second = evidence.executions
    return replace(evidence, executions=[replace(first, step_count=4), second])


def heard(evidence: Evidence, *order: int) -> Evidence:
    seen = [(one.seq, one.id) for one in evidence.events[SESSION]]
    log = SubscriberLog("subscriber-0", SESSION, [seen[index] for index in order])
    return replace(evidence, subscribers=[log])


def hole_in_the_log(evidence: Evidence) -> Evidence:
    events = [one for one in evidence.events[SESSION] if one.seq != 3]
    seen = [(one.seq, one.id) for one in events]
    log = SubscriberLog("subscriber-0", SESSION, seen)
    return replace(evidence, events={SESSION: events}, subscribers=[log])


def completed_twice(evidence: Evidence) -> Evidence:
    events = [*evidence.events[SESSION], event(5, "e0", "execution.completed")]
    seen = [(one.seq, one.id) for one in events]
    log = SubscriberLog("subscriber-0", SESSION, seen)
    return replace(evidence, events={SESSION: events}, subscribers=[log])


def told_another_event(evidence: Evidence) -> Evidence:
    seen = [(one.seq, one.id) for one in evidence.events[SESSION][:3]]
    log = SubscriberLog("subscriber-0", SESSION, [*seen, (4, "nobody knows")])
    return replace(evidence, subscribers=[log])


@pytest.mark.parametrize(
    ("spoil", "figure"),
    [
        (lost, "lost"),
        (still_running, "lost"),
        (never_sent, "lost"),
        (step_told_twice, "duplicate_messages"),
        (sent_twice, "duplicate_messages"),
        (answered_twice, "duplicate_messages"),
        (external_again, "silent_repeats"),
        (idempotent_under_another_key, "duplicate_effects"),
        (idempotent_applied_twice, "duplicate_effects"),
        (failed, "wrong_answers"),
        (other_answer, "wrong_answers"),
        (result_nobody_gave, "wrong_answers"),
        (skipped_step, "wrong_answers"),
        (lambda evidence: heard(evidence, 0, 1, 3), "log_gaps"),
        (lambda evidence: heard(evidence, 0, 1, 2), "log_gaps"),
        (lambda evidence: heard(evidence, 0, 1, 1, 2, 3), "log_duplicates"),
        (lambda evidence: heard(evidence, 0, 2, 1, 3), "log_disorder"),
        (told_another_event, "log_disorder"),
        (hole_in_the_log, "log_gaps"),
        (completed_twice, "wrong_ends"),
        (lambda evidence: replace(evidence, bad_snapshots=["unreadable"]), "bad_snapshots"),
        (lambda evidence: replace(evidence, invalid_histories=["order"]), "invalid_histories"),
    ],
)
def test_what_is_wrong_is_counted_and_explained(
    spoil: Callable[[Evidence], Evidence], figure: str
) -> None:
    report = report_on(spoil(good_evidence()))
    assert getattr(report, figure) >= 1
    assert report.problems


def test_an_idempotent_call_that_comes_again_under_its_key_is_no_problem() -> None:
    report = report_on(with_effect_again(good_evidence(), "idempotent", applied=False))
    assert report.problems == []
    assert report.idempotent_repeats == 1


def test_a_run_without_a_kill_in_flight_proves_nothing() -> None:
    evidence = good_evidence()
    first, second = evidence.executions
    ended = replace(second, completed_at=execution(1, ended_after=2.5).completed_at)
    report = report_on(replace(evidence, executions=[first, ended]))
    assert report.kills_in_flight == 0
    assert any("no kill hit work in flight" in problem for problem in report.problems)


def test_a_crash_point_that_was_not_hit_often_enough_is_named() -> None:
    report = report_on(good_evidence(), Demands(kills=1, min_hits=2, points=("after:step",)))
    assert any("in:tool was hit 1 times of 2" in problem for problem in report.problems)
    assert any("after:step was hit 0" in problem for problem in report.problems)


def test_too_few_kills_and_too_slow_takeovers_are_told() -> None:
    demands = Demands(kills=2, max_takeover_seconds=1.5)
    problems = " ".join(report_on(good_evidence(), demands).problems)
    assert "only 1 of 2 kills" in problems
    assert "the p99 of takeovers is 2.00 s" in problems


def test_a_random_kill_by_the_harness_counts_for_the_worker_that_it_hit() -> None:
    evidence = good_evidence()
    kill = line("kill", 3.0, "harness", worker="worker-1")
    witness = [told for told in evidence.witness if told["op"] != "crash"]
    report = report_on(replace(evidence, witness=[*witness, kill]), Demands(kills=1))
    assert report.kills_in_flight == 1
    assert report.takeovers == 1
