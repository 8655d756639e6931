"""What users do to executions: answer, approve, deny, cancel, steer and fork.

Everything that matters to the checker is told to the witness: an approval before it is given, since
it may take effect though its giver dies; the outcome of a cancellation after it is known.
"""

from contextlib import suppress
from typing import Any

from msgspec import to_builtins

from chaos.crash_points import CrashingStore
from chaos.operations import operations
from chaos.progress import Progress
from chaos.scenario import PlannedCall, note_text
from chaos.settings import USER, ChaosSettings
from stepwell.journal.status import ExecutionStatus
from stepwell.sessions.errors import ConflictError, QuestionChangedError, RefusedError
from stepwell.sessions.intake.intake import Intake, NewMessage
from stepwell.sessions.ports import ExecutionFilter, Transaction
from stepwell.sessions.principal import DEFAULT_TENANT
from stepwell.sessions.records import Execution
from stepwell.sessions.requests.lifecycle import Lifecycle

MOST = 1000
FACTS = ("status", "step_count", "attempt", "output", "completed_at", "last_snapshot_id")
"""Of an execution that is over; a fork must not change them."""


class Operator:
    """Acts on what was sent so far, once for each call of ``act``."""

    def __init__(
        self,
        settings: ChaosSettings,
        store: CrashingStore,
        intake: Intake,
        lifecycle: Lifecycle,
        progress: Progress,
    ) -> None:
        self._settings = settings
        self._store = store
        self._intake = intake
        self._lifecycle = lifecycle
        self._progress = progress

    async def act(self) -> None:
        """Do what is due."""
        for execution in await self._store.read(_paused):
            await self._answer(execution)
        for number, sent in sorted(self._progress.sent.items()):
            if self._is_done(number):
                continue
            execution = await self._store.read(lambda tx, id=sent.execution: tx.execution(id))
            if execution is not None:
                await self._operate(number, execution)

    def _is_done(self, number: int) -> bool:
        planned = operations(number, self._settings.seed)
        names = [f"note {note}" for note in planned.notes]
        names += [f"cancel {number}"] if planned.cancel_at is not None else []
        names += [f"fork {number}"] if planned.fork_at is not None else []
        return self._progress.done.issuperset(names)

    async def _operate(self, number: int, execution: Execution) -> None:
        planned, done = operations(number, self._settings.seed), self._progress.done
        steps, is_over = execution.step_count, execution.status.is_terminal
        for index, note in enumerate(planned.notes):
            runs = execution.status is ExecutionStatus.RUNNING and steps >= 2 * index
            if f"note {note}" not in done and (runs or is_over):
                await self._note(note, execution)
        if planned.cancel_at is not None and (is_over or steps >= planned.cancel_at):
            await self._cancel(number, execution)
        if planned.fork_at is not None and (is_over or steps > planned.fork_at):
            await self._fork(number, execution, min(planned.fork_at, steps))

    async def _answer(self, execution: Execution) -> None:
        for asked in execution.questions:
            call = PlannedCall(str(asked["call_id"]), str(asked["tool_name"]))
            answer: Any = call.answer
            if call.tool == "guarded":
                answer = not call.is_denied
                self._tell("approve", execution=execution.id, call=call.id, approved=answer)
            # Refused if the sender before this one had answered already, or it was cancelled.
            with suppress(ConflictError, QuestionChangedError):
                await self._lifecycle.answer(execution.id, asked["question_id"], answer)

    async def _note(self, note: str, execution: Execution) -> None:
        await self._intake.send_message(
            USER,
            NewMessage(
                content=note_text(note),
                session_id=execution.session_id,
                idempotency_key=f"chaos-note-{note}",
            ),
        )
        self._tell("note", note=note, session=execution.session_id)
        self._progress.add_done(f"note {note}")

    async def _cancel(self, number: int, execution: Execution) -> None:
        self._tell("cancel", execution=execution.id)
        try:
            await self._lifecycle.cancel(execution.id, reason="chaos")
            outcome = "accepted"
        except ConflictError:
            outcome = "over"
        self._tell("cancel_outcome", execution=execution.id, outcome=outcome)
        self._progress.add_done(f"cancel {number}")

    async def _fork(self, number: int, execution: Execution, step: int) -> None:
        facts = facts_of(execution) if execution.status.is_terminal else None
        try:
            fork = await self._lifecycle.fork(USER, execution.id, step_number=step)
        except (ConflictError, RefusedError) as error:
            # It waited for a person after that step, so it does not go on by itself.
            self._tell("fork_refused", source=execution.id, step=step, why=str(error))
        else:
            made = None if fork.execution is None else fork.execution.id
            self._tell("fork", source=execution.id, step=step, facts=facts, execution=made)
        self._progress.add_done(f"fork {number}")

    def _tell(self, op: str, **fields: Any) -> None:
        self._store.points.witness.tell(op, **fields)


def facts_of(execution: Execution) -> dict[str, Any]:
    """What of an execution that is over must stay as it is."""
    return {name: to_builtins(getattr(execution, name)) for name in FACTS}


async def _paused(tx: Transaction) -> list[Execution]:
    """Those that wait for a person, in the sessions of forks as well."""
    which = ExecutionFilter(tenant_id=DEFAULT_TENANT, status=ExecutionStatus.PAUSED)
    return [*await tx.newest_executions(which, limit=MOST)]
