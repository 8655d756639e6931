"""An attempt: a claimed execution while this process has it.

The runner makes one per claim and hands it to the loop, so that the ledger and the hooks of the run
reach it through the run's scope. Each of its parts has one writer, named in the part's module.
"""

from msgspec import Struct

from stepwell.clock import Clock
from stepwell.ids import IdFactory, RunIds
from stepwell.sessions.attempt.inbox import Inbox
from stepwell.sessions.attempt.journal_buffer import JournalBuffer
from stepwell.sessions.attempt.subagents import SubagentRun
from stepwell.sessions.attempt.writer import Writer
from stepwell.sessions.ledger.open_step import KnownStep, OpenStep
from stepwell.sessions.narration import Narrator
from stepwell.sessions.occurrence import Note
from stepwell.sessions.ports import Jobs
from stepwell.sessions.records import Execution
from stepwell.sessions.settings import SessionSettings
from stepwell.sessions.snapshot_chain import SnapshotChain
from stepwell.state import AgentState

FIRST = 1_000_000
"""The priority of hooks that run before all others, which then do to a replayed turn what they did
to the first one."""


class AttemptDeps(Struct, frozen=True, kw_only=True, eq=False):
    """What every attempt of a process is given."""

    jobs: Jobs
    settings: SessionSettings
    clock: Clock
    new_id: IdFactory


class Attempt(Struct, frozen=True, kw_only=True, eq=False):
    """One claim of an execution."""

    deps: AttemptDeps
    execution: Execution
    """As it was claimed."""
    ids: RunIds
    writer: Writer
    journal: JournalBuffer
    narrator: Narrator
    inbox: Inbox
    snapshots: SnapshotChain
    known_step: KnownStep
    """What an earlier attempt left of the step that comes next."""
    open_step: OpenStep

    def __repr__(self) -> str:
        """Its name in logs: nothing of what it holds."""
        return f"Attempt({self.execution.id}, {self.execution.attempt})"

    @property
    def settings(self) -> SessionSettings:
        """The settings of sessions."""
        return self.deps.settings

    @property
    def clock(self) -> Clock:
        """The clock of the process."""
        return self.deps.clock

    def note(self, *notes: Note) -> None:
        """Add messages for people, stored with the next commit."""
        for note in notes:
            self.journal.add_note(note)

    def has_heard(self, step_number: int) -> bool:
        """Whether this attempt has the model's turn of that step."""
        return self.open_step.number == step_number and self.open_step.response is not None

    async def store_intent(self) -> None:
        """Store what is known of the open step, before a call of it begins."""
        async with self.writer as store:
            intent = self.open_step.take_news(self.execution, self.clock.now())
            if intent is not None:
                attempt = self.execution.attempt
                await store.write(lambda tx: tx.save_intent(intent, attempt), name="intent")

    def for_subagent(self, *, name: str, call_id: str) -> SubagentRun:
        """Return what the run of a subagent is given; see ``scope.RunAttempt``."""
        return SubagentRun(
            self.execution,
            self.writer,
            self.journal,
            self.clock,
            parent_id=self.execution.id,
            parent_snapshot=lambda: self.snapshots.newest_id,
            name=name,
            call_id=call_id,
        )


def attempt_of(state: AgentState) -> Attempt | None:
    """The attempt whose run the step in flight belongs to; None for a subagent's step, and for runs
    of the library."""
    attempt = state.scope.attempt
    return attempt if isinstance(attempt, Attempt) else None
