"""Running and reading a large execution holds the event loop for 50 ms at most."""

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest

from stepwell.agent import Agent
from stepwell.journal.status import ExecutionStatus
from stepwell.models import ModelRequest
from stepwell.sessions.settings import SessionSettings
from stepwell.testing import ScriptedModel, call
from stepwell.testing.scripted_model import Scripted
from stepwell.tools import tool
from tests.integration.server.loop_blocks import machine_factor, measure_callbacks
from tests.integration.server.serving import Served, serving

LONGEST_SECONDS = 0.05
LARGE = 50_000_000
STEPS = 1_500


@tool
def report(size: int) -> str:
    """Give a long report."""
    return "x" * size


def turn_for(request: ModelRequest) -> Scripted:
    """To a number so many calls, to ``large`` one with a large result."""
    asked = next(it for it in reversed(request.messages) if it.is_user()).text
    done = (len(request.messages) - 1) // 2
    if asked == "large" and not done:
        return call("report", id="call_large", size=LARGE)
    if asked.isdigit() and done < int(asked):
        return call("report", id=f"call_{done}", size=300 + done % 7)
    return "Done."


def agents() -> dict[str, Agent]:
    limits: dict[str, Any] = {"max_steps": None, "max_tokens": None, "timeout": None}
    model = ScriptedModel(turn_for)
    large = {"max_result_characters": 10**8, "repeated_calls": None}
    return {"helper": Agent(model, tools=[report], **large, **limits)}


@pytest.fixture
def frozen() -> Iterator[None]:
    """As `stepwell serve` does it: what was loaded before is not searched for garbage."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
async def served(folder: Path, frozen: None) -> AsyncIterator[Served]:
    patient = SessionSettings(lease_seconds=3600.0)
    async with serving(folder, made_agents=agents, sessions=patient) as served:
        yield served


async def test_pages_of_a_long_trace_do_not_hold_the_loop(
    served: Served, ada: httpx2.AsyncClient
) -> None:
    sent = (await ada.post("/agent/messages", json={"content": str(STEPS)})).json()
    await served.work_off()
    url = f"/agent/executions/{sent['execution']['id']}"
    for path in (f"{url}/trace?limit=200", f"{url}/steps?limit=200", f"{url}/snapshots?limit=200"):
        found: list[float] = []
        for _ in range(3):
            with measure_callbacks() as longest:
                assert (await ada.get(path)).status_code == 200
            found.append(longest.seconds)
        assert min(found) < LONGEST_SECONDS * machine_factor(), path


async def test_storing_a_large_result_does_not_hold_the_loop(
    served: Served, ada: httpx2.AsyncClient
) -> None:
    sent = (await ada.post("/agent/messages", json={"content": "large"})).json()
    with measure_callbacks() as longest:
        await served.work_off()
    row = await served.store.read(lambda tx: tx.execution(sent["execution"]["id"]))
    assert row is not None
    assert (row.status, row.attempt) == (ExecutionStatus.COMPLETED, 1)
    assert longest.seconds < LONGEST_SECONDS * machine_factor(), longest.name


async def test_storing_a_large_result_costs_no_lease(folder: Path) -> None:
    """The heartbeat goes on in its thread, and nobody else may claim the execution."""
    settings = SessionSettings(lease_seconds=12.0, heartbeat_seconds=0.02)
    async with serving(folder, made_agents=agents, sessions=settings) as served:
        async with served.client() as ada:
            sent = (await ada.post("/agent/messages", json={"content": "large"})).json()
        id, leases = sent["execution"]["id"], set[datetime]()
        working = asyncio.create_task(served.work.take(id))
        while not working.done():
            worker = await served.store.read(lambda tx: tx.worker(served.work.worker_id))
            if worker is not None:
                leases.add(worker.lease_until)
                assert worker.lease_until > served.services.clock.now()
            await asyncio.sleep(0.02)
        assert await working
        row = await served.store.read(lambda tx: tx.execution(id))
        assert row is not None
        assert (row.status, row.attempt) == (ExecutionStatus.COMPLETED, 1)
        assert len(leases) > 2
