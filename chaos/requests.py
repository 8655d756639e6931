"""What became of the requests of users: a cancellation ends once, a note is never lost."""

from collections import Counter
from collections.abc import Iterator

from chaos.evidence import Evidence
from chaos.outcomes import ENDS, ends_of, is_copy
from chaos.scenario import notes_in
from stepwell.journal.status import ExecutionStatus
from stepwell.sessions.records import MessageRole


class Requests:
    """The faults of cancellations and of notes to running executions, a sentence for each."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        accepted = {
            line["execution"]
            for line in evidence.witness
            if line["op"] == "cancel_outcome" and line["outcome"] == "accepted"
        }
        self.cancels = len(accepted)
        self.cancelled = sum(
            1 for each in evidence.executions if each.status is ExecutionStatus.CANCELLED
        )
        self.end_faults = [*self._not_cancelled(accepted), *self._ended_otherwise()]
        self.notes = {line["note"] for line in evidence.witness if line["op"] == "note"}
        self.note_faults = list(self._lost_notes())

    def _not_cancelled(self, accepted: set[str]) -> Iterator[str]:
        for execution in self._evidence.executions:
            if execution.id in accepted and execution.status is not ExecutionStatus.CANCELLED:
                yield (
                    f"the cancellation of execution {execution.id} was accepted, and it is "
                    f"{execution.status}"
                )

    def _ended_otherwise(self) -> Iterator[str]:
        """Executions whose journal does not have exactly one end, that of their row."""
        ends = ends_of(self._evidence)
        for execution in self._evidence.executions:
            found = ends.get(execution.id, Counter())
            if not execution.status.is_terminal:
                continue
            expected = f"execution.{execution.status}"
            if execution.status is ExecutionStatus.STOPPED:
                expected = ENDS[0].value
            if dict(found) != {expected: 1}:
                yield f"execution {execution.id} is {execution.status} and ended by {dict(found)}"

    def _lost_notes(self) -> Iterator[str]:
        """Notes that no answer has seen, or more than one."""
        seen: Counter[str] = Counter()
        for message in self._evidence.messages:
            if message.role is MessageRole.ASSISTANT and not is_copy(message.metadata):
                seen.update(notes_in(message.content))
        for note in sorted(self.notes | set(seen)):
            if seen[note] != 1:
                yield f"note {note} was seen by {seen[note]} answers"
