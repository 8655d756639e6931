"""Commands that are ended from outside: signals, pipes that nobody reads, disks that are full."""

import ctypes
import json
import os
import platform
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from stepwell.cli.exit_codes import ExitCode
from stepwell.clock import SystemClock
from tests.integration.cli.command_line import CommandLine, say, started, write_shop

pytestmark = pytest.mark.usefixtures("database")

COMMAND = (sys.executable, "-m", "stepwell")
PATIENCE = 90.0
TGKILL = {"x86_64": 234, "aarch64": 131}[platform.machine()]


def process(folder: Path, *arguments: str, **streams: Any) -> "subprocess.Popen[str]":
    """The command, in that folder."""
    return started([*COMMAND, *arguments], cwd=folder, **streams)


def slow(folder: Path, name: str, *more: str) -> "subprocess.Popen[str]":
    """A run whose tool takes half a minute."""
    shop = write_shop(folder, name)
    return process(folder, "run", "--app", shop, "--agent", "slow", "Go", *more)


def read_until(stream: IO[str] | None, text: str) -> None:
    assert stream is not None
    assert any(text in line for line in iter(stream.readline, ""))


def how_it_ended(stepwell: CommandLine) -> tuple[str, str]:
    told = stepwell("why", "--json").document
    return told["status"], told["stop"]["reason"]


def test_a_run_whose_events_nobody_reads_any_more_is_cancelled(
    stepwell: CommandLine, tmp_path: Path
):
    running = slow(tmp_path, "early_head", "--jsonl")
    assert running.stdout is not None
    assert '"message.sent"' in running.stdout.readline()
    running.stdout.close()
    assert running.stderr is not None
    err = running.stderr.read()
    running.stderr.close()
    assert running.wait(PATIENCE) == ExitCode.FAILED
    assert err.startswith("cancelling")
    assert how_it_ended(stepwell) == ("cancelled", "user_requested")


def test_a_run_that_ends_in_time_leaves_nothing_behind_that_waits_for_it(tmp_path: Path):
    shop = write_shop(tmp_path, "early_in_time")
    running = process(tmp_path, "run", "--app", shop, "Go", "--max-seconds", "600", "--quiet")
    out, err = running.communicate(timeout=PATIENCE)
    assert (running.returncode, out, err) == (0, "Order 7 was shipped.\n", "")


TALES = """
import asyncio
import os
import signal

from stepwell import Agent
from stepwell.app import AgentApp
from stepwell.messages import FinishReason
from stepwell.models import ModelResponse, TextDelta
from stepwell.testing import ScriptedModel


class Endless:
    name = "endless"

    async def stream(self, request):
        yield TextDelta("Once upon a time")
        await asyncio.sleep(0)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()

    async def respond(self, request):
        raise AssertionError("it is streamed")


CUT = ModelResponse(text="Once upon a time", finish_reason=FinishReason.LENGTH)
app = AgentApp({"endless": Agent(Endless()), "cut": Agent(ScriptedModel([CUT, CUT]))})
"""
MARK = "[incomplete: the answer was cut off here]"


@pytest.mark.parametrize("agent", ["endless", "cut"])
def test_an_answer_that_was_cut_off_is_marked(agent: str, tmp_path: Path):
    (tmp_path / "tales.py").write_text(TALES)
    run = process(tmp_path, "run", "--app", "tales:app", "--agent", agent, "Tell", "--quiet")
    out, err = run.communicate(timeout=PATIENCE)
    assert out == "Once upon a time\n"
    assert err.count(MARK) == 1
    told = process(tmp_path, "run", "--app", "tales:app", "--agent", agent, "Tell", "--json")
    document = json.loads(told.communicate(timeout=PATIENCE)[0])
    assert (document["answer"], document["incomplete"]) == ("Once upon a time", True)


def test_a_chat_marks_an_answer_that_was_cut_off(tmp_path: Path):
    (tmp_path / "tales.py").write_text(TALES)
    talk = process(tmp_path, "chat", "tales:app", "--agent", "cut", stdin=subprocess.PIPE)
    out, err = talk.communicate("Tell\n", timeout=PATIENCE)
    assert out == "Once upon a time\n"
    assert err.count(MARK) == 1


@pytest.mark.parametrize("times", [1, 2], ids=["kill", "timeout"])
def test_sigterm_cancels_a_run(times: int, stepwell: CommandLine, tmp_path: Path):
    running = slow(tmp_path, f"early_term_{times}")
    read_until(running.stderr, "-> wait")
    for _ in range(times):  # timeout(1) sends it to the process and to its group
        running.send_signal(signal.SIGTERM)
    _, err = running.communicate(timeout=PATIENCE)
    assert running.returncode == ExitCode.CANCELLED
    assert "cancelling" in err
    assert "Decided by user: SIGTERM" in err
    assert how_it_ended(stepwell) == ("cancelled", "user_requested")


@pytest.fixture
def terminal_can_close() -> Iterator[None]:
    """What is started hears of it, also where nohup(1) runs the tests."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("terminal_can_close")
def test_a_terminal_that_is_closed_cancels_a_run(stepwell: CommandLine, tmp_path: Path):
    running = slow(tmp_path, "early_hup")
    read_until(running.stderr, "-> wait")
    running.send_signal(signal.SIGHUP)
    _, err = running.communicate(timeout=PATIENCE)
    assert running.returncode == ExitCode.CANCELLED
    assert "Decided by user: SIGHUP" in err
    assert how_it_ended(stepwell) == ("cancelled", "user_requested")


def test_a_run_that_is_to_outlive_its_terminal_does(tmp_path: Path):
    shop = write_shop(tmp_path, "early_nohup")
    command = ["nohup", *COMMAND, "run", "--app", shop, "--agent", "slow", "Go"]
    running = started(command, cwd=tmp_path, stdin=subprocess.DEVNULL)
    read_until(running.stderr, "-> wait")
    running.send_signal(signal.SIGHUP)
    running.send_signal(signal.SIGTERM)
    _, err = running.communicate(timeout=PATIENCE)
    assert "Decided by user: SIGTERM" in err


def test_a_run_that_cannot_be_cancelled_is_left_at_the_second_signal(tmp_path: Path):
    shop = write_shop(tmp_path, "early_deaf")
    text = (tmp_path / "early_deaf.py").read_text()
    deaf = """\
    from contextlib import suppress

    for _ in range(100):
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(seconds)
"""
    text = text.replace("    await asyncio.sleep(seconds)\n", deaf)
    assert deaf in text
    (tmp_path / "early_deaf.py").write_text(text)
    running = process(tmp_path, "run", "--app", shop, "--agent", "slow", "Go")
    read_until(running.stderr, "-> wait")
    running.send_signal(signal.SIGTERM)
    read_until(running.stderr, "cancelling")
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=90)
    assert running.returncode == ExitCode.CANCELLED
    assert "exiting now" in err


def send_to_another_thread(pid: int, number: int) -> None:
    """A signal that does not wake the main thread from what it waits for. So is one that comes just
    before that begins to wait."""
    # Not the one with the largest id: ids begin anew once they are used up.
    thread = next(id for id in map(int, os.listdir(f"/proc/{pid}/task")) if id != pid)
    assert ctypes.CDLL(None).syscall(TGKILL, pid, thread, number) == 0


def test_ctrl_c_that_wakes_no_thread_cancels_a_run(stepwell: CommandLine, tmp_path: Path):
    running = slow(tmp_path, "early_unheard")
    read_until(running.stderr, "-> wait")
    send_to_another_thread(running.pid, signal.SIGINT)
    _, err = running.communicate(timeout=PATIENCE)
    assert running.returncode == ExitCode.CANCELLED
    assert "exiting now" not in err
    assert how_it_ended(stepwell) == ("cancelled", "user_requested")


@pytest.mark.parametrize("is_noticed", [True, False], ids=["at once", "nudged"])
def test_sigterm_ends_a_conversation_that_waits_for_its_person(tmp_path: Path, is_noticed: bool):
    ours, theirs = pty.openpty()
    try:
        shop = write_shop(tmp_path, "early_chat")
        running = process(tmp_path, "chat", shop, stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        seen, until = "", SystemClock().monotonic() + PATIENCE
        while "> " not in seen and SystemClock().monotonic() < until:
            if select.select([ours], [], [], 0.1)[0]:
                seen += os.read(ours, 4096).decode()
        if is_noticed:
            running.send_signal(signal.SIGTERM)
        else:
            send_to_another_thread(running.pid, signal.SIGTERM)
        assert running.wait(PATIENCE) == ExitCode.CANCELLED, seen
    finally:
        os.close(ours)


@pytest.mark.parametrize("arguments", [["sessions"], ["run", "Hi"], ["run", "Hi", "--jsonl"]])
def test_a_disk_that_is_full_is_said_in_one_line(
    arguments: list[str], stepwell: CommandLine, tmp_path: Path
):
    say(stepwell, write_shop(tmp_path, "early_full"), "Hello")
    with Path("/dev/full").open("w") as full:
        running = process(tmp_path, *arguments, stdout=full)
        _, err = running.communicate(timeout=PATIENCE)
    assert running.returncode == ExitCode.FAILED
    assert err.splitlines()[-1].startswith("stepwell: ")
    assert err.endswith("No space left on device\n")
    assert "Traceback" not in err
    assert "Exception ignored" not in err
    assert stepwell("why", "--json").document["status"] in ("completed", "cancelled")


def unread(folder: Path, *arguments: str) -> tuple[int, str]:
    """The exit code and the standard error of a command whose output nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    running = process(folder, *arguments, stdout=writing)
    os.close(writing)
    _, err = running.communicate(timeout=PATIENCE)
    return running.returncode, err


def test_a_reader_that_went_away_is_no_fault(stepwell: CommandLine, tmp_path: Path):
    say(stepwell, write_shop(tmp_path, "early_pipe"), "Hello")
    for arguments in (["trace"], ["why"], ["trace", "--jsonl"], ["sessions"]):
        assert unread(tmp_path, *arguments) == (ExitCode.COMPLETED, ""), arguments


def test_a_verdict_is_told_by_the_exit_code_also_where_nobody_reads_it(
    stepwell: CommandLine, tmp_path: Path
):
    shop = write_shop(tmp_path, "early_verdict")
    stepwell("run", "--app", shop, "--agent", "limited", "Go", "-q")
    assert unread(tmp_path, "replay", shop) == (ExitCode.COMPLETED, "")
    write_shop(tmp_path, "early_verdict", max_steps=2)
    assert unread(tmp_path, "replay", shop) == (ExitCode.FAILED, "")
    (tmp_path / "stepwell.toml").write_text("[server]\nhost = 'x'\n")
    assert unread(tmp_path, "doctor") == (ExitCode.CONFIGURATION, "")
