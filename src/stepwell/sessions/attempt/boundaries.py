"""The transactions of a run: its start, each step, a flush in a long step, a pause, a hand-over,
its end. Each saves the row, the state and what happened, or does nothing. Called by the runner.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from msgspec.structs import replace

from stepwell.journal.envelope import EnvelopeType
from stepwell.journal.status import ExecutionStatus
from stepwell.sessions.attempt.attempt import Attempt
from stepwell.sessions.attempt.commit_check import is_stored, was_committed
from stepwell.sessions.attempt.start import begin_row, start_notes
from stepwell.sessions.attempt.takeovers import stopped_attempts
from stepwell.sessions.attempt.writer import Work
from stepwell.sessions.directory import RegisteredAgent
from stepwell.sessions.endings.close import close_execution, point_to_newest
from stepwell.sessions.endings.cut_off import cut_off_subagents
from stepwell.sessions.endings.end import End, EndDeps, cancelled_end
from stepwell.sessions.endings.final_state import unknown_outcome_notes
from stepwell.sessions.endings.outside import end_execution
from stepwell.sessions.ledger.interrupted_step import with_interrupted_step
from stepwell.sessions.narration import (
    LONGEST_ERROR,
    output_of,
    pending_data,
    with_decision,
    with_usage,
)
from stepwell.sessions.occurrence import Occurrence
from stepwell.sessions.ports import Transaction
from stepwell.sessions.records import (
    PUBLISHED_STATUS,
    EventType,
    Execution,
    JournalHead,
    Session,
    Snapshot,
)
from stepwell.sessions.views.hints import explain_stop
from stepwell.state import AgentState

logger = logging.getLogger("stepwell.sessions")

HANDED_OVER = "Its worker shuts down; another one goes on"

Happened = Sequence[Occurrence]
Locked = TypeVar("Locked", Session, JournalHead)


class Boundaries:
    """Writes what the run of one attempt came to."""

    def __init__(self, attempt: Attempt, agent: RegisteredAgent | None) -> None:
        self._attempt = attempt
        self._agent = agent
        self._row = attempt.execution
        """As the next boundary stores it."""
        self._boundary = attempt.execution
        """As the last boundary left it: a flush stores nothing of a step beyond it."""
        self._unstored: list[Snapshot] = []
        attempt.writer.flush = self._flush
        deps = attempt.deps
        self._deps = EndDeps(jobs=deps.jobs, clock=deps.clock, settings=deps.settings)

    async def start(self, state: AgentState, *, is_new: bool) -> None:
        """Begin, or go on. A first attempt stores nothing yet: its claim is stored, and the rest
        goes along with what comes next."""
        attempt, claimed = self._attempt, self._attempt.execution
        at = attempt.clock.now()
        self._row = replace(begin_row(claimed, self._agent), updated_at=at)
        if is_new:
            await self._add_snapshot(state)
        self._boundary = self._row
        attempt.journal.begin()
        attempt.note(*start_notes(attempt.narrator, claimed, self._agent, at))
        is_as_queued = claimed.attempt == 1 and self._row.definition_hash == claimed.definition_hash
        if is_as_queued:
            return

        async def change(tx: Transaction, session: Session | None, happened: Happened) -> None:
            row = self._with_published_status(self._row)
            await attempt.inbox.update(tx, await tx.fence(row))
            cut_off = []
            if claimed.attempt > 1:
                cut_off = await cut_off_subagents(tx, row, but_paused=True)
            if not attempt.settings.broadcast.auto_status_tracking:
                cut_off = []
            await self._save_snapshots(tx)
            await tx.save_execution(row)
            if session is not None:
                await tx.append(session, [*cut_off, *happened])

        await self._commit(
            "start", change, self._lock_session, mark=self._row.last_snapshot_id if is_new else None
        )

    async def flush_in_long_steps(self) -> None:
        """Store what has waited for so long that its step is no quick one; ends with the run."""
        journal, longest = self._attempt.journal, self._attempt.settings.flush_seconds
        time = asyncio.get_running_loop().time
        while True:
            await journal.news.wait()
            left = journal.waiting_since + longest - time()
            if left > 0:
                await asyncio.sleep(left)
            else:
                await self._flush()

    async def _flush(self) -> None:
        attempt = self._attempt
        async with attempt.writer as store:
            happened = attempt.journal.take()
            intent = attempt.open_step.take_news(attempt.execution, attempt.clock.now())
            row = self._with_published_status(self._boundary)
            first = [it for it in self._unstored if it.id == row.last_snapshot_id]
            if not happened and intent is None and not first:
                return

            async def change(tx: Transaction, journal: JournalHead | None) -> None:
                await self._save_progress(tx, row, first)
                if intent is not None:
                    await tx.save_intent(intent, attempt.execution.attempt)
                if journal is not None:
                    await tx.append(journal, happened)

            mark = first[0].id if first else None
            work = self._repeatable(self._lock_journal, change, happened, mark=mark)
            await store.write(work, name="flush")
        self._unstored = [it for it in self._unstored if it not in first]

    async def step(self, state: AgentState) -> None:
        """Store a step of a run that goes on."""
        await self._add_step(state)

        async def change(tx: Transaction, journal: JournalHead | None, happened: Happened) -> None:
            await self._save_progress(tx, self._with_published_status(self._row), self._unstored)
            if journal is not None:
                await tx.append(journal, happened)

        mark = self._row.last_snapshot_id
        await self._commit("step", change, self._lock_journal, mark=mark, held=True)
        self._attempt.open_step.close()

    async def hand_over(self, state: AgentState) -> None:
        """Store a step of a run that goes on with another worker."""
        await self._add_step(state)
        attempt, at = self._attempt, self._row.updated_at
        parts = ("handed over", attempt.execution.attempt)
        note = attempt.narrator.note(EventType.EXECUTION_QUEUED, HANDED_OVER, at, parts=parts)
        attempt.note(note)

        async def change(tx: Transaction, session: Session | None, happened: Happened) -> None:
            row = self._with_published_status(self._row)
            row = replace(row, status=ExecutionStatus.PENDING, worker_id=None)
            await tx.fence(row)
            await self._save_snapshots(tx)
            await tx.save_execution(row)
            if session is not None:
                await tx.append(session, happened)
            await attempt.deps.jobs.enqueue(tx, row.id)

        mark = self._row.last_snapshot_id
        await self._commit("step", change, self._lock_session, mark=mark, held=True, lets_go=True)

    async def pause(self, state: AgentState) -> ExecutionStatus:
        """Store a run that waits for a person; nothing of it stays in memory. If somebody wanted
        its end meanwhile, nobody would hear of that any more, so it ends."""
        attempt, status = self._attempt, ExecutionStatus.PAUSED
        await self._add_step(state, is_pause=True)
        attempt.note(attempt.narrator.pause_note(state, self._row.updated_at))
        self._row = replace(
            with_decision(self._row, state.stop),
            status=status,
            pending=pending_data(state),
            worker_id=None,
        )

        async def change(tx: Transaction, session: Session | None, happened: Happened) -> None:
            nonlocal status
            row = self._with_published_status(self._row)
            cancel_requested = (await tx.fence(row)).execution.cancel_requested
            await self._save_snapshots(tx)
            await tx.save_execution(row)
            if session is not None:
                await tx.append(session, happened)
            if cancel_requested is not None:
                status = ExecutionStatus.CANCELLED
                row = replace(row, cancel_requested=cancel_requested)
                end = cancelled_end(cancel_requested)
                await end_execution(tx, row, end, self._deps)
            elif session is not None:
                await point_to_newest(tx, session, row)

        mark = self._row.last_snapshot_id
        await self._commit("pause", change, self._lock_session, mark=mark, held=True, lets_go=True)
        return status

    async def finish(self, state: AgentState) -> ExecutionStatus:
        """Store the end that the run itself decided, or the one that a user has requested in the
        meantime."""
        attempt, at = self._attempt, self._attempt.clock.now()
        status = ExecutionStatus.of(state.status)
        state = self._with_interrupted_step(state)
        await self._add_step(state, is_final=True)
        attempt.note(*attempt.narrator.end_notes(state, status, at))
        self._row = replace(
            with_decision(self._row, state.stop),
            status=status,
            output=output_of(state),
            error_message=_error(state) if status is ExecutionStatus.FAILED else None,
            pending=(),
            completed_at=at,
        )

        intent = attempt.open_step.take_news(attempt.execution, at)

        async def change(tx: Transaction, session: Session | None, happened: Happened) -> None:
            nonlocal status
            row = self._with_published_status(self._row)
            fenced = await tx.fence(row)
            cancel_requested = fenced.execution.cancel_requested
            if cancel_requested is not None and status is not ExecutionStatus.CANCELLED:
                status = ExecutionStatus.CANCELLED
                if intent is not None:
                    await tx.save_intent(intent, row.attempt)
                await self._cancel_late(tx, session, fenced.execution, happened)
                return
            await attempt.inbox.update(tx, fenced)
            await self._save_snapshots(tx)
            unseen = attempt.inbox.unseen
            await close_execution(tx, row, session, happened, self._deps, unseen=unseen)

        mark = self._row.last_snapshot_id
        await self._commit("finish", change, self._lock_session, mark=mark, held=True, lets_go=True)
        if status is ExecutionStatus.FAILED:
            _log_failure(attempt.execution, _error(state))
        return status

    async def end(self, end: End) -> ExecutionStatus:
        """Store an end that the run did not decide."""
        attempt, status = self._attempt, end.status
        attempt.journal.drop_held()
        intent = attempt.open_step.take_news(attempt.execution, attempt.clock.now())

        async def change(tx: Transaction, session: Session | None, happened: Happened) -> None:
            nonlocal status
            now = (await tx.fence(self._row)).execution
            await self._save_snapshots(tx)
            row = self._with_published_status(now)
            if self._unstored:
                row = replace(row, last_snapshot_id=self._unstored[-1].id)
            if intent is not None:
                await tx.save_intent(intent, row.attempt)
            if session is not None:
                await tx.append(session, happened)
            wanted = now.cancel_requested
            decision = end if wanted is None else cancelled_end(wanted)
            status = (await end_execution(tx, row, decision, self._deps)).status

        await self._commit(
            "finish", change, self._lock_session, mark="ended", held=True, lets_go=True
        )
        if status is ExecutionStatus.FAILED:
            _log_failure(attempt.execution, end.reason)
        return status

    async def _cancel_late(
        self, tx: Transaction, session: Session | None, now: Execution, happened: Happened
    ) -> None:
        """End as cancelled a run that has come to its own end: its last step did not come true."""
        *kept, _ = self._unstored
        for snapshot in kept:
            await tx.add_snapshot(snapshot)
        row = replace(now, last_snapshot_id=kept[-1].id) if kept else now
        so_far = [it for it in happened if not it.is_held]
        if session is not None:
            await tx.append(session, so_far)
        for it in so_far:
            is_own = it.type == EnvelopeType.AGENT_STATUS and it.execution_id == row.id
            if is_own and it.payload is not None:
                row = replace(
                    row, metadata={**row.metadata, PUBLISHED_STATUS: it.payload["status"]}
                )
        await end_execution(tx, row, cancelled_end(now.cancel_requested or ""), self._deps)

    # What all of them do

    async def _commit(
        self,
        name: str,
        change: Callable[[Transaction, Locked | None, Happened], Awaitable[None]],
        lock: Callable[[Transaction], Awaitable[Locked | None]],
        *,
        mark: str | None,
        held: bool = False,
        lets_go: bool = False,
    ) -> None:
        """Run one transaction with what happened so far. ``held`` takes also what was held back
        since the step's end. For ``mark`` and ``lets_go`` see ``_repeatable``."""
        async with self._attempt.writer as store:
            happened = self._attempt.journal.take(held=held)
            work = self._repeatable(
                lock,
                lambda tx, session: change(tx, session, happened),
                happened,
                mark=mark,
                lets_go=lets_go,
            )
            await store.write(work, name=name)
        self._unstored.clear()
        self._boundary = self._row

    def _repeatable(
        self,
        lock: Callable[[Transaction], Awaitable[Locked | None]],
        change: Callable[[Transaction, Locked | None], Awaitable[None]],
        happened: Happened,
        *,
        mark: str | None,
        lets_go: bool = False,
    ) -> Work[None]:
        """The work of a transaction that may be tried again after it was committed. ``mark`` is the
        id of the snapshot that it stores: if the row has it by then, it was committed. So it was if
        it ``lets_go`` of the execution and this attempt runs no more, or if the journal has what
        happened where the first try put it."""
        next_seq: int | None = None
        is_repeated = False

        async def work(tx: Transaction) -> None:
            nonlocal is_repeated, next_seq
            session = await lock(tx)
            if is_repeated and (
                await was_committed(tx, self._row, mark, lets_go=lets_go)
                or await is_stored(tx, session, next_seq, happened)
            ):
                return
            is_repeated, next_seq = True, None if session is None else session.last_seq + 1
            await change(tx, session)

        return work

    async def _lock_session(self, tx: Transaction) -> Session | None:
        session_id = self._row.session_id
        return None if session_id is None else await tx.session(session_id, lock=True)

    async def _lock_journal(self, tx: Transaction) -> JournalHead | None:
        session_id = self._row.session_id
        return None if session_id is None else await tx.lock_journal(session_id)

    async def _save_progress(
        self, tx: Transaction, row: Execution, snapshots: Sequence[Snapshot]
    ) -> None:
        """Save what a step changes in the row; raises ``LostLeaseError`` if another worker has the
        execution."""
        fenced = await tx.save_progress(row)
        for snapshot in snapshots:
            await tx.add_snapshot(snapshot)
        await self._attempt.inbox.update(tx, fenced)

    def _with_published_status(self, row: Execution) -> Execution:
        status = self._attempt.journal.published_status
        return (
            row
            if status is None
            else replace(row, metadata={**row.metadata, PUBLISHED_STATUS: status})
        )

    async def _add_step(
        self, state: AgentState, *, is_final: bool = False, is_pause: bool = False
    ) -> None:
        """Take over what a step came to: its snapshot, its text, its counts."""
        await self._add_snapshot(state, is_final=is_final, is_pause=is_pause)
        steps = () if state.execution is None else state.execution.steps
        for recorded in steps[-1:]:
            if (more := self._attempt.narrator.more_of(recorded)) is not None:
                self._attempt.journal.add_metadata(*more)
        at = self._attempt.clock.now()
        self._row = replace(with_usage(self._row, state), crashes=0, updated_at=at)

    async def _add_snapshot(
        self, state: AgentState, *, is_final: bool = False, is_pause: bool = False
    ) -> None:
        """Make the snapshot of a state, to be stored with the next commit. Raises
        ``SerializationError``."""
        attempt = self._attempt
        make = partial(
            attempt.snapshots.next,
            attempt.execution,
            state,
            id=attempt.deps.new_id(),
            at=attempt.clock.now(),
            is_final=is_final,
            is_pause=is_pause,
        )
        snapshot = await asyncio.to_thread(make) if attempt.snapshots.is_large(state) else make()
        attempt.snapshots.mark_stored(snapshot, state)
        self._unstored.append(snapshot)
        self._row = replace(self._row, last_snapshot_id=snapshot.id)

    async def _save_snapshots(self, tx: Transaction) -> None:
        for snapshot in self._unstored:
            await tx.add_snapshot(snapshot)

    def _with_interrupted_step(self, state: AgentState) -> AgentState:
        """Record the calls of a step that began and did not become one: its end was decided before
        the step was taken again, or within it."""
        attempt = self._attempt
        if state.stop is None or not attempt.open_step.has_calls_of(state.step_number):
            return state
        stopped = stopped_attempts(attempt.execution)
        known, at = attempt.open_step.known_step(), attempt.clock.now()
        state = with_interrupted_step(state, known, state.stop, at, stopped=stopped)
        attempt.note(*unknown_outcome_notes(attempt.execution, state))
        return state


def _log_failure(execution: Execution, why: str) -> None:
    """One line, however long the reason is."""
    line = " ".join(why.split())[:LONGEST_ERROR]
    logger.warning("execution %s (session %s) failed: %s", execution.id, execution.session_id, line)


def _error(state: AgentState) -> str:
    step = state.current_step
    errors = () if step is None else step.errors
    return "; ".join(error.text for error in errors) or explain_stop(state)
