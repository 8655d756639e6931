"""Which queue belongs to which database."""

import pytest

from stepwell.sessions.ports import WORK_TOPIC
from stepwell.worker.choice import jobs_for
from stepwell.worker.jobs import PolledJobs
from stepwell.worker.procrastinate_jobs import ProcrastinateJobs, conninfo, queueing_lock


class Told:
    """As much of a transaction as a queue without jobs needs."""

    def __init__(self) -> None:
        self.topics: list[str] = []

    def tell(self, topic: str) -> None:
        self.topics.append(topic)


@pytest.mark.parametrize("url", ["sqlite:///stepwell.db", "sqlite+aiosqlite:////tmp/a.db"])
def test_on_sqlite_workers_look_for_themselves(url: str) -> None:
    assert isinstance(jobs_for(url), PolledJobs)


@pytest.mark.parametrize(
    "url", ["postgresql://ada@host/db", "postgresql+psycopg://ada@host/db", "postgres://host/db"]
)
def test_on_postgresql_there_are_jobs(url: str) -> None:
    assert isinstance(jobs_for(url), ProcrastinateJobs)


async def test_workers_are_told_that_there_is_work() -> None:
    transaction = Told()

    await PolledJobs().enqueue(transaction, "execution-1")  # type: ignore[arg-type]

    assert transaction.topics == [WORK_TOPIC]


def test_the_drivers_name_is_no_part_of_what_the_driver_is_told() -> None:
    assert conninfo("postgresql+psycopg://ada@host:5433/db?x=y") == (
        "postgresql://ada@host:5433/db?x=y"
    )
    assert conninfo("postgresql://host/a+b") == "postgresql://host/a+b"


def test_jobs_of_two_executions_have_two_locks() -> None:
    assert queueing_lock("a") != queueing_lock("b")
