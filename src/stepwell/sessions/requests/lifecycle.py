"""Requests of users for executions and sessions: cancel, answer, resume, fork, rename, close.

The caller has checked that the user may. Every request is one transaction: it succeeds or
changes nothing.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET, UnsetType

from stepwell.clock import Clock, SystemClock
from stepwell.ids import IdFactory, new_id
from stepwell.journal.status import ExecutionStatus
from stepwell.sessions.directory import AgentDirectory
from stepwell.sessions.endings.end_request import request_end
from stepwell.sessions.errors import ConflictError
from stepwell.sessions.intake.admission import IntakeDeps, Sent
from stepwell.sessions.intake.checks import check_text
from stepwell.sessions.ports import Jobs, Store, Transaction
from stepwell.sessions.principal import Principal
from stepwell.sessions.records import Execution, Session, SessionStatus, WhenBusy
from stepwell.sessions.requests.answer import decide_answer
from stepwell.sessions.requests.fork import ForkRequest
from stepwell.sessions.requests.grant import BudgetGrant, decide_grant
from stepwell.sessions.requests.resume import (
    Decide,
    ExecutionChangedError,
    ResumeRequest,
    find_execution,
    lock_execution,
)
from stepwell.sessions.requests.session_change import SessionChange
from stepwell.sessions.settings import SessionSettings
from stepwell.sessions.views.reader import Reader

DEFAULT_SETTINGS = SessionSettings()
ROUNDS = 5
"""Retries of a request after a concurrent change."""


class Lifecycle:
    """Changes executions and sessions on request."""

    def __init__(
        self,
        store: Store,
        jobs: Jobs,
        agents: AgentDirectory,
        *,
        settings: SessionSettings = DEFAULT_SETTINGS,
        clock: Clock | None = None,
        new_id: IdFactory = new_id,
    ) -> None:
        self._store = store
        self._deps = IntakeDeps(
            jobs=jobs, agents=agents, settings=settings, clock=clock or SystemClock()
        )
        self._reader = Reader(store)
        self._new_id = new_id

    async def cancel(self, execution_id: str, *, reason: str = "") -> Execution:
        """Cancel an execution: at once if it is not running, else as soon as its worker knows."""
        request = self._deps.end_request(check_text(reason, "the reason"))

        async def work(transaction: Transaction) -> Execution:
            _, execution = await lock_execution(transaction, execution_id)
            await _check_root(transaction, execution)
            if execution.status is ExecutionStatus.CANCELLED:
                return execution
            if execution.status.is_terminal:
                raise ConflictError(
                    f"execution {execution_id} is over ({execution.status}); there is nothing to "
                    "cancel",
                    code="already_over",
                )
            return await request_end(transaction, execution, request)

        return await self._store.write(work, name="cancel")

    async def answer(
        self, execution_id: str, question_id: str | None, answer: Any, *, call_id: str | None = None
    ) -> Execution:
        """Answer one question of a paused execution; after the last one it resumes.

        Raises ``QuestionChangedError`` unless the question is open, and belongs to the call if
        ``call_id`` names one.
        """
        decide = decide_answer(question_id, answer, call_id=call_id)
        return await self._resume(execution_id, decide, name="answer")

    async def resume(
        self,
        execution_id: str,
        *,
        question_id: str | None = None,
        steps: int = 0,
        tokens: int = 0,
        seconds: float = 0.0,
        cost: float = 0.0,
        accept_change: bool = False,
    ) -> Execution:
        """Grant budget to a paused execution, or resume one that was set aside.

        An execution that waits for budget accepts the grant only with its ``question_id``.
        """
        grant = BudgetGrant(steps=steps, tokens=tokens, seconds=seconds, cost=cost)
        decide = decide_grant(
            grant, self._deps.agents, question_id=question_id, accept_change=accept_change
        )
        return await self._resume(execution_id, decide, name="resume")

    async def fork(
        self,
        who: Principal,
        execution_id: str,
        *,
        step_number: int | None = None,
        message: str | None = None,
    ) -> Sent:
        """Start a new session from the state of this execution after that step.

        It continues by itself if the execution would have; otherwise ``message`` says what to do.
        """
        execution = await self._store.read(lambda transaction: _root(transaction, execution_id))
        state = await self._reader.state_at(execution_id, step_number)
        request = ForkRequest(self._deps, who, execution, state, self._new_id, message)
        source = await self._store.read(request.source)
        return await self._store.write(request.work(source), name="fork")

    async def change_session(
        self,
        session_id: str,
        *,
        title: str | UnsetType | None = UNSET,
        status: SessionStatus | UnsetType = UNSET,
        when_busy: WhenBusy | UnsetType = UNSET,
        metadata: Mapping[str, Any] | UnsetType = UNSET,
    ) -> Session:
        """Rename, archive, close or reactivate a session, or set ``when_busy``.

        Closing cancels its unfinished executions and can't be undone.
        """
        change = SessionChange(title=title, status=status, when_busy=when_busy, metadata=metadata)
        work = change.validate().work(session_id, self._deps.end_request("session closed"))
        return await self._store.write(work, name="change_session")

    async def _resume(self, execution_id: str, decide: Decide, *, name: str) -> Execution:
        request = ResumeRequest(self._deps, self._store, execution_id, self._new_id())
        for _ in range(ROUNDS):
            execution = await self._store.read(lambda transaction: _root(transaction, execution_id))
            work = await request.work(execution, decide)
            try:
                return await self._store.write(work, name=name)
            except ExecutionChangedError:
                continue
        raise ConflictError(
            f"execution {execution_id} changes faster than it can be answered; try again",
            code="changed_meanwhile",
        )


async def _root(transaction: Transaction, execution_id: str) -> Execution:
    """Return the execution. Raises ``ConflictError`` if it is a subagent's."""
    execution = await find_execution(transaction, execution_id)
    await _check_root(transaction, execution)
    return execution


async def _check_root(transaction: Transaction, execution: Execution) -> None:
    """Raise ``ConflictError`` for a subagent, which belongs to the execution that runs it."""
    root = execution
    while root.parent_execution_id is not None:
        root = await find_execution(transaction, root.parent_execution_id)
    if root is not execution:
        raise ConflictError(
            f"execution {execution.id} is that of a subagent and can't be changed by itself; use "
            f"execution {root.id}, which it belongs to",
            code="subagent",
        )
