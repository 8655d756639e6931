"""The machine: what confines commands, room on the disk, the clock, the files of the page."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path

from stepwell.app.diagnosis.findings import FROM_CLONE, Finding, broken, note, ok
from stepwell.clock import Clock
from stepwell.errors import SandboxError
from stepwell.sandbox.choice import candidates
from stepwell.sandbox.proof import prove

LITTLE_SPACE, NO_SPACE = 1024**3, 50 * 1024**2
BUILT = datetime(2026, 1, 1, tzinfo=UTC)
"""No clock that is right shows an earlier time."""
PAGE = ("index.html", "style.css", "message_list.js", "page/main.js")
_INSTALL = (
    "install bubblewrap from the distribution's packages (apt install bubblewrap), or "
    "pip install 'stepwell[sandbox]'"
)

_LESS = (
    "; it can't protect a part of a writable directory and refuses those that need it, which "
    "bubblewrap does not"
)


async def sandbox_findings() -> AsyncIterator[Finding]:
    """The sandbox that commands get, found by trying; without one they are refused."""
    reasons: list[str] = []
    for candidate in candidates():
        reason = await asyncio.to_thread(candidate.unavailable)
        if reason is None:
            try:
                await prove(candidate)
            except SandboxError as error:
                reason = str(error)
            else:
                less = _LESS if candidate.name == "sandlock" else ""
                yield ok("sandbox", f"{candidate.name} proved that it confines{less}")
                return
        reasons.append(f"{candidate.name}: {reason}")
    yield note(
        "sandbox",
        f"none, so bash refuses to run commands; {'; '.join(reasons)}",
        _INSTALL,
    )


def disk_finding(folder: Path) -> Finding:
    """Room for the database."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return broken("disk", f"{folder}: {error}", "start from a folder that is there")
    shown = f"{free / 1024**3:.1f} GB free"
    if free < NO_SPACE:
        return broken("disk", shown, "make room: nothing could be stored")
    if free < LITTLE_SPACE:
        return note("disk", shown, "make room; or set events_days and keep_executions")
    return ok("disk", shown)


def clock_finding(clock: Clock) -> Finding:
    """A clock that was never set makes leases, tokens and certificates wrong."""
    now = clock.now()
    shown = now.isoformat(timespec="seconds")
    if now < BUILT:
        return broken("clock", f"it shows {shown}", "set it; run NTP")
    return ok("clock", shown)


def page_finding() -> Finding:
    """The files that browsers are given."""
    folder = files("stepwell.ui")
    missing = [name for name in PAGE if not folder.joinpath(*name.split("/")).is_file()]
    if missing:
        fix = f"reinstall Stepwell: {FROM_CLONE}"
        return broken("page", f"files are missing: {', '.join(missing)}", fix)
    return ok("page", "its files are there")
