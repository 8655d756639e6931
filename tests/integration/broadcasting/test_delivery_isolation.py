"""Hostile transports beside real runs: the run has the same result, and the counts tell."""

import asyncio
import contextlib
import logging
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from stepwell import Agent, AgentStatus
from stepwell.broadcasting import BroadcastConfig
from stepwell.broadcasting.adapter import AgentEventEnvelopeAdapter
from stepwell.broadcasting.broadcasters.composite import CompositeBroadcaster
from stepwell.broadcasting.broadcasters.recorder import RecordingBroadcaster
from stepwell.broadcasting.delivery.delivery import Delivery
from stepwell.testing import MockTool, ScriptedModel, call

LOGGER = "stepwell.broadcasting"
SOON = 0.05
LONG = 600.0


class Raising:
    def broadcast(self, channel: str, envelope: Mapping[str, Any], /) -> None:
        raise ConnectionError("refused")


class AsyncRaising:
    async def broadcast(self, channel: str, envelope: Mapping[str, Any], /) -> None:
        raise ConnectionError("refused")


class Cancelling:
    async def broadcast(self, channel: str, envelope: Mapping[str, Any], /) -> None:
        raise asyncio.CancelledError("refused")


class Exiting:
    async def broadcast(self, channel: str, envelope: Mapping[str, Any], /) -> None:
        raise SystemExit("refused")


class ThreadKilling:
    def broadcast(self, channel: str, envelope: Mapping[str, Any], /) -> None:
        raise SystemExit("refused")  # what sys.exit() and _thread.exit() do


class LoopClosing:
    async def broadcast(self, channel: str, envelope: Mapping[str, Any], /) -> None:
        asyncio.get_running_loop().close()


class Blocking:
    """Hangs in a thread until the test lets it go, and counts who is in it at once."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.entered = threading.Event()
        self.returning = threading.Condition()
        self.seqs: list[int] = []
        self.inside = 0
        self.most_inside = 0

    def broadcast(self, channel: str, envelope: Mapping[str, Any], /) -> None:
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        self.entered.set()
        self.released.wait(LONG)
        with self.returning:
            self.seqs.append(envelope["seq"])
            self.inside -= 1
            self.returning.notify_all()

    async def has_returned(self, times: int) -> None:
        def wait() -> bool:
            with self.returning:
                return self.returning.wait_for(lambda: len(self.seqs) >= times, LONG)

        assert await asyncio.to_thread(wait)


class NeverReturning:
    def __init__(self) -> None:
        self.entered = threading.Event()

    async def broadcast(self, channel: str, envelope: Mapping[str, Any], /) -> None:
        self.entered.set()
        await asyncio.Event().wait()


class Undying:
    """Does not even end when it is cancelled."""

    def __init__(self) -> None:
        self.entered = threading.Event()

    async def broadcast(self, channel: str, envelope: Mapping[str, Any], /) -> None:
        self.entered.set()
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()


@pytest.fixture
def blocking() -> Iterator[Blocking]:
    transport = Blocking()
    yield transport
    transport.released.set()


def agent_with(adapter: AgentEventEnvelopeAdapter) -> Agent:
    turns = [call("add", id="c1"), call("add", id="c2"), "Three."]
    agent = Agent(ScriptedModel(turns), tools=[MockTool.returning("add", 3)])
    agent.wiretap(adapter.wiretap())
    return agent


def adapter_for(transport: Any, **config: Any) -> AgentEventEnvelopeAdapter:
    return AgentEventEnvelopeAdapter(transport, "s", "run-1", BroadcastConfig(**config))


def envelope(seq: int) -> dict[str, Any]:
    return {"type": "agent.status", "seq": seq}


@pytest.mark.parametrize(
    "transport",
    [Raising(), AsyncRaising(), Cancelling(), Exiting(), ThreadKilling(), LoopClosing()],
)
async def test_a_transport_that_fails_leaves_the_run_as_it_is(
    transport: Any, caplog: pytest.LogCaptureFixture
) -> None:
    good, alone = RecordingBroadcaster(), RecordingBroadcaster()
    adapter = adapter_for(CompositeBroadcaster(transport, good))
    with caplog.at_level(logging.WARNING, logger=LOGGER):
        state = await agent_with(adapter).run("Go")
        await adapter.flush()
    undisturbed = adapter_for(alone)
    await agent_with(undisturbed).run("Go")
    await undisturbed.flush()

    assert state.status is AgentStatus.COMPLETED
    assert state.final_response == "Three."
    assert [e["type"] for e in good.envelopes] == [e["type"] for e in alone.envelopes]
    sent = len(alone.envelopes)
    assert (adapter.delivered, adapter.failed, adapter.dropped) == (sent, sent, 0)
    name = type(transport).__name__
    texts = [record.getMessage() for record in caplog.records if record.name == LOGGER]
    assert texts[0].startswith(f"broadcaster {name} could not send an envelope: ")
    # A burst of failures is over when the queue is empty: at most before the tool and at the end.
    assert sum(name in text for text in texts) <= 4, texts
    ends = [re.search(r"(\d+) envelopes failed and 0 were dropped", text) for text in texts]
    assert sum(int(end[1]) for end in ends if end) == sent


async def test_a_run_does_not_wait_for_a_transport_that_blocks(blocking: Blocking) -> None:
    good = RecordingBroadcaster()
    adapter = adapter_for(CompositeBroadcaster(blocking, good), send_timeout=LONG)
    state = await agent_with(adapter).run("Go")

    # Nobody has released the transport, and the run is over.
    assert not blocking.released.is_set()
    assert state.final_response == "Three."
    await adapter.deliveries[1].flush()
    assert good.of_type("agent.status")[-1]["payload"]["status"] == "completed"
    assert adapter.failed == 0
    blocking.released.set()
    await adapter.flush()
    assert blocking.seqs == [e["seq"] for e in good.envelopes]
    assert blocking.most_inside == 1


async def test_a_call_that_hangs_is_abandoned_and_no_second_one_starts(
    blocking: Blocking, caplog: pytest.LogCaptureFixture
) -> None:
    delivery = Delivery(blocking, max_queued=3, send_timeout=SOON)
    with caplog.at_level(logging.WARNING, logger=LOGGER):
        delivery.put("agent.s", envelope(1))
        await delivery.flush()
        assert (delivery.delivered, delivery.failed, delivery.dropped) == (0, 1, 0)
        for seq in range(2, 8):
            delivery.put("agent.s", envelope(seq))
        assert (delivery.waiting, delivery.dropped) == (3, 3)
    assert "did not return within 0.05 seconds" in caplog.text

    blocking.released.set()
    await blocking.has_returned(times=4)
    await delivery.flush()
    assert blocking.most_inside == 1
    assert blocking.seqs == [1, 5, 6, 7]
    # On a busy machine one of the later three may take too long as well.
    assert (delivery.delivered + delivery.failed, delivery.dropped) == (4, 3)


async def test_flush_does_not_wait_for_a_transport_that_hangs_and_drops_nothing(
    blocking: Blocking,
) -> None:
    delivery = Delivery(blocking, max_queued=100, send_timeout=SOON)
    for seq in range(10):
        delivery.put("agent.s", envelope(seq))
    await delivery.flush()
    assert (delivery.failed, delivery.dropped, delivery.waiting) == (1, 0, 9)
    delivery.put("agent.s", envelope(10))
    await delivery.flush()
    assert (delivery.failed, delivery.dropped, delivery.waiting) == (1, 0, 10)

    blocking.released.set()
    await blocking.has_returned(times=11)
    await delivery.flush()
    assert blocking.seqs == list(range(11))
    assert blocking.most_inside == 1
    # On a busy machine one of the later ones may take too long as well.
    assert (delivery.delivered + delivery.failed, delivery.dropped) == (11, 0)


async def test_a_transport_that_was_late_once_is_still_sent_the_end(blocking: Blocking) -> None:
    adapter = adapter_for(blocking, send_timeout=SOON)
    await agent_with(adapter).run("Go")
    await adapter.flush()
    left = adapter.waiting
    assert left > 5
    assert adapter.dropped == 0

    blocking.released.set()
    await blocking.has_returned(times=left + 1)

    assert blocking.seqs == list(range(1, adapter.next_seq))
    assert adapter.last_error is not None
    assert "did not return within 0.05 seconds" in adapter.last_error


async def test_an_async_call_that_never_returns_is_cancelled_and_the_next_one_tried() -> None:
    delivery = Delivery(NeverReturning(), max_queued=100, send_timeout=SOON)
    for seq in range(3):
        delivery.put("agent.s", envelope(seq))
    await delivery.flush()

    assert (delivery.delivered, delivery.failed, delivery.dropped) == (0, 3, 0)


@pytest.mark.parametrize("transport", [NeverReturning, Undying, Blocking])
def test_run_sync_returns_whatever_the_transport_does(transport: type[Any]) -> None:
    adapter = adapter_for(transport(), send_timeout=SOON)
    agent = agent_with(adapter)

    assert agent.run_sync("Go").final_response == "Three."
    assert adapter.delivered == 0
    assert adapter.failed >= 1


@pytest.mark.parametrize("transport", [NeverReturning, Undying, Blocking])
def test_an_event_loop_can_end_while_a_transport_hangs(transport: type[Any]) -> None:
    hanging = transport()
    delivery = Delivery(hanging, max_queued=100, send_timeout=LONG)

    async def put_and_leave() -> None:
        delivery.put("agent.s", envelope(1))
        delivery.put("agent.s", envelope(2))
        assert await asyncio.to_thread(hanging.entered.wait, LONG)

    asyncio.run(put_and_leave())

    assert (delivery.delivered, delivery.failed, delivery.waiting) == (0, 1, 1)


def test_a_thread_that_hangs_is_waited_for_on_the_next_event_loop(blocking: Blocking) -> None:
    delivery = Delivery(blocking, max_queued=100, send_timeout=LONG)

    async def put_and_leave() -> None:
        delivery.put("agent.s", envelope(1))
        delivery.put("agent.s", envelope(2))
        assert await asyncio.to_thread(blocking.entered.wait, LONG)

    async def release_and_flush() -> None:
        delivery.put("agent.s", envelope(3))
        await asyncio.sleep(SOON)
        assert blocking.most_inside == 1
        blocking.released.set()
        await blocking.has_returned(times=3)
        await delivery.flush()

    asyncio.run(put_and_leave())
    asyncio.run(asyncio.wait_for(release_and_flush(), LONG))

    assert blocking.seqs == [1, 2, 3]
    assert (delivery.delivered, delivery.failed) == (2, 1)


@pytest.mark.parametrize(("limit", "is_late"), [(LONG, False), (SOON, True)])
def test_flush_on_the_next_event_loop_gives_a_busy_thread_its_time(
    blocking: Blocking, limit: float, is_late: bool
) -> None:
    delivery = Delivery(blocking, max_queued=100, send_timeout=limit)

    async def put_and_leave() -> None:
        delivery.put("agent.s", envelope(1))
        await asyncio.to_thread(blocking.entered.wait, LONG)

    async def flush() -> None:
        delivery.put("agent.s", envelope(2))
        flushing = asyncio.create_task(delivery.flush())
        if is_late:
            await flushing
            assert delivery.waiting == 1
        await asyncio.sleep(0)
        blocking.released.set()
        await flushing
        await blocking.has_returned(times=2)
        await delivery.flush()

    asyncio.run(put_and_leave())
    asyncio.run(flush())

    assert blocking.seqs == [1, 2]
    assert delivery.dropped == 0
    assert delivery.delivered + delivery.failed == 2


def test_a_thread_that_returns_after_the_event_loops_disturbs_nobody(
    blocking: Blocking, caplog: pytest.LogCaptureFixture
) -> None:
    delivery = Delivery(blocking, max_queued=100, send_timeout=LONG)

    async def put_and_leave() -> None:
        delivery.put("agent.s", envelope(1))
        await asyncio.to_thread(blocking.entered.wait, LONG)
        await asyncio.sleep(SOON)  # on the second event loop: to begin waiting for the thread

    asyncio.run(put_and_leave())
    asyncio.run(put_and_leave())
    blocking.released.set()
    asyncio.run(blocking.has_returned(times=1))
    asyncio.run(delivery.flush())

    assert blocking.seqs == [1, 1]
    assert {record.name for record in caplog.records} == {LOGGER}


def test_two_runs_of_run_sync_send_all_their_envelopes() -> None:
    recorder = RecordingBroadcaster()
    adapter = adapter_for(recorder)
    turns = [call("add", id="c1"), "Three."] * 2
    agent = Agent(ScriptedModel(turns), tools=[MockTool.returning("add", 3)])
    agent.wiretap(adapter.wiretap())
    agent.run_sync("Go")
    first = len(recorder.envelopes)
    adapter.reset("run-2")
    agent.run_sync("Again")

    statuses = [e["payload"]["status"] for e in recorder.of_type("agent.status")]
    assert statuses == ["processing", "completed", "processing", "completed"]
    assert len(recorder.envelopes) == 2 * first == adapter.delivered
    assert (adapter.failed, adapter.dropped) == (0, 0)


HANGS_AT_EXIT = """
import threading
from stepwell import Agent
from stepwell.broadcasting import BroadcastConfig
from stepwell.broadcasting.adapter import AgentEventEnvelopeAdapter
from stepwell.testing import ScriptedModel

class Hanging:
    def broadcast(self, channel, envelope):
        threading.Event().wait()

agent = Agent(ScriptedModel(["Four."]))
adapter = AgentEventEnvelopeAdapter(Hanging(), "s", "r", BroadcastConfig(send_timeout=0.1))
agent.wiretap(adapter.wiretap())
print(agent.run_sync("What is 2 + 2?").final_response)
"""


def test_a_program_ends_while_a_transport_hangs() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", HANGS_AT_EXIT],
        capture_output=True,
        check=False,
        text=True,
        timeout=300,
    )

    assert (ended.returncode, ended.stdout) == (0, "Four.\n"), ended.stderr
