"""What people want of a running execution: messages that steer it, and that it ends.

Written by the transactions of the attempt, which learn of both, and by the hook that hands the
messages to the run before its next step.
"""

from collections.abc import Collection, Sequence

from stepwell.continuation import Cancellation
from stepwell.sessions.claim_ports import Fenced
from stepwell.sessions.ports import Transaction
from stepwell.sessions.records import SessionMessage


class Inbox:
    """Messages to one execution that its run has not seen."""

    def __init__(self, execution_id: str, cancellation: Cancellation) -> None:
        self._execution_id = execution_id
        self._cancellation = cancellation
        self._known_count = 0
        self._seen: set[str] = set()
        self._waiting: Sequence[SessionMessage] = ()

    def begin(self, seen: Collection[str], known_count: int) -> None:
        """Start with the messages that the state has; ``known_count`` of them were sent to this
        execution."""
        self._seen, self._known_count = set(seen), known_count

    @property
    def unseen(self) -> list[SessionMessage]:
        """The messages that the run has not taken."""
        return [sent for sent in self._waiting if sent.id not in self._seen]

    def take(self) -> list[SessionMessage]:
        """Return the unseen messages; the run has them now."""
        taken = self.unseen
        self._seen.update(sent.id for sent in taken)
        self._waiting = ()
        return taken

    async def update(self, tx: Transaction, fenced: Fenced) -> None:
        """Take what a transaction found: a request to cancel, a new message."""
        if (reason := fenced.execution.cancel_requested) is not None:
            self._cancellation.request(reason)
        if fenced.user_messages != self._known_count:
            await self.fetch(tx)
            self._known_count = fenced.user_messages

    async def fetch(self, tx: Transaction) -> None:
        """Read the messages that were sent to the running execution."""
        self._waiting = await tx.steering_messages(self._execution_id)
