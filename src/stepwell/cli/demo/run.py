"""Checks the demo against its own live server, part by part, within a minute."""

import asyncio
from collections.abc import Callable

import httpx2

from stepwell.app.scripted_words import Pace
from stepwell.cli.demo.parts import CHECKS, Check
from stepwell.cli.demo.report import Part, Report
from stepwell.cli.demo.server import running_demo
from stepwell.cli.demo.visitor import Missing, Visitor, visitor_of
from stepwell.clock import Clock, SystemClock

MOST_SECONDS = 60.0
QUICK = Pace(before=0.02, word=0.004)
"""For checks, where nobody reads along."""

Tell = Callable[[str], None]


async def check_demo(port: int | None, db: str | None, *, tell: Tell, started_at: float) -> Report:
    """Start a server, run all parts and report. Time counts from ``started_at``."""
    clock = SystemClock()
    async with running_demo(port or 0, db, tell=tell, pace=QUICK) as demo:
        ready = demo.ready_at - started_at
        tell(f"served at {demo.address} after {ready:.1f} s")
        if (fault := await demo.sandbox_fault()) is not None:
            tell(f"the agent can't run commands on this machine: {fault}")
        async with visitor_of(demo.address) as visitor:
            deadline = started_at + MOST_SECONDS
            parts = [
                await part_of(name, check, visitor, (clock, deadline), tell)
                for name, check in CHECKS.items()
            ]
    seconds = clock.monotonic() - started_at
    return Report(parts=tuple(parts), seconds=round(seconds, 2), ready_seconds=round(ready, 2))


async def part_of(
    name: str, check: Check, visitor: Visitor, until: tuple[Clock, float], tell: Tell
) -> Part:
    """Run one part until the deadline of that clock, and report it."""
    clock, deadline = until
    began = clock.monotonic()
    happened, detail = False, ""
    try:
        async with asyncio.timeout(max(0.0, deadline - began)):
            detail = await check(visitor)
        happened = True
    except Missing as missing:
        detail = str(missing)
    except TimeoutError:
        detail = "timed out"
    except (httpx2.HTTPError, LookupError, TypeError, ValueError) as error:
        detail = f"unexpected response: {type(error).__name__}: {error}"
    seconds = round(clock.monotonic() - began, 2)
    part = Part(name=name, happened=happened, seconds=seconds, detail=detail)
    tell(part.line)
    return part
