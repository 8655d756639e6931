"""One claimed execution while its worker has it: its place in the database, what it has told and
not logged, and the one way in which anything of it is written.

Ledger and hooks find it through a context variable. A write that fails must never become a tool's
result or an error step: it ends the run where it stands, and the execution is left for takeover.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextvars import ContextVar
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from stepwell.clock import Clock
from stepwell.continuation import Cancellation
from stepwell.events import (
    AgentEvent,
    AgentFailed,
    AgentFinished,
    AgentStepCompleted,
    AgentStepStarted,
    SubagentSpawning,
)
from stepwell.ids import IdFactory, RunIds
from stepwell.models import ModelResponse
from stepwell.sessions.errors import LostLeaseError
from stepwell.sessions.ids import derived_id
from stepwell.sessions.live_text import LiveText
from stepwell.sessions.log import JournalBatch, LogBuffer, Note, append
from stepwell.sessions.ports import Store, Transaction
from stepwell.sessions.records import Execution, ExecutionStatus, Session, SessionMessage
from stepwell.sessions.recovery import Recovered
from stepwell.sessions.settings import SessionSettings
from stepwell.sessions.snapshotting import SnapshotChain
from stepwell.sessions.telling import Narrator
from stepwell.state import AgentState

Result = TypeVar("Result")


class Held(Struct, frozen=True, eq=False):
    """What a transaction has locked when its change begins, and what it is to log."""

    session: Session | None
    execution: Execution
    told: JournalBatch


Change = Callable[[Transaction, Held], Awaitable[Result]]
"""What a commit does behind the fence."""

TOLD_STATUS = "told_status"
"""The key in an execution's metadata under which the next attempt finds what clients heard last."""

CHATTER = "chatter"

_CURRENT: ContextVar["Running | None"] = ContextVar("stepwell_running", default=None)


def running_of(state: AgentState) -> "Running | None":
    """What runs this state; None for a subagent's, and for runs that no session knows."""
    running = _CURRENT.get()
    execution = state.execution
    is_ours = running and execution and execution.id == running.execution.id
    return running if is_ours else None


def running_above(state: AgentState) -> "Running | None":
    """What runs the agent that this state is a subagent of, however deep; None for others."""
    running = _CURRENT.get()
    return None if running is None or running_of(state) is running else running


class Running:
    """A claimed execution in the hands of this process."""

    def __init__(
        self,
        store: Store,
        execution: Execution,
        *,
        settings: SessionSettings,
        clock: Clock,
        new_id: IdFactory,
        live_text: LiveText,
    ) -> None:
        self.execution = execution
        """As it was claimed."""
        self.ids = RunIds(execution.id, execution.session_id, execution.attempt)
        self.settings = settings
        self.clock = clock
        self.new_id = new_id
        self.snapshots = SnapshotChain(settings.snapshot_growth)
        self.narrator = Narrator(execution)
        self.agent_id = derived_id(execution.session_id or execution.id, "agent")
        self.log = LogBuffer(
            execution,
            self.agent_id,
            settings.broadcast,
            told_status=execution.metadata.get(TOLD_STATUS),
            clock=clock,
            new_id=new_id,
            live_text=live_text,
        )
        self.recovered = Recovered()
        self.response: ModelResponse | None = None
        """What the model said last; stored with the first call that it leads to."""
        self.open_step = 0
        """The newest step of which the ledger has calls."""
        self.steering: list[SessionMessage] = []
        """Messages for the run that it has not seen."""
        self.heard = 0
        """How many user messages to it were looked at."""
        self.seen: set[str] = set()
        self.spawned: dict[str, SubagentSpawning] = {}
        self.execution_ids: dict[str, str] = {}
        """Of the agents in this run, by agent id."""
        self.newest_snapshots: dict[str, str] = {}
        """Of its subagents, by execution id."""
        self.failure: BaseException | None = None
        """Why the run was given up."""
        self.cancellation: Cancellation | None = None
        self.task: asyncio.Task[Any] | None = None
        """In which the loop runs."""
        self._store = store
        self._lock = asyncio.Lock()
        self._is_writing = False
        """Stays true after a write that failed, so that none comes behind it."""
        self._writes: set[asyncio.Task[Any]] = set()

    def become_current(self) -> None:
        """What this task and its children run belongs to this execution."""
        _CURRENT.set(self)

    # What is told

    def hear(self, event: AgentEvent) -> None:
        """The tap of the run: envelopes for clients, messages for people."""
        if isinstance(event, SubagentSpawning):
            self.spawned[event.child_agent_id] = event
        is_own = event.execution_id == self.execution.id
        if is_own and isinstance(event, AgentStepStarted):
            self.ids.step = event.step_number
        if is_own and isinstance(event, AgentStepCompleted | AgentFailed | AgentFinished):
            self.log.hold(ends=not isinstance(event, AgentStepCompleted))
        self.log.hear(event)
        said = self.narrator.of_event(event) if is_own else None
        if said is not None:
            self.say(said)

    def say(self, *said: Note) -> None:
        """Messages for people, with the next commit."""
        if self.execution.session_id is not None:
            for message, type in said:
                self.log.say(message, type)

    def say_more(self, state: AgentState) -> None:
        """Of the step that is about to be stored, what is only known from its state."""
        steps = () if state.execution is None else state.execution.steps
        for recorded in steps[-1:]:
            self.log.add_to(*self.narrator.more_of(recorded))

    def with_told_status(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """The metadata of the row, with what clients heard last."""
        status = self.log.told_status
        return {**metadata, TOLD_STATUS: status} if status is not None else dict(metadata)

    # Writing

    async def commit(
        self,
        name: str,
        change: Change[Result],
        *,
        held: bool = False,
        mark: str | None = None,
        lets_go: bool = False,
    ) -> Result | None:
        """Change the database in one fenced transaction, with what was told so far.

        ``held`` takes also what was held back since the step's end. ``mark`` is the id of the
        snapshot that the change stores: if the row has it, the change was made already. So it was
        if it ``lets_go`` of the execution and this attempt runs no more. A change that fails gives
        the run up, and nobody gets past this.
        """
        was_made = None if mark is None else self._was_made(mark, lets_go=lets_go)
        return await self.shielded(self._committed(name, change, was_made, held=held))

    async def read(self, work: Callable[[Transaction], Awaitable[Result]]) -> Result:
        """Look something up; a database that does not answer gives the run up as well."""
        return await self.shielded(self._store.read(work))

    async def shielded(self, writing: Coroutine[Any, Any, Result]) -> Result:
        """Await it, whatever becomes of who waits: no deadline of a step ends half a write."""
        task = asyncio.create_task(writing)
        self._writes.add(task)
        task.add_done_callback(self._noted)
        await asyncio.wait([task])
        if not task.cancelled() and task.exception() is None:
            return task.result()
        if self.task is not None and asyncio.current_task() is self.task:
            self.task.cancel()  # it was asked before, but a tool may have swallowed that
            await asyncio.get_running_loop().create_future()
        raise asyncio.CancelledError

    def _noted(self, task: "asyncio.Task[Any]") -> None:
        self._writes.discard(task)
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is not None:
            self.abandon(error)

    async def _committed(
        self,
        name: str,
        change: Change[Result],
        was_made: Callable[[Transaction], Awaitable[bool]] | None,
        *,
        held: bool,
    ) -> Result | None:
        async with self._lock:  # what happened first is logged first
            if self.failure is not None or self._is_writing:
                raise self.failure or RuntimeError("the write before this one failed")
            self._is_writing = True
            told = self.log.take(held=held)
            if name == CHATTER and not told.events:
                self._is_writing = False
                return None

            is_first = True

            async def work(tx: Transaction) -> Result | None:
                nonlocal is_first
                session_id = self.execution.session_id
                session = None if session_id is None else await tx.session(session_id, lock=True)
                is_again, is_first = not is_first, False
                if is_again and was_made is not None and await was_made(tx):
                    return None
                return await change(tx, Held(session, await self._fence(tx), told))

            result = await self._store.write(work, name=name)
            self._is_writing = False
            return result

    def _was_made(self, mark: str, *, lets_go: bool) -> Callable[[Transaction], Awaitable[bool]]:
        """Says whether an earlier try of the same write was committed after all."""

        async def look(tx: Transaction) -> bool:
            row = await tx.execution(self.execution.id, lock=True)
            if row is None or row.attempt != self.execution.attempt:
                return False
            has_let_go = lets_go and row.status is not ExecutionStatus.RUNNING
            return has_let_go or row.last_snapshot_id == mark

        return look

    async def _fence(self, tx: Transaction) -> Execution:
        fenced = await tx.fence(self.execution)
        wish = fenced.execution.cancel_requested
        if wish is not None and self.cancellation is not None:
            self.cancellation.request(wish)
        if fenced.user_messages != self.heard:
            sent = await tx.steering_messages(self.execution.id)
            self.steering = [message for message in sent if message.id not in self.seen]
            self.heard = fenced.user_messages
        return fenced.execution

    def row(self, held: Held) -> Execution:
        """The row for a change of it; raises ``LostLeaseError`` if somebody has ended it."""
        if held.execution.status is not ExecutionStatus.RUNNING:
            raise LostLeaseError(self.execution.id, self.execution.attempt)
        return replace(held.execution, updated_at=self.clock.now())

    async def look_for_steering(self) -> None:
        """After a wait between two steps: somebody may have written meanwhile."""
        sent = await self.read(lambda tx: tx.steering_messages(self.execution.id))
        self.steering = [message for message in sent if message.id not in self.seen]

    async def log_now_and_then(self) -> None:
        """Log what a step tells while it runs; ends with the run."""
        while True:
            await self.log.news.wait()
            await asyncio.sleep(self.settings.flush_seconds)
            await self.commit(CHATTER, _log_only)

    # Ending

    def abandon(self, why: BaseException) -> None:
        """Stop at once and write nothing more; another worker will take over.

        It is asked again and again: a tool, or a subagent's, may swallow the cancellation."""
        if self.failure is None:
            self.failure = why
            self._stop_task()

    def _stop_task(self) -> None:
        if self.task is not None and not self.task.done():
            self.task.cancel()
            loop = asyncio.get_running_loop()
            loop.call_later(self.settings.heartbeat_seconds, self._stop_task)

    async def settled(self) -> None:
        """Wait for the writes that are under way."""
        while self._writes:
            await asyncio.wait(tuple(self._writes))
        self.log.settled()


async def _log_only(tx: Transaction, held: Held) -> None:
    if held.session is not None:
        await append(tx, held.session, held.told)
