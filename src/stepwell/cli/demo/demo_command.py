"""The command ``demo``: serve the demo until a signal ends it, or check it."""

import asyncio
import signal
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from stepwell.cli.exit_codes import ExitCode
from stepwell.cli.options import json_option, start_logging
from stepwell.clock import Clock, SystemClock

if TYPE_CHECKING:
    from stepwell.cli.demo.report import Report
    from stepwell.cli.demo.server import RunningDemo


@click.command("demo")
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="Port; 0 picks a free one.  [default: 8400, or a free one if it is taken]",
)
@click.option("--db", help="Database to keep.  [default: a temporary one]")
@click.option(
    "--check", is_flag=True, help="Run all parts without a browser; exit code 0 if all succeed."
)
@json_option
def command(no_browser: bool, port: int | None, db: str | None, check: bool, as_json: bool) -> None:
    """Open the page with an agent at work. Needs no key, no account and no network.

    The agent's answers are scripted; no model is called. The loop, the tools, the sandbox, the
    database and the decisions are real. The agent fixes a failing test, asks a question, waits for
    approval, delegates to a subagent, recovers from a failing tool, and reaches a limit.

    Ctrl-C ends the demo and removes its files.
    """
    if as_json and not check:
        raise click.UsageError("--json needs --check.")
    started_at = process_start(SystemClock())
    start_logging("warning")
    if not check:
        asyncio.run(_show(port, db, started_at, open_browser=not no_browser))
        return
    from stepwell.cli.demo.report import report_text

    try:
        report = asyncio.run(_check(port, db, started_at))
    except asyncio.CancelledError:
        _print("cancelled")
        sys.exit(ExitCode.CANCELLED)
    click.echo(report_text(report, as_json=as_json))
    if not report.is_whole:
        sys.exit(ExitCode.FAILED)


async def _check(port: int | None, db: str | None, started_at: float) -> "Report":
    from stepwell.cli.demo.run import check_demo

    task = asyncio.create_task(check_demo(port, db, tell=_print, started_at=started_at))
    _on_end(task.cancel)
    return await task


def _on_end(end: Callable[[], object]) -> None:
    """Call ``end`` for every Ctrl-C and SIGTERM. The demo ends within seconds; exiting faster would
    leave its folder behind."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end)


async def _show(port: int | None, db: str | None, started_at: float, *, open_browser: bool) -> None:
    from stepwell.cli.demo.server import running_demo

    ended = asyncio.Event()
    _on_end(ended.set)
    async with running_demo(port, db, tell=_print) as demo:
        session = await demo.send_first_example()
        _print(f"ready in {demo.ready_at - started_at:.1f} s; Ctrl-C ends it")
        address = f"{demo.address}/#/s/{session}"
        click.echo(address)
        sys.stdout.flush()
        # The URL of a given database may contain a password.
        where = (
            f"stepwell why --db {demo.database}" if db is None else "stepwell why, with this --db"
        )
        _print(f"to see why a run stopped, in another terminal: {where}")
        if open_browser:
            _open(address)
        await _print_sandbox_fault(demo)
        ending = asyncio.create_task(ended.wait())
        await asyncio.wait({ending, demo.serving}, return_when=asyncio.FIRST_COMPLETED)
        ending.cancel()


def _open(address: str) -> None:
    """Open a window in the background if there is a screen: a browser may block."""
    import webbrowser
    from threading import Thread

    from stepwell.app.demo.screen import has_screen

    def open_window() -> None:
        if not webbrowser.open(address):
            _print("no browser could be started; open the address yourself")

    if has_screen():
        Thread(target=open_window, daemon=True).start()
    else:
        _print("there is no screen here; open the address in a browser on this machine")


async def _print_sandbox_fault(demo: "RunningDemo") -> None:
    fault = await demo.sandbox_fault()
    if fault is not None:
        _print(f"the agent can't run commands on this machine: {fault}")
        _print("everything else works; see `stepwell doctor`")


def _print(text: str) -> None:
    click.echo(f"stepwell demo: {text}", err=True)


def process_start(clock: Clock) -> float:
    """Return when this process started, by that clock; call it first. Until its command runs, a
    process only loads modules, so its CPU time is the time since its start. (The kernel's start
    time may be that of a shell that exec'ed into this process.)"""
    return clock.monotonic() - time.process_time()
