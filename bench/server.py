"""What the app server costs: sending beside a worker, long executions, pauses, slow subscribers.

Rates and ratios of one run on this machine. Servers, workers and PostgreSQL are real processes on
loopback; the model is scripted.
"""

import argparse
import asyncio
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.server_growth import growth
from bench.server_idle import paused
from bench.server_live import slow_subscriber
from bench.server_sends import http_rate, intake_rate, process, serve
from stepwell.stores.opening import open_store

PARTS = ("sends", "growth", "paused", "live")


def sends(folder: Path, seconds: float, postgres: bool) -> dict[str, float]:
    """Messages per second on each database."""
    figures: dict[str, float] = {}

    def on(name: str, url: Callable[[str], str]) -> None:
        rate, finished = asyncio.run(intake_rate(url("intake"), seconds))
        figures[f"sends_per_s_{name}"] = rate
        figures[f"finished_beside_{name}"] = finished
        figures[f"http_sends_per_s_{name}"] = asyncio.run(http_sends(url("http"), seconds))

    on("sqlite", lambda database: f"sqlite:///{folder / database}.db")
    if postgres:
        from chaos.postgres import running_postgres

        with running_postgres() as server:
            on("postgres", server.new_database)
    return figures


async def http_sends(url: str, seconds: float) -> float:
    """Through HTTP, on a database whose tables are made first."""
    await (await open_store(url)).close()
    return await http_rate(url, seconds)


def live(folder: Path, seconds: float) -> dict[str, float]:
    """A subscriber that reads nothing."""
    url = f"sqlite:///{folder / 'live.db'}"
    with process(serve, url) as (port, pid):
        return asyncio.run(slow_subscriber(port, pid, seconds))


def main(arguments: list[str]) -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench server", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each rate (4)")
    parser.add_argument("--steps", type=int, default=1000, help="of the long execution (1000)")
    parser.add_argument("--paused", type=int, default=1000, help="paused executions (1000)")
    parser.add_argument("--no-postgres", action="store_true", help="SQLite only")
    parser.add_argument("--only", choices=PARTS, help="one part of it")
    options = parser.parse_args(arguments)
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="bench-server-") as temporary:
        folder = Path(temporary)
        wanted = PARTS if options.only is None else (options.only,)
        if "sends" in wanted:
            figures |= sends(folder, options.seconds, not options.no_postgres)
        if "growth" in wanted:
            figures |= asyncio.run(growth(folder, options.steps))
        if "paused" in wanted:
            figures |= asyncio.run(paused(folder, options.paused))
        if "live" in wanted:
            figures |= live(folder, options.seconds)
    if options.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:28} {value:12.2f}")
    return 0
