"""Workers are woken when there is something to claim."""

from stepwell.sessions.ports import WORK_TOPIC
from stepwell.worker.jobs import PolledJobs


class Told:
    """As much of a transaction as waking needs."""

    def __init__(self) -> None:
        self.topics: list[str] = []

    def tell(self, topic: str) -> None:
        self.topics.append(topic)


async def test_workers_are_told_that_there_is_work() -> None:
    transaction = Told()

    await PolledJobs().enqueue(transaction, "execution-1")  # type: ignore[arg-type]

    assert transaction.topics == [WORK_TOPIC]
