"""The command: serves the demo until it is told to end, or checks it."""

import asyncio
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from stepwell.cli.demo.startup import process_start
from stepwell.cli.exit_codes import ExitCode
from stepwell.cli.options import json_option, start_logging
from stepwell.clock import SystemClock

if TYPE_CHECKING:
    from stepwell.cli.demo.report import Report
    from stepwell.cli.demo.server import RunningDemo


@click.command("demo")
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="0 takes a free one.  [default: 8400, or a free one if that is taken]",
)
@click.option("--db", help="A database that is kept.  [default: one that is gone at the end]")
@click.option(
    "--check", is_flag=True, help="Go through all of it without a browser; 0 if all happened."
)
@json_option
def command(no_browser: bool, port: int | None, db: str | None, check: bool, as_json: bool) -> None:
    """Open the page with an agent at work. Needs no key, no account and no network.

    The agent's words are scripted: no model is asked. The loop, the tools, the sandbox, the
    database and the decisions are real. It mends a failing test, asks, waits for approval, has a
    subagent review, recovers from a failing tool, and runs into a limit.

    Ctrl-C ends it, and nothing is left behind.
    """
    if as_json and not check:
        raise click.UsageError("--json goes with --check.")
    begun = process_start(SystemClock())
    start_logging("warning")
    if not check:
        asyncio.run(_shown(port, db, begun, open_browser=not no_browser))
        return
    from stepwell.cli.demo.report import reported

    try:
        report = asyncio.run(_checked(port, db, begun))
    except asyncio.CancelledError:
        _tell("cancelled")
        sys.exit(ExitCode.CANCELLED)
    click.echo(reported(report, as_json=as_json))
    if not report.is_whole:
        sys.exit(ExitCode.FAILED)


async def _checked(port: int | None, db: str | None, begun: float) -> "Report":
    from stepwell.cli.demo.run import checked

    task = asyncio.create_task(checked(port, db, tell=_tell, begun=begun))
    _on_end(task.cancel)
    return await task


def _on_end(end: Callable[[], object]) -> None:
    """Call that for Ctrl-C and SIGTERM, however often: it ends within seconds, and a hasty end
    would leave its folder behind."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end)


async def _shown(port: int | None, db: str | None, begun: float, *, open_browser: bool) -> None:
    from stepwell.cli.demo.server import running_demo

    ended = asyncio.Event()
    _on_end(ended.set)
    async with running_demo(port, db, tell=_tell) as demo:
        session = await demo.begun()
        _tell(f"ready in {demo.ready_at - begun:.1f} s; Ctrl-C ends it")
        address = f"{demo.address}/#/s/{session}"
        click.echo(address)
        sys.stdout.flush()
        # A database that was named may have a password in its address.
        where = (
            f"stepwell why --db {demo.database}" if db is None else "stepwell why, with this --db"
        )
        _tell(f"why a run stopped, in another terminal: {where}")
        if open_browser:
            _open(address)
        await _told_of_sandbox(demo)
        ending = asyncio.create_task(ended.wait())
        await asyncio.wait({ending, demo.serving}, return_when=asyncio.FIRST_COMPLETED)
        ending.cancel()


def _open(address: str) -> None:
    """Open a window, if there is a screen, and go on meanwhile: a browser may take its time, or
    stay in the foreground."""
    import webbrowser
    from threading import Thread

    from stepwell.app.demo.screen import has_screen

    def opened() -> None:
        if not webbrowser.open(address):
            _tell("no browser could be started; open the address yourself")

    if has_screen():
        Thread(target=opened, daemon=True).start()
    else:
        _tell("there is no screen here; open the address in a browser on this machine")


async def _told_of_sandbox(demo: "RunningDemo") -> None:
    fault = await demo.sandbox_fault()
    if fault is not None:
        _tell(f"commands of the agent are refused here: {fault}")
        _tell("everything else works; `stepwell doctor` says more")


def _tell(text: str) -> None:
    click.echo(f"stepwell demo: {text}", err=True)
