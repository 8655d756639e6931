"""The queue between a run and a broadcaster: order, bounds, counts, faults, event loops."""

import asyncio
import gc
import logging
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import pytest

from stepwell.broadcasting.broadcasters.recorder import RecordingBroadcaster
from stepwell.broadcasting.delivery.delivery import Delivery
from stepwell.testing import FakeClock

CHUNK, STATUS, TOOL = "agent.stream.chunk", "agent.status", "agent.tool.started"
LOGGER = "stepwell.broadcasting"
LONG = 3600.0


class AsyncRecorder:
    """Takes envelopes only while its gate is open."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.called = asyncio.Event()
        self.seqs: list[int] = []

    async def broadcast(self, channel: str, envelope: Mapping[str, Any], /) -> None:
        self.called.set()
        await self.gate.wait()
        self.seqs.append(envelope["seq"])


class Calling:
    """Does what it is told, in the loop or, for a plain function, in a thread."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function

    def broadcast(self, channel: str, envelope: Mapping[str, Any], /) -> Any:
        return self.function()


class AwaitingCall:
    def __init__(self, function: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.function = function

    async def broadcast(self, channel: str, envelope: Mapping[str, Any], /) -> None:
        await self.function()


def delivery_to(broadcaster: Any, max_queued: int = 100, clock: Any = None) -> Delivery:
    return Delivery(broadcaster, max_queued=max_queued, send_timeout=LONG, clock=clock)


def put(delivery: Delivery, *seqs: int, type: str = STATUS) -> None:
    for seq in seqs:
        delivery.put("agent.s", {"seq": seq, "type": type})


def raised(error: BaseException) -> Callable[[], Any]:
    def function() -> Any:
        raise error

    return function


def raised_in_loop(error: BaseException) -> Callable[[], Coroutine[Any, Any, None]]:
    async def function() -> None:
        await asyncio.sleep(0)
        raise error

    return function


async def test_envelopes_arrive_in_order_and_are_counted() -> None:
    broadcaster = AsyncRecorder()
    delivery = delivery_to(broadcaster)
    put(delivery, 1, 2, 3)

    assert broadcaster.seqs == []
    await delivery.flush()
    assert broadcaster.seqs == [1, 2, 3]
    assert (delivery.delivered, delivery.failed, delivery.dropped) == (3, 0, 0)
    assert delivery.last_error is None


async def test_a_sync_broadcaster_is_called_in_another_thread() -> None:
    threads: list[threading.Thread] = []
    delivery = delivery_to(Calling(lambda: threads.append(threading.current_thread())))
    put(delivery, 1)
    await delivery.flush()

    assert delivery.delivered == 1
    assert threads[0] is not threading.current_thread()
    assert threads[0].daemon


async def test_what_a_sync_broadcaster_returns_is_awaited() -> None:
    seen: list[str] = []

    async def later() -> None:
        seen.append(threading.current_thread().name)

    delivery = delivery_to(Calling(lambda: later()))
    put(delivery, 1)
    await delivery.flush()

    assert seen == [threading.current_thread().name]


async def test_without_flush_the_envelopes_are_sent_as_well() -> None:
    broadcaster = AsyncRecorder()
    delivery = delivery_to(broadcaster)
    put(delivery, 1)
    await broadcaster.called.wait()

    assert broadcaster.seqs == [1]


async def test_flush_waits_only_for_what_was_put_before_it() -> None:
    broadcaster = AsyncRecorder()
    delivery = delivery_to(broadcaster)
    put(delivery, 1)
    flushing = asyncio.create_task(delivery.flush())
    await broadcaster.called.wait()
    broadcaster.gate.clear()
    put(delivery, 2)
    await flushing

    assert delivery.delivered == 1
    broadcaster.gate.set()
    await delivery.flush()
    assert broadcaster.seqs == [1, 2]


async def test_flush_of_an_empty_queue_returns() -> None:
    delivery = delivery_to(AsyncRecorder())
    await delivery.flush()
    assert (delivery.delivered, delivery.waiting) == (0, 0)


@pytest.mark.parametrize(
    "broadcaster",
    [
        Calling(raised(ValueError("no"))),
        Calling(raised(SystemExit("no"))),
        Calling(raised(KeyboardInterrupt("no"))),
        Calling(raised(StopIteration("no"))),
        Calling(raised(asyncio.CancelledError("no"))),
        AwaitingCall(raised_in_loop(ValueError("no"))),
        AwaitingCall(raised_in_loop(SystemExit("no"))),
        AwaitingCall(raised_in_loop(BaseException("no"))),
        AwaitingCall(raised_in_loop(GeneratorExit("no"))),
    ],
)
async def test_whatever_a_broadcaster_raises_is_counted(broadcaster: Any) -> None:
    delivery = delivery_to(broadcaster)
    put(delivery, 1, 2)
    await delivery.flush()

    assert (delivery.delivered, delivery.failed, delivery.dropped) == (0, 2, 0)
    assert delivery.last_error is not None
    assert "no" in delivery.last_error


async def test_a_broadcaster_that_says_it_is_cancelled_does_not_end_the_sending() -> None:
    outcomes = [raised_in_loop(asyncio.CancelledError()), lambda: asyncio.sleep(0)]
    delivery = delivery_to(AwaitingCall(lambda: outcomes.pop(0)()))
    put(delivery, 1, 2)
    await delivery.flush()

    assert (delivery.delivered, delivery.failed) == (1, 1)
    assert delivery.last_error == "CancelledError"


async def test_a_thing_without_broadcast_is_a_failure() -> None:
    delivery = delivery_to(object())
    put(delivery, 1)
    await delivery.flush()

    assert delivery.failed == 1
    assert "AttributeError" in str(delivery.last_error)


async def test_a_long_error_is_clipped() -> None:
    delivery = delivery_to(Calling(raised(ValueError("x" * 10_000))))
    put(delivery, 1)
    await delivery.flush()

    assert len(str(delivery.last_error)) == 300


async def test_a_broadcaster_can_change_its_copy_only() -> None:
    class Vandal:
        async def broadcast(self, channel: str, envelope: Mapping[str, Any], /) -> None:
            envelope["payload"].clear()

    payload = {"content": "text"}
    delivery = delivery_to(Vandal())
    delivery.put("agent.s", {"type": CHUNK, "payload": payload})
    await delivery.flush()

    assert delivery.delivered == 1
    assert payload == {"content": "text"}


@pytest.mark.parametrize(
    ("types", "sent"),
    [
        ([CHUNK, CHUNK, CHUNK, CHUNK], [1, 2, 3]),
        ([STATUS, CHUNK, TOOL, TOOL], [0, 2, 3]),
        ([STATUS, TOOL, TOOL, CHUNK], [0, 1, 2]),
        ([STATUS, TOOL, TOOL, TOOL], [0, 2, 3]),
        ([STATUS, TOOL, STATUS, STATUS], [0, 2, 3]),
        ([STATUS, STATUS, STATUS, TOOL], [0, 1, 2]),
        ([STATUS, STATUS, STATUS, STATUS], [1, 2, 3]),
    ],
)
async def test_a_full_queue_drops_chunks_first_and_statuses_last(
    types: list[str], sent: list[int]
) -> None:
    broadcaster = AsyncRecorder()
    delivery = delivery_to(broadcaster, max_queued=3)
    for seq, type in enumerate(types):
        put(delivery, seq, type=type)
    await delivery.flush()

    assert broadcaster.seqs == sent
    assert (delivery.delivered, delivery.dropped) == (3, 1)


async def test_the_queue_is_bounded_while_a_broadcaster_is_busy() -> None:
    broadcaster = AsyncRecorder()
    delivery = delivery_to(broadcaster, max_queued=10)
    broadcaster.gate.clear()
    put(delivery, 0)
    await broadcaster.called.wait()
    put(delivery, *range(1, 1001), type=CHUNK)

    assert delivery.waiting == 10
    assert delivery.dropped == 990
    broadcaster.gate.set()
    await delivery.flush()
    assert broadcaster.seqs == [0, *range(991, 1001)]


async def test_a_burst_is_logged_when_it_begins_and_with_numbers_when_it_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outcomes = [raised_in_loop(ValueError("down"))] * 5 + [lambda: asyncio.sleep(0)]
    delivery = delivery_to(AwaitingCall(lambda: outcomes.pop(0)()), max_queued=6)
    with caplog.at_level(logging.WARNING, logger=LOGGER):
        put(delivery, *range(8))
        await delivery.flush()
        await delivery.flush()

    assert [record.getMessage() for record in caplog.records] == [
        "broadcaster AwaitingCall drops envelopes: its queue is full",
        "broadcaster AwaitingCall: 5 envelopes failed and 2 were dropped; "
        "last error: ValueError: down",
    ]


async def test_a_single_failure_is_one_record(caplog: pytest.LogCaptureFixture) -> None:
    delivery = delivery_to(Calling(raised(ValueError("down"))))
    with caplog.at_level(logging.WARNING, logger=LOGGER):
        put(delivery, 1)
        await delivery.flush()

    assert [record.getMessage() for record in caplog.records] == [
        "broadcaster Calling could not send an envelope: ValueError: down"
    ]


async def test_failures_that_follow_each_other_slowly_are_one_burst(
    caplog: pytest.LogCaptureFixture,
) -> None:
    delivery = delivery_to(AwaitingCall(raised_in_loop(ValueError("down"))))
    with caplog.at_level(logging.WARNING, logger=LOGGER):
        for seq in range(5):
            put(delivery, seq)
            for _ in range(50):
                await asyncio.sleep(0)

        assert delivery.failed == 5
        assert len(caplog.records) == 1
        await delivery.flush()

    assert "5 envelopes failed" in caplog.records[-1].getMessage()


async def test_an_async_broadcaster_that_blocks_the_event_loop_is_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = FakeClock()

    async def blocks() -> None:
        clock.advance(2.0)

    delivery = delivery_to(AwaitingCall(blocks), clock=clock)
    with caplog.at_level(logging.WARNING, logger=LOGGER):
        put(delivery, 1, 2)
        await delivery.flush()

    assert delivery.delivered == 2
    assert len(caplog.records) == 1
    assert "blocked the event loop for 2000 ms" in caplog.records[0].getMessage()


def test_without_an_event_loop_envelopes_wait_for_one() -> None:
    recorder = RecordingBroadcaster()
    delivery = delivery_to(recorder, max_queued=2)
    put(delivery, 1, 2, 3, type=CHUNK)

    assert (delivery.waiting, delivery.dropped, recorder.envelopes) == (2, 1, ())
    asyncio.run(delivery.flush())
    assert [envelope["seq"] for envelope in recorder.envelopes] == [2, 3]


def test_what_the_end_of_an_event_loop_left_is_sent_on_the_next(
    caplog: pytest.LogCaptureFixture,
) -> None:
    recorder = RecordingBroadcaster()
    delivery = delivery_to(recorder)

    async def put_and_leave() -> None:
        put(delivery, 1, 2, 3)

    async def put_and_flush() -> None:
        put(delivery, 4)
        await delivery.flush()

    with caplog.at_level(logging.WARNING, logger=LOGGER):
        asyncio.run(put_and_leave())
        assert delivery.waiting == 3
    asyncio.run(put_and_flush())

    assert "ended before 3 envelopes were sent" in caplog.text
    assert [envelope["seq"] for envelope in recorder.envelopes] == [1, 2, 3, 4]
    assert (delivery.delivered, delivery.failed, delivery.dropped) == (4, 0, 0)


def test_an_envelope_that_is_being_sent_when_the_event_loop_ends_has_failed() -> None:
    started: list[int] = []

    class Endless:
        async def broadcast(self, channel: str, envelope: Mapping[str, Any], /) -> None:
            started.append(envelope["seq"])
            if len(started) == 1:
                is_sending.set()
                await asyncio.Event().wait()

    delivery = delivery_to(Endless())
    is_sending = asyncio.Event()

    async def put_and_leave() -> None:
        put(delivery, 1, 2)
        await is_sending.wait()

    asyncio.run(put_and_leave())
    assert (delivery.failed, delivery.waiting) == (1, 1)
    asyncio.run(delivery.flush())
    assert started == [1, 2]
    assert (delivery.delivered, delivery.failed) == (1, 1)
    assert delivery.last_error == "the event loop ended while it was sending"


def test_what_is_put_while_the_event_loop_ends_starts_no_task_that_nobody_awaits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    recorder = RecordingBroadcaster()
    delivery = delivery_to(recorder)

    async def last_words() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            for seq in range(20):
                put(delivery, seq)
                await asyncio.sleep(0)

    async def main() -> None:
        put(delivery, 100)
        background.append(asyncio.create_task(last_words()))
        await asyncio.sleep(0)

    background: list[asyncio.Task[None]] = []
    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
        asyncio.run(delivery.flush())
        gc.collect()  # a task that was never awaited complains when it is collected

    assert "asyncio" not in {record.name for record in caplog.records}
    assert delivery.delivered + delivery.failed == 21


async def test_threads_may_put_while_the_event_loop_sends() -> None:
    recorder = AsyncRecorder()
    delivery = delivery_to(recorder, max_queued=10_000)

    def puts(first: int) -> None:
        put(delivery, *range(first, first + 200))

    threads = [threading.Thread(target=puts, args=(first,)) for first in (0, 1000, 2000)]
    for thread in threads:
        thread.start()
    put(delivery, -1)
    await asyncio.gather(*(asyncio.to_thread(thread.join) for thread in threads))
    await delivery.flush()

    assert sorted(recorder.seqs) == sorted(
        [-1, *range(200), *range(1000, 1200), *range(2000, 2200)]
    )
    assert [seq for seq in recorder.seqs if 0 <= seq < 1000] == list(range(200))
