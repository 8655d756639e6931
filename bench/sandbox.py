"""How much later a command starts in a sandbox than as a bare process, for each sandbox here.

The command is the same on both sides, ``bash -c 'echo started'``; its start is the moment its first
output arrives. Rounds of all sides are interleaved, in turning order; wall time; medians. The
overhead is the median of the differences to the bare process of the same round; the least is that
between the quickest rounds, which other work on the machine disturbs less.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from stepwell.errors import SandboxError
from stepwell.sandbox import Channel, ExecutionPolicy, Sandbox, proven
from stepwell.sandbox.bubblewrap import BubblewrapSandbox
from stepwell.sandbox.sandlock import SandlockSandbox
from stepwell.sandbox.unconfined import UnconfinedSandbox

COMMAND = ["bash", "-c", "echo started"]
DRIVERS: dict[str, Callable[[], Sandbox]] = {
    "bubblewrap": BubblewrapSandbox,
    "sandlock": SandlockSandbox,
    "unconfined": UnconfinedSandbox,
}
BARE = "bare"


class Timing(Struct, frozen=True):
    """Seconds from asking for a command to its first output, and to its end."""

    start: float
    end: float


Side = Callable[[], Awaitable[Timing]]


async def bare() -> Timing:
    """The command as a plain subprocess of asyncio."""
    asked = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *COMMAND, stdin=DEVNULL, stdout=PIPE, stderr=PIPE
    )
    if process.stdout is None:
        raise AssertionError("the process has no output")
    said = await process.stdout.read(7)
    started = time.perf_counter()
    await process.communicate()
    return _timing(asked, started, said.decode())


def in_sandbox(sandbox: Sandbox, policy: ExecutionPolicy) -> Side:
    """The command in a sandbox."""

    async def run() -> Timing:
        heard: list[float] = []

        def note(_channel: Channel, _text: str) -> None:
            heard.append(time.perf_counter())

        asked = time.perf_counter()
        result = await sandbox.run(COMMAND, policy, on_output=note)
        if not heard:
            raise AssertionError(f"{sandbox.name}: the command did not run: {result}")
        return _timing(asked, heard[0], result.stdout)

    return run


def _timing(asked: float, started: float, said: str) -> Timing:
    if not said.startswith("started"):
        raise AssertionError(f"the command said {said!r}")
    return Timing(started - asked, time.perf_counter() - asked)


async def usable(policy: ExecutionPolicy) -> tuple[dict[str, Side], dict[str, str]]:
    """The sides to measure, each run once already, and why the others can't be."""
    sides: dict[str, Side] = {BARE: bare}
    reasons: dict[str, str] = {}
    for name, make in DRIVERS.items():
        try:
            side = in_sandbox(proven(make()), policy)
            await side()
        except SandboxError as error:
            reasons[name] = str(error)
        else:
            sides[name] = side
    await bare()
    return sides, reasons


async def measured(rounds: int) -> dict[str, Any]:
    """All figures."""
    with tempfile.TemporaryDirectory() as directory:
        sides, reasons = await usable(ExecutionPolicy.in_(directory))
        names = list(sides)
        timings: dict[str, list[Timing]] = {name: [] for name in names}
        for number in range(rounds):
            turn = number % len(names)
            for name in (*names[turn:], *names[:turn]):
                timings[name].append(await sides[name]())
    plain = timings.pop(BARE)
    drivers: dict[str, dict[str, Any]] = {
        name: _compared(plain, taken) for name, taken in timings.items()
    }
    drivers |= {name: {"unavailable": reason} for name, reason in reasons.items()}
    return {
        "drivers": drivers,
        "bare_start_ms": _median_ms([timing.start for timing in plain]),
        "bare_run_ms": _median_ms([timing.end for timing in plain]),
        "rounds": rounds,
    }


def _compared(plain: list[Timing], taken: list[Timing]) -> dict[str, float]:
    pairs = list(zip(plain, taken, strict=True))
    return {
        "start_ms": _median_ms([ours.start for ours in taken]),
        "start_overhead_ms": _median_ms([ours.start - least.start for least, ours in pairs]),
        "least_start_overhead_ms": _ms(
            min(ours.start for ours in taken) - min(least.start for least in plain)
        ),
        "start_ratio": round(statistics.median(o.start / least.start for least, o in pairs), 2),
        "run_overhead_ms": _median_ms([ours.end - least.end for least, ours in pairs]),
    }


def _median_ms(seconds: list[float]) -> float:
    return _ms(statistics.median(seconds))


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 2)


def table(figures: dict[str, Any]) -> str:
    """The figures for a person."""
    columns = (
        *("start_ms", "start_overhead_ms", "least_start_overhead_ms"),
        *("start_ratio", "run_overhead_ms"),
    )
    lines = ["sandbox       " + "  ".join(f"{column:>17}" for column in columns)]
    for name, row in figures["drivers"].items():
        if "unavailable" in row:
            lines.append(f"{name:<14}can't be used here: {row['unavailable']}")
        else:
            lines.append(
                f"{name:<14}" + "  ".join(f"{row[it]:>{max(17, len(it))}}" for it in columns)
            )
    bare_line = (
        f"bare process: start {figures['bare_start_ms']} ms, run {figures['bare_run_ms']} ms"
    )
    return "\n".join([*lines, "", f"{bare_line}; medians of {figures['rounds']} rounds"])


def main(arguments: list[str]) -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench sandbox", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rounds", type=int, default=40, help="runs of each side (40)")
    options = parser.parse_args(arguments)
    figures = asyncio.run(measured(max(options.rounds, 1)))
    print(json.dumps(figures) if options.json else table(figures))
    return 0
