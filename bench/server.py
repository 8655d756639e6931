"""What the app server costs, each figure beside its floor on the same machine in the same run.

Parts: ``steps`` (a persisted step, a chat message), ``http`` (a send over HTTP), ``sends``
(messages per second beside a worker), ``streams`` (followed answers), ``idle`` (followers of idle
sessions), ``growth`` (a long execution), ``costs`` (CPU by tier on PostgreSQL), ``paused``
(executions that wait) and ``live`` (a subscriber that reads nothing). Servers, workers and
PostgreSQL are real processes on loopback; the model is scripted.
"""

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from msgspec import Struct

from bench import results
from bench.databases import NewDatabase, postgres_databases, sqlite_databases
from bench.server_costs import measure_costs
from bench.server_growth import measure_growth
from bench.server_http import measure_http, measure_sends
from bench.server_idle import measure_idle, measure_paused
from bench.server_live import slow_subscriber
from bench.server_process import Role, process, serve
from bench.server_steps import measure_steps
from bench.server_streams import measure_commits, measure_streams
from bench.targets import SERVER, verdicts

Figures = dict[str, float]


class Sizes(Struct, frozen=True, kw_only=True):
    """How much is measured."""

    steps: int = 200
    messages: int = 60
    rounds: int = 3
    sends: int = 240
    seconds: float = 4.0
    streams: int = 40
    commit_streams: int = 20
    followers: int = 1000
    long_steps: int = 1000
    paused: int = 500


TINY = Sizes(
    steps=3,
    messages=2,
    rounds=1,
    sends=8,
    seconds=0.5,
    streams=2,
    commit_streams=2,
    followers=10,
    long_steps=25,
    paused=10,
)
"""To see that the bench works; what it measures means nothing."""


class Place(Struct, frozen=True, kw_only=True):
    """Where a part makes its databases."""

    folder: Path
    databases: Mapping[str, NewDatabase]
    """By kind: ``sqlite`` and, where there is one, ``postgres``."""


def steps(place: Place, sizes: Sizes) -> Figures:
    """A persisted step and a chat message."""
    return measure_steps(
        place.folder, steps=sizes.steps, messages=sizes.messages, rounds=sizes.rounds
    )


def streams(place: Place, sizes: Sizes) -> Figures:
    """Followed answers. The load of few streams shows what one costs where nothing is short."""
    new, seconds = place.databases["sqlite"], sizes.seconds
    figures = measure_commits(new, streams=sizes.commit_streams, seconds=seconds)
    figures["stream_commits_per_s"] = figures[f"stream_commits_per_s_{sizes.commit_streams}"]
    for kind, new in place.databases.items():
        for count in (max(1, sizes.streams // 4), sizes.streams):
            figures |= measure_streams(kind, new, streams=count, seconds=seconds)
    many = f"_{sizes.streams}"
    return {**figures, **_worst("cpu_ms_per_streamed_s", figures, place, max, many)}


def idle(place: Place, sizes: Sizes) -> Figures:
    """Followers of idle sessions."""
    figures: Figures = {}
    for kind, new in place.databases.items():
        figures |= measure_idle(kind, new, sessions=sizes.followers, seconds=sizes.seconds * 1.5)
    return {**figures, **_worst("idle_tx_per_s", figures, place, max)}


def http(place: Place, sizes: Sizes) -> Figures:
    """A send over HTTP."""
    figures: Figures = {}
    for kind, new in place.databases.items():
        figures |= measure_http(kind, new, sends=sizes.sends)
    return {**figures, **_worst("http_send_ratio", figures, place, max)}


def sends(place: Place, sizes: Sizes) -> Figures:
    """Messages per second beside a worker at work."""
    figures: Figures = {}
    for kind, new in place.databases.items():
        figures |= measure_sends(kind, new, seconds=sizes.seconds)
    return {**figures, **_worst("sends_per_s", figures, place, min)}


def growth(place: Place, sizes: Sizes) -> Figures:
    """A long execution."""
    figures = asyncio.run(measure_growth(place.folder, sizes.long_steps))
    figures["storage_ratio_1000"] = figures.pop("storage_ratio")
    figures["step_growth_1000_over_10"] = figures.pop("step_growth")
    return figures


def paused(place: Place, sizes: Sizes) -> Figures:
    """Executions that wait for a person."""
    return asyncio.run(measure_paused(place.folder, sizes.paused))


def live(place: Place, sizes: Sizes) -> Figures:
    """A subscriber that reads nothing."""
    with process(serve, Role(url=place.databases["sqlite"]("live"))) as server:
        return asyncio.run(slow_subscriber(server.port, server.pid, sizes.seconds))


def costs(place: Place, sizes: Sizes) -> Figures:
    """CPU by tier on PostgreSQL, for ``bench scale``."""
    new = place.databases.get("postgres")
    if new is None:
        return {}
    return measure_costs(
        new, executions=sizes.messages // 2 + 1, streams=sizes.streams // 2, seconds=sizes.seconds
    )


PARTS: dict[str, Callable[[Place, Sizes], Figures]] = {
    part.__name__: part for part in (steps, http, sends, streams, idle, growth, costs, paused, live)
}


def _worst(
    name: str, figures: Figures, place: Place, choose: Callable[..., float], end: str = ""
) -> Figures:
    """The figure of the database that does worst, under the name that the target has."""
    return {name: choose(figures[f"{name}_{kind}{end}"] for kind in place.databases)}


def measure(
    parts: Iterator[str] | list[str], sizes: Sizes, *, postgres: bool = True
) -> dict[str, Any]:
    """Run the parts; figures, targets and on what they were measured."""
    figures: Figures = {}
    seconds: dict[str, float] = {}
    document: dict[str, Any] = {"machine": results.machine(), "versions": results.versions()}
    with tempfile.TemporaryDirectory(prefix="bench-server-") as temporary, ExitStack() as servers:
        databases = {"sqlite": sqlite_databases(Path(temporary))}
        new = servers.enter_context(postgres_databases()) if postgres else None
        if new is not None:
            databases["postgres"] = new
        place = Place(folder=Path(temporary), databases=databases)
        for part in parts:
            results.say(f"bench server: {part}")
            began = time.perf_counter()
            figures |= PARTS[part](place, sizes)
            seconds[part] = round(time.perf_counter() - began, 1)
    return {
        **document,
        "figures": figures,
        "targets": verdicts(figures, SERVER),
        "seconds": seconds,
    }


def main(arguments: list[str]) -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench server", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of {', '.join(PARTS)}; all")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--save", action="store_true", help="keep it in bench/results/server.json")
    parser.add_argument("--no-postgres", action="store_true", help="SQLite only")
    parser.add_argument(
        "--tiny", action="store_true", help="see that it runs; figures mean nothing"
    )
    options = parser.parse_args(arguments)
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"unknown part {', '.join(sorted(unknown))}; parts are {', '.join(PARTS)}")
    document = measure(
        options.parts or list(PARTS),
        TINY if options.tiny else Sizes(),
        postgres=not options.no_postgres,
    )
    if options.save:
        results.save("server", document)
    if options.json:
        print(json.dumps(document))
    else:
        _print(document)
    return 0


def _print(document: Mapping[str, Any]) -> None:
    for name, value in document["figures"].items():
        print(f"{name:38} {value:14.2f}")
    print()
    for name, verdict in document["targets"].items():
        word = "met" if verdict["met"] else "MISSED"
        print(f"{word:7} {name:30} {verdict['value']:12.2f}   target: {verdict['target']}")
    print()
    for name in ("machine", "versions", "seconds"):
        print(f"{name}: {', '.join(f'{key} {value}' for key, value in document[name].items())}")
