"""Wakes the workers. The table of executions is the queue, so a job is only a message on the
bus."""

from stepwell.sessions.ports import WORK_TOPIC, Transaction


class PolledJobs:
    """Wakes the workers on the bus; the others poll."""

    async def enqueue(self, transaction: Transaction, execution_id: str, /) -> None:  # noqa: ARG002 - workers ask which executions can be claimed
        """Wake the workers after the commit."""
        transaction.tell(WORK_TOPIC)
