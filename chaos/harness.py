"""Runs the processes, and does to them what the seed says until every demand is met.

The tempo follows the damage: scenarios are sent as the kills progress, and beyond the number asked
for if need be, so that there is work in flight from the first kill to the last.
"""

import asyncio
import random
import sys
import time
from collections import Counter
from pathlib import Path

from chaos import live_server, reader, sender, worker
from chaos.buses import RunningBus
from chaos.databases import Database
from chaos.processes import Child
from chaos.progress import Progress
from chaos.settings import ChaosSettings, Place
from chaos.witness import WitnessLine, lines_of
from stepwell.sessions.errors import SessionError
from stepwell.sessions.ports import Store

TICK = 0.05
MOST_UNEXPECTED = 10
"""Processes that end by themselves, before the run is given up."""
ARMED_SECONDS = 3.0
"""A crash point that is not reached in this time is tried in another process."""
TOOL_POINTS = ("before:tool", "in:tool", "after:tool")
SENDER_WRITES = ("send", "answer", "cancel", "fork")
PROGRESS_SECONDS = 5.0
RARE = (":pause", ":sweep", ":clear_jobs", ":cancel", ":fork", ":open_texts")
"""Points that are reached seldom, or only when a worker begins: armed beside another one, and in
every second new worker from the start."""


class Harness:
    """One run on one database."""

    def __init__(
        self,
        settings: ChaosSettings,
        place: Place,
        database: Database,
        bus: RunningBus,
        store: Store,
    ) -> None:
        self._settings = settings
        self._place = place
        self._database = database
        self._bus = bus
        self._store = store
        self._dice = random.Random(settings.seed)
        self._witness = WitnessLine(place.witness, "harness")
        self._file = Path(place.folder) / "witness.jsonl"
        self._workers: list[Child] = []
        self._sender: Child | None = None
        self._reader: Child | None = None
        self._server: Child | None = None
        self._started = 0
        self._random_kills = 0
        self._freezes = 0
        self._restarts = 0
        self._bus_kills = 0
        self._server_kills = 0
        self._allowed = 0
        self._hits: Counter[str] = Counter()
        self._seen: set[str] = set()
        self._next_damage = 0.0
        self._began = False
        self.unexpected: list[str] = []
        """Processes that ended without being killed."""

    async def run(self) -> None:
        """Until everything was sent, hurt and finished, or the time is over."""
        began = time.monotonic()
        deadline = began + self._settings.seconds
        self._server = Child("server-0", live_server.main, self._settings, self._place)
        self._reader = Child("reader", reader.main, self._settings, self._place)
        self._next_damage = time.monotonic() + 0.5
        looked_at = told_at = 0.0
        while time.monotonic() < deadline and len(self.unexpected) < MOST_UNEXPECTED:
            self._respawn()
            self._thaw()
            if time.monotonic() - looked_at > 0.25:
                looked_at = time.monotonic()
                self._read_witness()
                unfinished = await self._unfinished()
                if unfinished == 0 and self._all_sent():
                    break
                self._pace(unfinished)
                if time.monotonic() - told_at > PROGRESS_SECONDS:
                    told_at = time.monotonic()
                    self._print_progress(told_at - began, unfinished)
            await self._hurt()
            await asyncio.sleep(TICK)
        await self._finish_reading(max(5.0, deadline - time.monotonic()))

    def close(self) -> None:
        """End every process of the run."""
        for child in [*self._workers, self._sender, self._reader, self._server]:
            if child is not None:
                child.end()
        self._witness.close()

    # Who runs

    def _respawn(self) -> None:
        for child in [each for each in self._workers if not each.lives]:
            self._bury(child)
            self._workers.remove(child)
        while len(self._workers) < self._settings.workers:
            self._started += 1
            name = f"worker-{self._started}"
            child = Child(name, worker.main, self._settings, self._place)
            if self._dice.random() < 0.5:
                child.say(arm=None, skip=0, also=self._other_points())
            self._workers.append(child)
        if self._server is not None and not self._server.lives:
            self._bury(self._server)
            self._started += 1
            name = f"server-{self._started}"
            self._server = Child(name, live_server.main, self._settings, self._place)
        if self._sender is not None and not self._sender.lives:
            self._bury(self._sender)
            self._sender = None
        if self._sender is None:
            self._started += 1
            name = f"sender-{self._started}"
            self._sender = Child(name, sender.main, self._settings, self._place)
            self._sender.say(allow=self._allowed)

    def _bury(self, child: Child) -> None:
        if child.exit_code != -9:
            self.unexpected.append(f"{child.name} ended by itself with code {child.exit_code}")
        child.end()

    def _thaw(self) -> None:
        for child in self._workers:
            if child.frozen_until is not None and child.frozen_until < time.monotonic():
                child.thaw()
                if child.holds_up_others:
                    child.holds_up_others = False
                    self._witness.tell("released", worker=child.name)

    # What is done to them

    async def _hurt(self) -> None:
        now = time.monotonic()
        if now < self._next_damage or not self._began or self._is_hurt_enough():
            return
        whole = [
            child
            for child in self._workers
            if child.is_ready and child.lives and child.frozen_until is None
        ]
        for child in [*whole, *([self._sender] if self._sender else [])]:
            if child.armed and now - child.armed_at > ARMED_SECONDS:
                child.arm(None)
                child.armed = None
        free = [child for child in whole if child.armed is None]
        # One must be left to take over; otherwise the time of a takeover is that of a start.
        if len(free) >= min(2, self._settings.workers):
            self._next_damage = now + self._dice.uniform(0.2, 0.9)
            await self._hurt_one(self._dice.choice(free), oldest=free[0])
        self._arm_sender()

    async def _hurt_one(self, child: Child, *, oldest: Child) -> None:
        options = ["kill"] * max(0, self._settings.kills - self._random_kills)
        options += ["freeze"] * (self._settings.freezes - self._freezes)
        options += ["restart"] * (self._settings.restarts - self._restarts)
        options += ["kill bus"] * (self._settings.bus_kills - self._bus_kills)
        options += ["kill server"] * (self._settings.server_kills - self._server_kills)
        options += ["arm"] * sum(self._missing(of_sender=False).values())
        match self._dice.choice(options) if options else None:
            case "kill":
                self._random_kills += 1
                child.kill()
                self._witness.tell("kill", worker=child.name, pid=child.pid)
            case "freeze":
                self._freezes += 1
                # The oldest has most to do; a new one may have nothing yet.
                self._freeze(oldest)
            case "kill bus":
                self._bus_kills += 1
                killed = await asyncio.to_thread(self._bus.kill)
                self._witness.tell("kill_bus", killed=killed)
            case "kill server":
                self._server_kills += 1
                if self._server is not None and self._server.lives:
                    self._server.kill()
                    self._witness.tell("kill_server", server=self._server.name)
            case "restart":
                self._restarts += 1
                immediate = self._restarts % 2 == 0
                self._witness.tell("restart", immediate=immediate)
                await asyncio.to_thread(self._database.restart, immediate=immediate)
                self._witness.tell("restarted")
            case "arm":
                point = self._one_of(self._missing(of_sender=False))
                child.arm(point, self._dice.randint(0, 3), self._other_points())
            case _:
                pass

    def _freeze(self, child: Child) -> None:
        """Stop it for longer than its lease. Every second time wherever it is: on SQLite maybe
        inside of a write, which keeps all others from writing until it goes on."""
        child.frozen_until = time.monotonic() + self._settings.lease_seconds * 1.7
        if self._freezes % 2:
            child.say(freeze=True)
            return
        self._witness.tell("freeze", worker=child.name, pid=child.pid)
        child.freeze()
        if self._settings.db == "sqlite":
            child.holds_up_others = True
            self._witness.tell("hold", worker=child.name)

    def _arm_sender(self) -> None:
        child = self._sender
        if child is None or not child.is_ready or child.armed is not None:
            return
        if missing := self._missing(of_sender=True):
            child.arm(
                self._one_of(missing), self._dice.randint(0, 1), self._other_points(of_sender=True)
            )

    def _other_points(self, *, of_sender: bool = False) -> list[str]:
        missing = self._missing(of_sender=of_sender)
        if self._settings.executions - self._allowed < sum(missing.values()):
            # The work runs out before the demands are met: whatever is reached first counts.
            return list(missing)
        return [point for point in missing if point.endswith(RARE)]

    def _one_of(self, missing: Counter[str]) -> str:
        """One of the points, the more often the more hits it needs."""
        return self._dice.choices(list(missing), list(missing.values()))[0]

    def _missing(self, *, of_sender: bool) -> Counter[str]:
        """How many hits each crash point of the workers, or of the sender, still needs."""
        least = self._settings.min_hits
        return Counter(
            {
                point: least - self._hits[point]
                for point in self._seen
                if (point.split(":")[1] in SENDER_WRITES) is of_sender and self._hits[point] < least
            }
        )

    def _is_hurt_enough(self) -> bool:
        wanted = self._settings
        return (
            self._damage_left() == 0
            and self._restarts >= wanted.restarts
            and self._bus_kills >= wanted.bus_kills
            and self._server_kills >= wanted.server_kills
        )

    def _damage_left(self) -> int:
        wanted = self._settings
        left = max(0, wanted.kills - self._random_kills) + max(0, wanted.freezes - self._freezes)
        for of_sender in (False, True):
            left += sum(self._missing(of_sender=of_sender).values())
        return left

    # How far it is

    def _read_witness(self) -> None:
        lines = lines_of(self._file)
        self._hits = Counter(line["point"] for line in lines if line["op"] == "crash")
        self._seen = {line["point"] for line in lines if line["op"] == "saw"}
        self._began = self._began or any(line["op"] == "begin" for line in lines)

    async def _unfinished(self) -> int:
        try:
            return sum((await self._store.read(lambda tx: tx.count_by_status())).values())
        except SessionError:
            return 1

    def _all_sent(self) -> bool:
        sent = len(Progress(Path(self._place.folder)).sent)
        return sent >= max(self._allowed, self._executions_wanted())

    def _executions_wanted(self) -> int:
        """More than asked for while damage is left to do, so that work never runs out before it."""
        wanted = self._settings
        return wanted.executions if self._is_hurt_enough() else wanted.most_executions

    def _pace(self, unfinished: int) -> None:
        wanted = self._settings
        lead = wanted.in_flight
        done = self._random_kills + self._freezes + sum(self._hits.values())
        left = self._damage_left()
        share = 1.0 if left == 0 else done / (done + left)
        # With a backlog every takeover would wait for a seat.
        room = max(0, 2 * lead - unfinished)
        sent = len(Progress(Path(self._place.folder)).sent)
        allowed = min(int(share * (wanted.executions - lead)) + lead, sent + room)
        if unfinished <= 1:
            allowed = max(allowed, self._allowed + 1)
        self._allowed = max(self._allowed, min(self._executions_wanted(), allowed))
        if self._sender is not None:
            self._sender.say(allow=self._allowed)

    def _print_progress(self, seconds: float, unfinished: int) -> None:
        wanted = self._settings
        sent = len(Progress(Path(self._place.folder)).sent)
        crashes = sum(self._hits.values())
        missing = sum(sum(self._missing(of_sender=it).values()) for it in (False, True))
        print(
            f"{seconds:4.0f} s: sent {sent}/{wanted.executions}, open {unfinished}, kills "
            f"{self._random_kills}/{wanted.kills} + {crashes} at crash points ({missing} to go), "
            f"freezes {self._freezes}/{wanted.freezes}, database restarts "
            f"{self._restarts}/{wanted.restarts}, bus {self._bus_kills}/{wanted.bus_kills}, "
            f"server {self._server_kills}/{wanted.server_kills}",
            file=sys.stderr,
            flush=True,
        )

    async def _finish_reading(self, seconds: float) -> None:
        """Let the subscribers read to the end."""
        if self._reader is None or not self._reader.is_ready:
            return
        self._reader.say(finish=True)
        await asyncio.to_thread(self._reader.wait, seconds)
        if self._reader.exit_code != 0:
            self.unexpected.append(f"the subscribers ended with {self._reader.exit_code}")
