"""The conformance suite that every bus passes: subclass with two fixtures and run pytest.

``bus`` gives a fresh bus, ``other_bus`` the same one as another process has it; for a bus of one
process that is ``bus`` itself. A bus that goes through a server takes ``RemoteBusConformance``,
with a fixture ``outage``: a function that gives a block without that server.

    class TestMyBus(RemoteBusConformance):
        @pytest.fixture
        async def bus(self): ...

        @pytest.fixture
        async def other_bus(self): ...

        @pytest.fixture
        def outage(self): ...
"""

import asyncio
import tracemalloc
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from stepwell.sessions.bus import Bus, BusSubscription, Delta

Outage = Callable[[], AbstractAsyncContextManager[None]]

_LONG = 60
"""Seconds after which something that must happen counts as not happening."""
_SILENCE = 0.3
"""Seconds in which something that must not happen would have happened."""
_MEGABYTE = 1024 * 1024


def a_delta(text: str, offset: int = 0, **fields: object) -> Delta:
    """A delta of session "s", step 1 of execution "x"."""
    values = {"session_id": "s", "execution_id": "x", "attempt": 1, "step_number": 1}
    values |= {"chunk_index": offset, "offset": offset, "text": text, **fields}
    return Delta(**values)  # type: ignore[arg-type]


class HeardTopics:
    """The deltas that a bus delivered."""

    def __init__(self) -> None:
        self.deltas: list[Delta] = []
        self._more = asyncio.Event()

    def __call__(self, deltas: Sequence[Delta]) -> None:
        self.deltas += deltas
        self._more.set()

    @property
    def text(self) -> str:
        """All of it, in the order of arrival."""
        return "".join(delta.text for delta in self.deltas)

    async def until(self, condition: Callable[["HeardTopics"], bool]) -> None:
        """Wait until what was heard is so."""
        async with asyncio.timeout(_LONG):
            while not condition(self):
                self._more.clear()
                await self._more.wait()


@asynccontextmanager
async def quiet(bus: Bus, topic: str) -> AsyncGenerator[BusSubscription]:
    """A subscription that has heard all that came before."""
    async with bus.subscribe(topic) as news:
        while await news.wait(_SILENCE):
            pass
        yield news


class BusConformance:
    """What every bus does."""

    async def test_a_topic_wakes_its_subscribers_only(self, bus: Bus, other_bus: Bus) -> None:
        async with quiet(bus, "one") as one, quiet(bus, "one") as again, quiet(bus, "two") as two:
            other_bus.publish("one")
            assert await one.wait(_LONG)
            assert await again.wait(_LONG)
            assert not await two.wait(_SILENCE)

    async def test_news_of_one_topic_is_merged_and_kept_until_somebody_looks(
        self, bus: Bus, other_bus: Bus
    ) -> None:
        async with quiet(bus, "last") as last, quiet(bus, "busy") as busy:
            for _ in range(1000):
                other_bus.publish("busy")
            other_bus.publish("last")
            assert await last.wait(_LONG)
            assert await busy.wait(0)
            assert not await busy.wait(_SILENCE)

    async def test_a_subscription_can_be_woken_past_the_bus(self, bus: Bus) -> None:
        async with quiet(bus, "one") as one, quiet(bus, "one") as other:
            one.wake()
            assert await one.wait(_LONG)
            assert not await other.wait(0)

    async def test_waiting_without_a_limit_ends_with_news(self, bus: Bus, other_bus: Bus) -> None:
        async with quiet(bus, "one") as one:
            waiting = asyncio.create_task(one.wait(None))
            await asyncio.sleep(0)
            other_bus.publish("one")
            assert await asyncio.wait_for(waiting, _LONG)

    async def test_deltas_come_in_order_to_whoever_listens_to_their_session(
        self, bus: Bus, other_bus: Bus
    ) -> None:
        mine, twin, foreign = HeardTopics(), HeardTopics(), HeardTopics()
        async with quiet(bus, "ready"):
            with (
                bus.listen("s", mine),
                bus.listen("s", twin),
                bus.listen("t", foreign),
            ):
                for start in range(0, 200, 2):
                    other_bus.publish_deltas(
                        [a_delta("a", start), a_delta("b", start + 1, session_id="nobody's")]
                    )
                    if start % 20 == 0:
                        await asyncio.sleep(0)
                other_bus.publish_deltas([a_delta("", 200, is_complete=True)])
                for heard in (mine, twin):
                    await heard.until(lambda it: it.deltas[-1:] != [] and it.deltas[-1].is_complete)
                    assert [d.offset for d in heard.deltas] == [*range(0, 200, 2), 200]
                assert foreign.deltas == []

    async def test_a_delta_arrives_as_it_was_sent(self, bus: Bus, other_bus: Bus) -> None:
        heard = HeardTopics()
        sent = a_delta('Grüße \U0001f600\n\x00"\\', 7, attempt=3, step_number=2, chunk_index=5)
        async with quiet(bus, "ready"):
            with bus.listen("s", heard):
                other_bus.publish_deltas([sent])
                await heard.until(lambda it: len(it.deltas) == 1)
        assert heard.deltas == [sent]

    async def test_long_text_arrives_whole(self, bus: Bus, other_bus: Bus) -> None:
        """In pieces, maybe, but without gap or double, and complete only at its end."""
        text = "x" * 9_000 + "é" * 9_000 + "\U0001f600" * 9_000 + "\x00" * 9_000
        heard = HeardTopics()
        async with quiet(bus, "ready"):
            with bus.listen("s", heard):
                other_bus.publish_deltas([a_delta(text, 5, is_complete=True), a_delta("y", 1)])
                await heard.until(lambda it: len(it.text) >= len(text) + 1)
        *pieces, last = heard.deltas
        assert "".join(piece.text for piece in pieces) == text
        assert [p.offset for p in pieces[1:]] == [p.end for p in pieces[:-1]]
        assert [p.is_complete for p in pieces] == [False] * (len(pieces) - 1) + [True]
        assert last == a_delta("y", 1)

    async def test_after_its_block_nobody_hears_anything(self, bus: Bus, other_bus: Bus) -> None:
        gone, stays = HeardTopics(), HeardTopics()
        async with quiet(bus, "ready"):
            with bus.listen("s", stays):
                with bus.listen("s", gone):
                    pass
                other_bus.publish_deltas([a_delta("a")])
                await stays.until(lambda it: it.text == "a")
        assert gone.deltas == []

    async def test_publishing_returns_at_once_however_much_there_is(
        self, bus: Bus, other_bus: Bus
    ) -> None:
        """Also more topics than are kept one by one: then everybody is woken."""
        async with quiet(bus, "topic 7") as early, quiet(bus, "topic 49999") as late:
            for number in range(50_000):
                other_bus.publish(f"topic {number}")
            other_bus.publish_deltas([a_delta("x" * 1000, n * 1000) for n in range(1000)])
            assert await early.wait(_LONG)
            assert await late.wait(_LONG)

    async def test_closing_delivers_what_was_published(self, bus: Bus, other_bus: Bus) -> None:
        heard = HeardTopics()
        async with quiet(bus, "one") as one:
            with bus.listen("s", heard):
                other_bus.publish("one")
                other_bus.publish_deltas([a_delta("last words", is_complete=True)])
                await other_bus.close()
                assert await one.wait(_LONG)
                await heard.until(lambda it: it.text == "last words")


class RemoteBusConformance(BusConformance):
    """What a bus does beyond that if it goes through a server."""

    async def test_it_reaches_other_processes(self, bus: Bus) -> None:
        assert bus.reaches_all

    async def test_everybody_is_woken_after_a_lost_connection(
        self, bus: Bus, other_bus: Bus, outage: Outage
    ) -> None:
        """Nobody published anything: it can't be known."""
        async with quiet(bus, "one") as one, quiet(other_bus, "two") as two:
            async with outage():
                pass
            assert await one.wait(_LONG)
            assert await two.wait(_LONG)

    async def test_what_is_published_without_a_server_arrives_when_it_is_back(
        self, bus: Bus, other_bus: Bus, outage: Outage
    ) -> None:
        async with quiet(bus, "one") as one:
            async with outage():
                other_bus.publish("one")
            assert await one.wait(_LONG)
            heard = HeardTopics()
            with bus.listen("s", heard):
                await _publish_until_heard(other_bus, heard)

    async def test_the_server_may_go_and_come_under_load(
        self, bus: Bus, other_bus: Bus, outage: Outage
    ) -> None:
        """Text may be missing then, and never comes in a wrong order; news is never missing."""
        heard, offset, is_over = HeardTopics(), 0, False

        async def publish() -> None:
            nonlocal offset
            while not is_over:
                other_bus.publish_deltas([a_delta("text ", offset)])
                other_bus.publish(f"topic {offset % 7}")
                offset += 5
                await asyncio.sleep(0.001)

        async with quiet(bus, "last") as last, quiet(bus, "topic 0") as topic:
            with bus.listen("s", heard):
                publishing = asyncio.create_task(publish())
                for _ in range(3):
                    async with outage():
                        await asyncio.sleep(0.05)
                    before = len(heard.deltas)
                    await heard.until(lambda it, before=before: len(it.deltas) > before)
                    assert await topic.wait(_LONG)
                is_over = True
                await publishing
                while await last.wait(_SILENCE):
                    pass
                other_bus.publish("last")
                assert await last.wait(_LONG)
        offsets = [delta.offset for delta in heard.deltas]
        assert offsets == sorted(offsets)

    async def test_without_a_server_it_keeps_little(self, bus: Bus, outage: Outage) -> None:
        async with quiet(bus, "one"):
            async with outage():
                tracemalloc.start()
                for number in range(20_000):
                    bus.publish(f"topic {number}")
                    bus.publish_deltas([a_delta(f"{number:06}" * 300, number * 1800)])
                    if number % 1000 == 0:
                        await asyncio.sleep(0)
                kept, _ = tracemalloc.get_traced_memory()
                tracemalloc.stop()
            assert kept < 8 * _MEGABYTE


async def _publish_until_heard(bus: Bus, heard: HeardTopics) -> None:
    """Text that is published while a connection is made again may be lost."""
    async with asyncio.timeout(_LONG):
        while not heard.deltas:
            bus.publish_deltas([a_delta("a")])
            await asyncio.sleep(0.05)
