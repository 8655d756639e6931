"""Text that is being generated reaches every follower whole, once and in order, whatever the bus
loses or repeats, wherever a follower joins, and over a takeover."""

import asyncio
import random

import msgspec
import pytest

from stepwell.journal.status import ExecutionStatus
from stepwell.server.live.cursor import Cursor
from stepwell.server.live.feeds import Feeds
from stepwell.server.live.session_feed import Reset
from stepwell.server.settings import ServerSettings
from stepwell.sessions.bus import Delta, OpenText
from stepwell.sessions.errors import RefusedError
from stepwell.sessions.ports import session_topic
from stepwell.sessions.records import StoredEntry
from stepwell.testing.clock import DEFAULT_START, FakeClock
from stepwell.testing.stores_rows import an_execution
from tests.message_list import empty_list, messages, received
from tests.unit.server.live.logs import LogInMemory
from tests.virtual_time import virtual_time

pytestmark = virtual_time

RUNNING = an_execution(status=ExecutionStatus.RUNNING)


class Run:
    """A worker that generates text in step after step."""

    def __init__(self, log: LogInMemory) -> None:
        self.log = log
        self.attempt = 1
        self.response = 0
        self.text = ""
        self.step = 0
        self.is_heard = True
        """Whether the bus works."""
        log.executions = [RUNNING]

    def entry(self, type: str, **payload: object) -> None:
        log = self.log
        log.newest += 1
        whose = {"agent_id": "a", "agent_name": None, "parent_execution_id": None}
        log.events.append(
            StoredEntry(
                tenant_id="t",
                session_id="s1",
                seq=log.newest,
                type=type,
                payload={**whose, "step_number": self.step, **payload},
                created_at=DEFAULT_START,
                execution_id="x",
            )
        )
        if self.is_heard:
            log.bus.publish(session_topic("s1"))

    def start_step(self, number: int) -> None:
        self.step, self.text, self.response = number, "", 0
        self.entry("agent.step.started", attempt=self.attempt)

    def delta(self, text: str, *, is_lost: bool = False) -> Delta:
        made = Delta(
            "s1", "x", self.attempt, self.step, 0, len(self.text), text, False, self.response
        )
        self.text += text
        if not is_lost:
            self.log.bus.publish_deltas([made])
        return made

    def store(self) -> None:
        self.log.stored_texts = [
            OpenText(
                session_id="s1",
                execution_id="x",
                attempt=self.attempt,
                step_number=self.step,
                response_index=self.response,
                text=self.text,
                updated_at=DEFAULT_START,
            )
        ]

    def complete(self) -> None:
        self.entry(
            "agent.stream.chunk",
            content=self.text,
            is_complete=True,
            chunk_index=0,
            attempt=self.attempt,
        )
        self.text, self.response = "", self.response + 1

    def end_step(self) -> None:
        self.entry("agent.step.completed")


class Follower:
    """A client: it keeps what it was sent, and comes again behind the last id."""

    def __init__(self, feeds: Feeds) -> None:
        self.feeds = feeds
        self.last = "0"
        self.list = empty_list()
        self.chunks: list[tuple[int, str]] = []

    async def follow(self, count: int = 1000, seconds: float = 0) -> None:
        async with await self.feeds.subscribe("s1", Cursor.parse(self.last)) as subscription:
            for _ in range(count):
                batch = await subscription.take(seconds)
                if not batch:
                    return
                for one in batch:
                    assert not isinstance(one, Reset)
                    self.last = one.cursor
                    envelope = msgspec.json.decode(one.envelope)
                    self.list = received(self.list, envelope)
                    if one.event.type == "agent.stream.chunk":
                        payload = envelope["payload"]
                        self.chunks.append((payload["chunk_index"], payload["content"]))

    @property
    def shown(self) -> str:
        return "".join(m["content"] for m in messages(self.list) if m["role"] == "assistant")

    @property
    def appended(self) -> str:
        return "".join(content for _, content in self.chunks)


@pytest.fixture
def log() -> LogInMemory:
    return LogInMemory()


@pytest.fixture
async def feeds(log: LogInMemory):
    made = Feeds(log.as_store, FakeClock(), ServerSettings())
    yield made
    await made.close()


async def test_who_knows_more_than_the_feed_is_not_sent_the_text_of_an_older_step(
    log: LogInMemory, feeds: Feeds
) -> None:
    """A client comes from another server, while the bus does not reach this one."""
    run, other, client = Run(log), Follower(feeds), Follower(feeds)
    run.start_step(1)
    async with await feeds.subscribe("s1", 0):
        run.delta("A first text. ")
        await other.follow()
        assert other.appended == "A first text. "
        run.is_heard = False
        run.complete()
        run.end_step()
        run.start_step(2)
        client.last = str(log.newest)
        await client.follow()
        assert client.chunks == []
        run.is_heard = True
        run.delta("Second.")
        await client.follow()
        run.complete()
        await client.follow()
    assert client.appended == "Second."


async def test_text_comes_as_it_is_generated_and_once(log: LogInMemory, feeds: Feeds) -> None:
    run, client = Run(log), Follower(feeds)
    async with await feeds.subscribe("s1", None):  # so that the feed stays
        run.start_step(1)
        await client.follow(seconds=0.2)
        run.delta("Hel")
        await client.follow()
        run.delta("lo")
        await client.follow()
        assert (client.shown, client.appended, client.last) == ("Hello", "Hello", "1.1.5.2")
        run.delta(" there")
        run.complete()
        run.end_step()
        await client.follow(seconds=0.2)
    assert client.shown == client.appended == "Hello there"
    assert [index for index, _ in client.chunks] == list(range(len(client.chunks)))
    assert client.last == "3"


async def test_who_joins_in_the_middle_gets_the_text_so_far_first(
    log: LogInMemory, feeds: Feeds
) -> None:
    run = Run(log)
    run.start_step(1)
    run.text = "Nobody followed when this was said. "
    run.store()
    early, late = Follower(feeds), Follower(feeds)
    async with await feeds.subscribe("s1", None) as stays:
        assert await stays.take(5)
        run.delta("And ")
        await early.follow()
        await late.follow()
        run.delta("this is new.")
        await late.follow()
    assert early.chunks == [(0, "Nobody followed when this was said. And ")]
    assert late.chunks == [(0, early.appended), (1, "this is new.")]


async def test_what_the_bus_lost_is_filled_from_the_stored_text_or_the_log(
    log: LogInMemory, feeds: Feeds
) -> None:
    run, client = Run(log), Follower(feeds)
    async with await feeds.subscribe("s1", None) as stays:
        run.start_step(1)
        assert await stays.take(5)
        run.delta("one ")
        run.delta("two ", is_lost=True)
        run.store()
        run.delta("three ")
        async with asyncio.timeout(60):
            while client.shown != "one two three ":
                await client.follow(seconds=0.1)
        run.delta("four ", is_lost=True)
        run.delta("five")
        await client.follow()
        assert client.shown == "one two three "
        run.complete()
        await client.follow(seconds=0.2)
    assert client.appended == "one two three four five"


async def test_a_delta_counts_only_while_its_step_is_open(log: LogInMemory, feeds: Feeds) -> None:
    run, client = Run(log), Follower(feeds)
    async with await feeds.subscribe("s1", None) as stays:
        run.start_step(1)
        assert await stays.take(5)
        late = run.delta("first")
        run.complete()
        run.end_step()
        assert await stays.take(5)
        run.step, run.response = 2, 0
        run.delta("early ")  # before the log says that its step began
        await client.follow(seconds=0.2)
        assert client.appended == "first"
        run.entry("agent.step.started", attempt=1)
        await client.follow(seconds=0.2)
        log.bus.publish_deltas([late])
        run.delta("second")
        await client.follow()
    assert client.appended == "firstearly second"


async def test_a_takeover_starts_the_step_over(log: LogInMemory, feeds: Feeds) -> None:
    run, client, steady = Run(log), Follower(feeds), Follower(feeds)
    async with await feeds.subscribe("s1", None) as stays:
        run.start_step(1)
        assert await stays.take(5)
        run.delta("Said by one who ")
        zombie = Delta("s1", "x", 1, 1, 0, 16, "died", False, 0)
        await client.follow()
        run.attempt = 2
        run.start_step(1)
        await steady.follow(seconds=0.2)
        log.bus.publish_deltas([zombie])
        run.delta("Said ")
        run.delta("again")
        await client.follow(seconds=0.2)
        assert (client.shown, client.appended) == ("Said again", "Said by one who Said again")
        run.complete()
        run.end_step()
        await client.follow(seconds=0.2)
        await steady.follow(seconds=0.2)
    assert client.shown == steady.shown == "Said again"


async def test_a_response_that_broke_off_is_followed_by_the_next(
    log: LogInMemory, feeds: Feeds
) -> None:
    run, client = Run(log), Follower(feeds)
    async with await feeds.subscribe("s1", None) as stays:
        run.start_step(1)
        assert await stays.take(5)
        run.delta("broken")
        await client.follow()
        first = run.text
        run.response, run.text = 1, ""
        run.delta("wh")  # before the log has the first
        await client.follow()
        assert client.appended == first
        run.response, run.text = 0, first
        run.complete()
        run.text = "wh"
        run.delta("ole")
        await client.follow(seconds=0.2)
        assert client.shown == "whole"
        run.complete()
        await client.follow(seconds=0.2)
    assert client.chunks == [(0, "broken"), (1, ""), (0, "whole"), (1, "")]


@pytest.mark.parametrize("seed", range(40))
async def test_the_text_is_whole_whatever_happens(log: LogInMemory, seed: int) -> None:
    chance = random.Random(seed)
    servers = [Feeds(log.as_store, FakeClock(), ServerSettings()) for _ in range(2)]
    run, clients = Run(log), [Follower(servers[0]) for _ in range(3)]
    said = ""
    for step in (1, 2):
        run.start_step(step)
        for _ in range(12):
            sent = run.delta(f"{chance.randint(0, 999)} ", is_lost=chance.random() < 0.15)
            if chance.random() < 0.2:
                log.bus.publish_deltas([sent])
            if chance.random() < 0.2:
                run.store()
            for client in clients:
                if chance.random() < 0.5:
                    client.feeds = chance.choice(servers)
                    await client.follow(chance.randint(1, 4), chance.choice((0, 0.001)))
        said += run.text
        run.complete()
        run.end_step()
    for client in clients:
        while client.last != str(log.newest):
            await client.follow(seconds=0.05)
    for server in servers:
        await server.close()
    assert [client.appended for client in clients] == [said] * 3
    assert [client.shown for client in clients] == [said] * 3


@pytest.mark.parametrize(
    "text", ["", "x", "1.2", "1.2.3", "-1", "1.2.3.x", "1" * 19, "1.2.3.4" * 90]
)
def test_a_cursor_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(RefusedError, match="Last-Event-ID"):
        Cursor.parse(text)
