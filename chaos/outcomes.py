"""Whether every execution ended once, with the answer that follows from the witness."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from chaos.evidence import Evidence
from chaos.operator import facts_of
from chaos.scenario import (
    DENIED,
    DROPPED,
    STEPS,
    UNKNOWN,
    PlannedCall,
    Scenario,
    notes_in,
    scenario,
    scenario_in,
    unknown_in,
)
from stepwell.journal.status import ExecutionStatus
from stepwell.sessions.records import EventType, Execution, MessageRole

ENDS = (EventType.EXECUTION_COMPLETED, EventType.EXECUTION_FAILED, EventType.EXECUTION_CANCELLED)


class Outcomes:
    """What became of the scenarios and their forks: ``lost`` and ``wrong`` ones in a sentence each.

    ``finished`` counts scenarios that completed rightly or were cancelled on request; forks are
    looked at in the same way and counted in ``forks``.
    """

    def __init__(self, evidence: Evidence) -> None:
        self.lost: list[str] = []
        self.wrong: list[str] = []
        self.fork_faults: list[str] = []
        self.finished = 0
        self.forks = 0
        self.unknown = 0
        self._by_id = {execution.id: execution for execution in evidence.executions}
        self._receipts = receipts_of(evidence.witness)
        self._cancels = {line["execution"] for line in evidence.witness if line["op"] == "cancel"}
        self._answers = _answers(evidence)
        asked = _asked(evidence)
        for number in range(evidence.executions_asked):
            ids = asked.get(number, [])
            if not ids or ids[0] not in self._by_id:
                self.lost.append(f"scenario {number} was sent and has no execution")
                continue
            wanted = scenario(number, evidence.seed)
            faults = list(self._faults(wanted, self._by_id[ids[0]], source=None))
            self.wrong.extend(faults)
            self.finished += not faults and self._by_id[ids[0]].status.is_terminal
        self._look_at_forks(evidence, {id: number for number, ids in asked.items() for id in ids})
        self.lost.extend(
            f"execution {execution.id} is still {execution.status} after attempt "
            f"{execution.attempt}"
            for execution in evidence.executions
            if not execution.status.is_terminal
        )

    def _look_at_forks(self, evidence: Evidence, numbers: Mapping[str, int]) -> None:
        for session in evidence.sessions:
            source = session.metadata.get("forked_from", {}).get("execution_id")
            fork = next((e for e in evidence.executions if e.session_id == session.id), None)
            if source is None:
                continue
            self.forks += 1
            if fork is None or source not in numbers:
                self.fork_faults.append(f"the fork {session.id} of {source} has no execution")
                continue
            wanted = scenario(numbers[source], evidence.seed)
            self.fork_faults.extend(self._faults(wanted, fork, source=self._by_id[source]))
        for line in evidence.witness:
            if line["op"] == "fork" and line["facts"] is not None:
                self.fork_faults.extend(_changes(line, self._by_id.get(line["source"])))

    def _faults(
        self, wanted: Scenario, execution: Execution, *, source: Execution | None
    ) -> Iterator[str]:
        where = f"execution {execution.id} (scenario {wanted.number})"
        if source is not None:
            where = f"{where}, a fork of {source.id}"
        if not execution.status.is_terminal:
            return  # told as lost
        if execution.status is ExecutionStatus.CANCELLED and execution.id in self._cancels:
            return
        if execution.status is not ExecutionStatus.COMPLETED:
            yield f"{where} is {execution.status}: {execution.error_message}"
            return
        said = self._answers.get(execution.id, "")
        unknown = unknown_in(said)
        if unknown is None:
            yield f"{where} completed and its last assistant message is {said!r}"
            return
        self.unknown += len(unknown)
        crashed = execution.attempt > 1 or (source is not None and source.attempt > 1)
        for fault in self._answer_faults(wanted, (execution, source), said, unknown):
            yield f"{where} {fault}"
        if unknown and not crashed:
            yield f"{where} says that outcomes of {sorted(unknown)} are unknown, nothing crashed"

    def _answer_faults(
        self,
        wanted: Scenario,
        runs: tuple[Execution, Execution | None],
        said: str,
        unknown: frozenset[str],
    ) -> Iterator[str]:
        execution, source = runs
        results: dict[str, str] = {}
        for call in wanted.calls:
            if call.id in unknown:
                results[call.id] = UNKNOWN
                if not call.is_external:
                    yield f"says that the outcome of {call.id} is unknown, which is {call.tool}"
            else:
                results[call.id] = self._result(call, execution, source)
        expected = wanted.answer(results, notes_in(said))
        dropped = {call.id: DROPPED for call in wanted.calls if call.tool == "guarded"}
        is_dropped = source is not None and said == wanted.answer({**results, **dropped})
        if said != expected and not is_dropped:
            yield f"answered {said!r}; by the witness it is {expected!r}"
        if not STEPS <= execution.step_count <= STEPS + wanted.guarded:
            yield f"took {execution.step_count} steps, {STEPS} were planned"

    def _result(self, call: PlannedCall, execution: Execution, source: Execution | None) -> str:
        if call.tool == "pure":
            return call.pure_result
        if call.tool == "ask":
            return call.answer
        if call.tool == "guarded" and call.is_denied:
            return DENIED
        receipt = self._receipts.get(execution.id, {}).get(call.id)
        if receipt is None and source is not None:
            receipt = self._receipts.get(source.id, {}).get(call.id)
        return f"receipt {receipt}"


def ends_of(evidence: Evidence) -> dict[str, Counter[str]]:
    """How often each execution ended in the journal, by the kind of its end."""
    ends: dict[str, Counter[str]] = {}
    for log in evidence.events.values():
        for event in log:
            if event.event_type in ENDS and event.execution_id is not None:
                ends.setdefault(event.execution_id, Counter())[str(event.event_type)] += 1
    return ends


def is_copy(metadata: Mapping[str, Any]) -> bool:
    """Whether a message was copied into the session of a fork."""
    return "copied_from" in metadata


def receipts_of(witness: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """What the witness gave for each call of each execution."""
    found: dict[str, dict[str, str]] = {}
    for line in witness:
        if line["op"] == "effect":
            found.setdefault(line["execution"], {})[line["call"]] = line["receipt"]
    return found


def _answers(evidence: Evidence) -> dict[str, str]:
    """The last that each execution said."""
    return {
        str(message.agent_execution_id): message.content
        for message in evidence.messages
        if message.role is MessageRole.ASSISTANT and not is_copy(message.metadata)
    }


def _asked(evidence: Evidence) -> dict[int, list[str]]:
    """The executions of each scenario, forks left out."""
    asked: dict[int, list[str]] = {}
    for message in evidence.messages:
        if message.role is MessageRole.USER and not is_copy(message.metadata):
            wanted = scenario_in(message.content)
            if wanted is not None:
                asked.setdefault(wanted.number, []).append(str(message.agent_execution_id))
    return asked


def _changes(line: Mapping[str, Any], source: Execution | None) -> Iterator[str]:
    """What is another than it was before a fork."""
    now = {} if source is None else facts_of(source)
    for name, before in line["facts"].items():
        if now.get(name) != before:
            yield (
                f"{name} of execution {line['source']} was {before!r} before it was forked and is "
                f"{now.get(name)!r}"
            )
