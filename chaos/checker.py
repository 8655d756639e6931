"""Recomputes from the evidence what must have come of a run, and says what did not.

Pure: a function from ``Evidence`` to a ``Report``. Nothing that the workers claim is believed; what
tools really did is known from the witness alone.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from chaos.evidence import Evidence
from chaos.log_faults import LogFaults
from chaos.scenario import STEPS, UNKNOWN, Scenario, scenario, scenario_in, unknown_in
from chaos.takeovers import InFlight, Takeovers
from stepwell.sessions.records import Execution, ExecutionStatus, MessageRole, SessionMessage


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
    log_gaps: int
    log_duplicates: int
    log_disorder: int
    invalid_histories: int
    bad_snapshots: int
    unknown_outcomes: int
    idempotent_repeats: int
    """Idempotent calls that came again under their old key, and had no second effect."""
    kills: int
    kills_in_flight: int
    freezes: int
    freezes_in_flight: int
    database_restarts: int
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
    outcome = _Outcomes(evidence)
    effects = _Effects(evidence.witness)
    logs = LogFaults(evidence)
    every = [event for log in evidence.events.values() for event in log]
    flights = Takeovers(evidence.witness, evidence.executions, every)
    hits = Counter(line["point"] for line in evidence.witness if line["op"] == "crash")
    duplicates = list(_duplicate_messages(evidence.messages))
    restarts = sum(1 for line in evidence.witness if line["op"] == "restart")
    problems = [
        *outcome.lost,
        *duplicates,
        *effects.silent_repeats,
        *effects.duplicate_effects,
        *outcome.wrong,
        *logs.gaps,
        *logs.duplicates,
        *logs.disorder,
        *evidence.invalid_histories,
        *evidence.bad_snapshots,
        *_unproven(evidence.witness, hits, flights, demands),
    ]
    return Report(
        executions=evidence.executions_asked,
        finished=outcome.finished,
        lost=len(outcome.lost),
        duplicate_messages=len(duplicates),
        silent_repeats=len(effects.silent_repeats),
        duplicate_effects=len(effects.duplicate_effects),
        wrong_answers=len(outcome.wrong),
        log_gaps=len(logs.gaps),
        log_duplicates=len(logs.duplicates),
        log_disorder=len(logs.disorder),
        invalid_histories=len(evidence.invalid_histories),
        bad_snapshots=len(evidence.bad_snapshots),
        unknown_outcomes=outcome.unknown,
        idempotent_repeats=effects.idempotent_repeats,
        kills=len(flights.kills),
        kills_in_flight=_in_flight(flights.kills),
        freezes=len(flights.freezes),
        freezes_in_flight=_in_flight(flights.freezes),
        database_restarts=restarts,
        crash_points_hit=dict(sorted(hits.items())),
        takeovers=len(flights.seconds),
        takeover_p50_s=flights.quantile(0.5),
        takeover_p99_s=flights.quantile(0.99),
        takeover_max_s=flights.quantile(1.0),
        takeovers_with_outage=len(flights.seconds_with_outage),
        takeover_with_outage_max_s=max(flights.seconds_with_outage, default=0.0),
        reconnects=sum(log.reconnects for log in evidence.subscribers),
        problems=problems,
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


class _Outcomes:
    """Whether every scenario ended once, with the answer that follows from the witness."""

    def __init__(self, evidence: Evidence) -> None:
        self.lost: list[str] = []
        self.wrong: list[str] = []
        self.finished = 0
        self.unknown = 0
        self._effects = _receipts(evidence.witness)
        self._answers: dict[str, list[SessionMessage]] = {}
        asked: dict[int, list[str]] = {}
        for message in evidence.messages:
            if message.role is MessageRole.ASSISTANT:
                self._answers.setdefault(str(message.agent_execution_id), []).append(message)
            elif message.role is MessageRole.USER and (wanted := scenario_in(message.content)):
                asked.setdefault(wanted.number, []).append(str(message.agent_execution_id))
        by_id = {execution.id: execution for execution in evidence.executions}
        for number in range(evidence.executions_asked):
            ids = asked.get(number, [])
            if not ids or ids[0] not in by_id:
                self.lost.append(f"scenario {number} was sent and has no execution")
                continue
            self._look_at(scenario(number, evidence.seed), by_id[ids[0]])

    def _look_at(self, wanted: Scenario, execution: Execution) -> None:
        where = f"execution {execution.id} (scenario {wanted.number})"
        if not execution.status.is_over:
            self.lost.append(
                f"{where} is still {execution.status} after attempt {execution.attempt}"
            )
            return
        if execution.status is not ExecutionStatus.COMPLETED:
            self.wrong.append(f"{where} is {execution.status}: {execution.error_message}")
            return
        last = self._answers.get(execution.id, [])
        said = last[-1].content if last else ""
        unknown = unknown_in(said)
        if unknown is None:
            self.wrong.append(f"{where} completed and its last assistant message is {said!r}")
            return
        faults = list(self._faults(wanted, execution, said, unknown))
        self.wrong.extend(f"{where} {fault}" for fault in faults)
        self.unknown += len(unknown)
        self.finished += not faults

    def _faults(
        self, wanted: Scenario, execution: Execution, said: str, unknown: frozenset[str]
    ) -> Iterator[str]:
        results: dict[str, str] = {}
        for call in wanted.calls:
            if call.id in unknown:
                results[call.id] = UNKNOWN
                if call.tool != "external":
                    yield f"says that the outcome of {call.id} is unknown, which is {call.tool}"
                if execution.attempt < 2:
                    yield f"says that the outcome of {call.id} is unknown, and nothing crashed"
            elif call.tool in ("pure", "ask"):
                results[call.id] = call.pure_result if call.tool == "pure" else call.answer
            else:
                results[call.id] = f"receipt {self._effects.get(execution.id, {}).get(call.id)}"
        if said != (expected := wanted.answer(results)):
            yield f"answered {said!r}; by the witness it is {expected!r}"
        if execution.step_count != STEPS:
            yield f"took {execution.step_count} steps, {STEPS} were planned"


def _receipts(witness: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """What the witness gave for each call of each execution."""
    found: dict[str, dict[str, str]] = {}
    for line in witness:
        if line["op"] == "effect":
            found.setdefault(line["execution"], {})[line["call"]] = line["receipt"]
    return found


class _Effects:
    """What tools really did: external calls begun again, idempotent effects had twice."""

    def __init__(self, witness: Sequence[Mapping[str, Any]]) -> None:
        begun: Counter[tuple[str, str]] = Counter()
        done: Counter[tuple[str, str]] = Counter()
        applied: dict[tuple[str, str], list[str]] = {}
        self.idempotent_repeats = 0
        for line in witness:
            if line["op"] not in ("begin", "effect"):
                continue
            call = (line["execution"], line["call"])
            if line["effect"] == "external":
                (begun if line["op"] == "begin" else done)[call] += 1
            elif line["effect"] == "idempotent" and line["op"] == "effect":
                if line["applied"]:
                    applied.setdefault(call, []).append(line["key"])
                else:
                    self.idempotent_repeats += 1
        self.silent_repeats = [
            f"external call {call} of execution {execution} began {begun[execution, call]} times "
            f"and took effect {done[execution, call]} times"
            for execution, call in sorted(begun | done)
            if begun[execution, call] > 1 or done[execution, call] > 1
        ]
        self.duplicate_effects = [
            f"idempotent call {call} of execution {execution} took effect under {keys}"
            for (execution, call), keys in sorted(applied.items())
            if len(keys) > 1
        ]


def _duplicate_messages(messages: Sequence[SessionMessage]) -> Iterator[str]:
    """Messages that a person sees twice: the same event of the same step and call."""
    counted: Counter[tuple[Any, ...]] = Counter()
    for message in messages:
        notes = message.metadata
        which = [notes.get(name) for name in ("step", "step_number", "call_id", "tool_call_id")]
        wanted = scenario_in(message.content) if message.role is MessageRole.USER else None
        if wanted is not None:
            key: tuple[Any, ...] = ("user", wanted.number)
        else:
            same = message.content if not any(which) else ""
            event = notes.get("event_type")
            key = (message.agent_execution_id, message.role.value, event, *which, same)
        counted[key] += 1
    for key, count in counted.items():
        if count > 1:
            yield f"{count} messages of one event: {key}"
