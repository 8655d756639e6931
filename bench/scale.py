"""A simulation of many sessions over workers, servers and one PostgreSQL, with measured costs.

Discrete events: people think and send; an execution takes a seat of a worker and does steps, in
each of which a model streams and a tool runs; every session is followed. Each process is one core
that serves its work in order, PostgreSQL has several. Costs are CPU milliseconds from
``bench/results/server.json`` (``./dev bench server --save``). It leaves out the network, disks,
locks, garbage collection, and that a process at its limit makes fewer and longer chunks.
"""

import argparse
import heapq
import json
import random
from collections import deque
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

from msgspec import Struct, structs

from bench import results
from bench.scale_page import refresh_page


class Costs(Struct, frozen=True, kw_only=True):
    """CPU milliseconds, as ``bench server costs`` measures them on PostgreSQL."""

    server_ms_per_send: float
    database_ms_per_send: float
    worker_ms_per_step: float
    database_ms_per_step: float
    server_ms_per_streamed_s: float
    worker_ms_per_streamed_s: float
    database_ms_per_streamed_s: float


class Load(Struct, frozen=True, kw_only=True):
    """What people and agents do; times are means of exponential distributions."""

    sessions: int = 10_000
    think_seconds: float = 60.0
    steps: int = 5
    """Of an execution."""
    model_seconds: float = 3.0
    """How long the model streams in a step."""
    tool_seconds: float = 0.5


class Machines(Struct, frozen=True, kw_only=True):
    """What serves them."""

    workers: int
    servers: int
    database_cores: int
    seats: int = 200
    """Executions at once in a worker (``concurrency``)."""


_Do = Callable[[float], None]


class _Queue:
    """Cores that serve jobs in the order of their arrival."""

    def __init__(self, cores: int) -> None:
        self._free_at = [0.0] * cores
        self._cores = cores
        self.busy = 0.0

    def serve(self, now: float, seconds: float) -> float:
        """When a job that comes now is done."""
        begins = max(now, heapq.heappop(self._free_at))
        heapq.heappush(self._free_at, begins + seconds)
        self.busy += seconds
        return begins + seconds

    def utilization(self, seconds: float) -> float:
        """The share of all cores' time that was used."""
        return self.busy / (seconds * self._cores)


class Simulation:
    """One run; ``figures`` after it."""

    def __init__(self, costs: Costs, load: Load, machines: Machines, seed: int = 1) -> None:
        self._costs, self._load, self._machines = costs, load, machines
        self._dice = random.Random(seed)
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._order = count()
        self._workers = [_Queue(1) for _ in range(machines.workers)]
        self._servers = [_Queue(1) for _ in range(machines.servers)]
        self._database = _Queue(machines.database_cores)
        self._free_seats = deque(
            worker for _ in range(machines.seats) for worker in range(machines.workers)
        )
        self._waiting: deque[tuple[float, int]] = deque()
        self._counts = {"sends": 0, "steps": 0, "executions": 0}
        self._send_seconds: list[float] = []
        self._seat_waits: list[float] = []
        self._lags: list[float] = []
        self._most_seats = 0

    def run(self, seconds: float) -> dict[str, float]:
        """Simulate so many seconds."""
        for session in range(self._load.sessions):
            self._after(0.0, self._dice.expovariate(1 / self._load.think_seconds), session)
        while self._events and self._events[0][0] < seconds:
            now, _, do = heapq.heappop(self._events)
            do(now)
        return self._figures(seconds)

    def _at(self, when: float, do: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (when, next(self._order), do))

    def _after(self, now: float, seconds: float, session: int) -> None:
        self._at(now + seconds, lambda when: self._send(when, session))

    def _serve(self, now: float, *work: tuple[_Queue, float], then: _Do | None = None) -> None:
        """Have the work done by one queue after the other."""
        (queue, milliseconds), *rest = work
        done = queue.serve(now, milliseconds / 1e3)
        if rest:
            self._at(done, lambda when: self._serve(when, *rest, then=then))
        elif then is not None:
            self._at(done, then)

    def _mean(self, seconds: float) -> float:
        return self._dice.expovariate(1 / seconds)

    def _send(self, now: float, session: int) -> None:
        self._counts["sends"] += 1
        server = self._servers[session % self._machines.servers]
        costs = self._costs

        def finish(when: float) -> None:
            self._send_seconds.append(when - now)
            self._waiting.append((when, session))
            self._take(when)

        self._serve(
            now,
            (server, costs.server_ms_per_send),
            (self._database, costs.database_ms_per_send),
            then=finish,
        )

    def _take(self, now: float) -> None:
        while self._waiting and self._free_seats:
            asked, session = self._waiting.popleft()
            worker = self._free_seats.popleft()
            total = self._machines.seats * self._machines.workers
            self._most_seats = max(self._most_seats, total - len(self._free_seats))
            self._seat_waits.append(now - asked)
            self._step(now, session, worker, 1)

    def _step(self, now: float, session: int, worker: int, number: int) -> None:
        """A model turn, a tool, and what storing them takes."""
        costs, streamed = self._costs, self._mean(self._load.model_seconds)
        self._stream(now, session, worker, streamed)
        ends = now + streamed + self._mean(self._load.tool_seconds)

        def finish(when: float) -> None:
            self._counts["steps"] += 1
            self._lags.append(when - ends)
            self._next(when, session, worker, number)

        self._at(
            ends,
            lambda when: self._serve(
                when,
                (self._workers[worker], costs.worker_ms_per_step),
                (self._database, costs.database_ms_per_step),
                then=finish,
            ),
        )

    def _stream(self, now: float, session: int, worker: int, left: float) -> None:
        """A job a second for worker, database and server."""
        costs, part = self._costs, min(1.0, left)
        self._serve(
            now,
            (self._workers[worker], costs.worker_ms_per_streamed_s * part),
            (self._database, costs.database_ms_per_streamed_s * part),
            (
                self._servers[session % self._machines.servers],
                costs.server_ms_per_streamed_s * part,
            ),
        )
        if left > 1.0:
            self._at(now + 1.0, lambda when: self._stream(when, session, worker, left - 1.0))

    def _next(self, now: float, session: int, worker: int, number: int) -> None:
        if number < self._load.steps:
            self._step(now, session, worker, number + 1)
            return
        self._counts["executions"] += 1
        self._free_seats.append(worker)
        self._after(now, self._mean(self._load.think_seconds), session)
        self._take(now)

    def _figures(self, seconds: float) -> dict[str, float]:
        def mean(queues: list[_Queue]) -> float:
            return sum(each.utilization(seconds) for each in queues) / len(queues)

        return {
            "sends_per_s": self._counts["sends"] / seconds,
            "steps_per_s": self._counts["steps"] / seconds,
            "worker_use": mean(self._workers),
            "server_use": mean(self._servers),
            "database_use": self._database.utilization(seconds),
            "seats_used": float(self._most_seats),
            "send_p99_ms": _p99(self._send_seconds) * 1e3,
            "seat_wait_p99_ms": _p99(self._seat_waits) * 1e3,
            "step_lag_p50_ms": _quantile(self._lags, 0.5) * 1e3,
            "step_lag_p99_ms": _p99(self._lags) * 1e3,
        }


def _quantile(values: list[float], part: float) -> float:
    return sorted(values)[int(part * (len(values) - 1))] if values else 0.0


def _p99(values: list[float]) -> float:
    return _quantile(values, 0.99)


def needed(costs: Costs, load: Load, use: float = 0.6) -> Machines:
    """The machines that would be used to that share, by arithmetic alone."""
    cycle = load.think_seconds + load.steps * (load.model_seconds + load.tool_seconds)
    sends = load.sessions / cycle
    steps = sends * load.steps
    streamed = steps * load.model_seconds
    worker = steps * costs.worker_ms_per_step + streamed * costs.worker_ms_per_streamed_s
    server = sends * costs.server_ms_per_send + streamed * costs.server_ms_per_streamed_s
    database = (
        sends * costs.database_ms_per_send
        + steps * costs.database_ms_per_step
        + streamed * costs.database_ms_per_streamed_s
    )
    return Machines(
        workers=_cores(worker, use),
        servers=_cores(server, use),
        database_cores=_cores(database, use),
    )


def _cores(milliseconds_per_second: float, use: float) -> int:
    return max(1, -int(-milliseconds_per_second / 1e3 / use // 1))


def variants(machines: Machines) -> dict[str, Machines]:
    """What is needed, and what happens with less of one tier."""
    fewer = {
        "half the workers": {"workers": max(1, machines.workers // 2)},
        "half the servers": {"servers": max(1, machines.servers // 2)},
        "half the database": {"database_cores": max(1, machines.database_cores // 2)},
    }
    changed = {name: structs.replace(machines, **change) for name, change in fewer.items()}
    return {"as needed": machines, **changed}


def measured_costs(document: Mapping[str, Any]) -> Costs:
    """The costs in a saved run of ``bench server``."""
    figures = document["figures"]
    return Costs(**{name: figures[name] for name in Costs.__struct_fields__})


def simulate(costs: Costs, load: Load, seconds: float) -> dict[str, Any]:
    """The machines that are needed, and the figures of each variant."""
    found = variants(needed(costs, load))
    return {
        "load": structs.asdict(load),
        "costs": structs.asdict(costs),
        "runs": {
            name: {**structs.asdict(machines), **Simulation(costs, load, machines).run(seconds)}
            for name, machines in found.items()
        },
    }


def main(arguments: list[str]) -> int:
    """Simulate and print a table."""
    parser = argparse.ArgumentParser(prog="python -m bench scale", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--sessions", type=int, default=10_000, help="concurrent ones (10,000)")
    parser.add_argument("--seconds", type=float, default=30.0, help="to simulate (30)")
    parser.add_argument(
        "--save",
        action="store_true",
        help="keep it in bench/results/scale.json and refresh docs/reference/scale.md",
    )
    options = parser.parse_args(arguments)
    measured = results.load("server")
    if measured is None:
        parser.error("there are no measured costs; run ./dev bench server costs --save first")
    document = simulate(measured_costs(measured), Load(sessions=options.sessions), options.seconds)
    if options.save:
        results.save("scale", document)
        refresh_page(measured, document)
    if options.json:
        print(json.dumps(document))
        return 0
    for name, run in document["runs"].items():
        print(name)
        for figure, value in run.items():
            print(f"  {figure:20} {value:12.2f}")
    return 0
