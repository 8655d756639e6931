"""Wakes the workers: the table of executions is the queue, so a job is only a word on the bus."""

from stepwell.sessions.ports import WORK_TOPIC, Transaction


class PolledJobs:
    """Wakes the workers that hear the bus; the others look now and then."""

    async def enqueue(self, transaction: Transaction, execution_id: str, /) -> None:  # noqa: ARG002 - workers ask which executions can be claimed
        """Wake the workers after the commit."""
        transaction.tell(WORK_TOPIC)
