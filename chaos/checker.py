"""Recomputes from the evidence what must have come of a run, and says what did not.

Pure: a function from ``Evidence`` to a ``Report``. Nothing that the workers claim is believed; what
tools really did is known from the witness alone.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from chaos.effects import Effects
from chaos.evidence import Evidence
from chaos.log_faults import LogFaults
from chaos.outcomes import Outcomes, is_copy
from chaos.requests import Requests
from chaos.scenario import note_in, scenario_in
from chaos.takeovers import InFlight, Takeovers
from stepwell.sessions.records import MessageRole, SessionMessage


class Demands(Struct, frozen=True, kw_only=True):
    """What a run must have been through to prove anything."""

    kills: int = 1
    min_hits: int = 0
    points: tuple[str, ...] = ()
    """Crash points that must be hit, beside all that any process has seen."""
    max_takeover_seconds: float = 5.0


class Report(Struct, frozen=True, kw_only=True):
    """The figures, and in ``problems`` a sentence for everything that is wrong."""

    executions: int
    finished: int
    lost: int
    duplicate_messages: int
    silent_repeats: int
    duplicate_effects: int
    wrong_answers: int
    unapproved_calls: int
    wrong_ends: int
    lost_notes: int
    fork_faults: int
    wrong_texts: int
    log_gaps: int
    log_duplicates: int
    log_disorder: int
    invalid_histories: int
    bad_snapshots: int
    unknown_outcomes: int
    idempotent_repeats: int
    """Idempotent calls that came again under their old key, and had no second effect."""
    cancels: int
    cancelled: int
    approvals: int
    notes: int
    forks: int
    kills: int
    kills_in_flight: int
    freezes: int
    freezes_in_flight: int
    database_restarts: int
    bus_kills: int
    server_kills: int
    crash_points_hit: Mapping[str, int]
    takeovers: int
    takeover_p50_s: float
    takeover_p99_s: float
    takeover_max_s: float
    takeovers_with_outage: int
    """Those during which the database was away; not among the others."""
    takeover_with_outage_max_s: float
    reconnects: int
    problems: Sequence[str]


def checked(evidence: Evidence, demands: Demands) -> Report:
    """The report on a run."""
    outcome = Outcomes(evidence)
    effects = Effects(evidence.witness)
    requests = Requests(evidence)
    logs = LogFaults(evidence)
    every = [event for log in evidence.events.values() for event in log]
    flights = Takeovers(evidence.witness, evidence.executions, every)
    hits = Counter(line["point"] for line in evidence.witness if line["op"] == "crash")
    duplicates = list(_duplicate_messages(evidence.messages))
    done = Counter(line["op"] for line in evidence.witness)
    faults = (
        *(outcome.lost, duplicates, effects.silent_repeats, effects.duplicate_effects),
        *(outcome.wrong, effects.unapproved, requests.end_faults, requests.note_faults),
        *(outcome.fork_faults, logs.texts, logs.gaps, logs.duplicates, logs.disorder),
        *(evidence.invalid_histories, evidence.bad_snapshots),
        _unproven(evidence.witness, hits, flights, demands),
    )
    return Report(
        executions=evidence.executions_asked,
        finished=outcome.finished,
        lost=len(outcome.lost),
        duplicate_messages=len(duplicates),
        silent_repeats=len(effects.silent_repeats),
        duplicate_effects=len(effects.duplicate_effects),
        wrong_answers=len(outcome.wrong),
        unapproved_calls=len(effects.unapproved),
        wrong_ends=len(requests.end_faults),
        lost_notes=len(requests.note_faults),
        fork_faults=len(outcome.fork_faults),
        wrong_texts=len(logs.texts),
        log_gaps=len(logs.gaps),
        log_duplicates=len(logs.duplicates),
        log_disorder=len(logs.disorder),
        invalid_histories=len(evidence.invalid_histories),
        bad_snapshots=len(evidence.bad_snapshots),
        unknown_outcomes=outcome.unknown,
        idempotent_repeats=effects.idempotent_repeats,
        cancels=requests.cancels,
        cancelled=requests.cancelled,
        approvals=effects.approvals,
        notes=len(requests.notes),
        forks=outcome.forks,
        kills=len(flights.kills),
        kills_in_flight=_in_flight(flights.kills),
        freezes=len(flights.freezes),
        freezes_in_flight=_in_flight(flights.freezes),
        database_restarts=done["restart"],
        bus_kills=done["kill_bus"],
        server_kills=done["kill_server"],
        crash_points_hit=dict(sorted(hits.items())),
        takeovers=len(flights.seconds),
        takeover_p50_s=flights.quantile(0.5),
        takeover_p99_s=flights.quantile(0.99),
        takeover_max_s=flights.quantile(1.0),
        takeovers_with_outage=len(flights.seconds_with_outage),
        takeover_with_outage_max_s=max(flights.seconds_with_outage, default=0.0),
        reconnects=sum(log.reconnects for log in evidence.subscribers),
        problems=[problem for kind in faults for problem in kind],
    )


def _in_flight(hits: Sequence[InFlight]) -> int:
    return sum(1 for hit in hits if hit.executions)


def _unproven(
    witness: Sequence[Mapping[str, Any]],
    hits: Mapping[str, int],
    flights: Takeovers,
    demands: Demands,
) -> Iterator[str]:
    """Why the run proves nothing, or too little."""
    if _in_flight(flights.kills) == 0:
        yield "no kill hit work in flight, so this run proves nothing"
    if len(flights.kills) < demands.kills:
        yield f"only {len(flights.kills)} of {demands.kills} kills happened"
    seen = {line["point"] for line in witness if line["op"] == "saw"}
    for point in sorted(seen.union(demands.points)):
        if hits.get(point, 0) < demands.min_hits:
            yield (
                f"crash point {point} was hit {hits.get(point, 0)} times of {demands.min_hits}"
                + ("" if point in seen else ": no process came by it")
            )
    if flights.quantile(0.99) > demands.max_takeover_seconds:
        yield (
            f"the p99 of takeovers is {flights.quantile(0.99):.2f} s, allowed are "
            f"{demands.max_takeover_seconds:g} s"
        )


def _duplicate_messages(messages: Sequence[SessionMessage]) -> Iterator[str]:
    """Messages that a person sees twice: the same event of the same step and call."""
    counted: Counter[tuple[Any, ...]] = Counter()
    for message in messages:
        notes = message.metadata
        if is_copy(notes):
            continue
        which = [notes.get(name) for name in ("step", "step_number", "call_id", "tool_call_id")]
        asked = message.content if message.role is MessageRole.USER else ""
        if (wanted := scenario_in(asked)) is not None:
            key: tuple[Any, ...] = ("user", wanted.number)
        elif (note := note_in(asked)) is not None:
            key = ("note", note)
        else:
            same = message.content if not any(which) else ""
            event = notes.get("event_type")
            key = (message.agent_execution_id, message.role.value, event, *which, same)
        counted[key] += 1
    for key, count in counted.items():
        # A scenario asks up to two questions in two steps; their answers are noted in one wording.
        allowed = 2 if str(key[-1]).startswith("Answer received") else 1
        if count > allowed:
            yield f"{count} messages of one event: {key}"
