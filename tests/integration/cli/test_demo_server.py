"""The server of the demo, in this process."""

import asyncio
import socket

import pytest

from stepwell.app.demo.screen import has_screen
from stepwell.cli.demo import run, server
from stepwell.cli.demo.demo_command import process_start
from stepwell.cli.demo.server import running_demo
from stepwell.cli.demo.visitor import Visitor, visitor_of
from stepwell.clock import SystemClock
from stepwell.testing import FakeClock


async def test_a_usual_port_that_is_taken_is_replaced_by_a_free_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(server, "PORT", port)
        async with running_demo(None, None, tell=told.append) as demo:
            assert demo.address != f"http://127.0.0.1:{port}"
    assert [str(port) in line for line in told] == [True]


async def test_a_person_may_write_other_arguments_than_the_agent() -> None:
    """The script goes by what the tests say then."""
    async with (
        running_demo(0, None, tell=print, pace=run.QUICK) as demo,
        visitor_of(demo.address) as visitor,
    ):
        asked = await visitor.run("fix the tests, please")
        arguments = {"path": "prices.py", "old_string": "with_tax - ", "new_string": "with_tax * "}
        answer = {"approved": True, "arguments": arguments}
        done = await visitor.answer_question(asked, answer)
        assert "still" in done.answer
        assert "fails" in done.answer


async def test_a_part_that_never_ends_is_given_up() -> None:
    async def endless(_: Visitor) -> str:
        await asyncio.Event().wait()
        return ""

    clock, told = SystemClock(), list[str]()
    async with visitor_of("http://127.0.0.1:9") as visitor:
        until = (clock, clock.monotonic() + 0.05)
        part = await run.part_of("endless", endless, visitor, until, told.append)
        unreachable = await run.part_of(
            "unreachable", lambda it: it.get("x"), visitor, (clock, clock.monotonic() + 5), print
        )
    assert not part.happened
    assert part.detail == "timed out"
    assert told == [part.line]
    assert not unreachable.happened
    assert "ConnectError" in unreachable.detail


def test_a_process_began_before_it_is_asked_about() -> None:
    clock = SystemClock()
    assert clock.monotonic() - process_start(clock) > 0.0
    assert process_start(FakeClock()) < FakeClock().monotonic()


def test_a_window_needs_a_screen() -> None:
    assert has_screen({"WAYLAND_DISPLAY": "wayland-0"}, platform="linux")
    assert not has_screen({"DISPLAY": ""}, platform="linux")
    assert has_screen({}, platform="darwin")
