"""Commands as processes of their own: what a terminal and a shell see of them."""

import io
import os
import pty
import resource
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from stepwell.cli.exit_codes import ExitCode
from stepwell.clock import SystemClock
from tests.integration.cli.command_line import CommandLine, started, write_shop

pytestmark = pytest.mark.usefixtures("database")

COMMAND = (sys.executable, "-m", "stepwell")
PATIENCE = 90.0
CLOCK = SystemClock()


def typed(
    arguments: Sequence[str], folder: Path, answers: Sequence[tuple[str, str]]
) -> tuple[int, str]:
    """The exit code and the screen of a command in a terminal, where each text is answered once it
    is seen."""
    process, screen = pty.fork()
    if process == 0:
        os.chdir(folder)
        os.execv(sys.executable, [*COMMAND, *arguments])
    seen, waiting, until = "", list(answers), CLOCK.monotonic() + PATIENCE
    begin = 0
    try:
        while CLOCK.monotonic() < until:
            if select.select([screen], [], [], 0.1)[0]:
                try:
                    more = os.read(screen, 65536)
                except OSError:
                    break
                if not more:
                    break
                seen += more.decode(errors="replace")
            if waiting and waiting[0][0] in seen[begin:]:
                begin = len(seen)
                os.write(screen, waiting.pop(0)[1].encode())
        else:
            os.kill(process, signal.SIGKILL)
    finally:
        os.close(screen)
    _, status = os.waitpid(process, 0)
    return os.waitstatus_to_exitcode(status), seen


def test_a_question_is_asked_where_there_is_a_terminal_and_the_run_goes_on(tmp_path: Path):
    shop = write_shop(tmp_path, "terminal_asks")
    code, seen = typed(["run", "--app", shop, "--agent", "asks", "Go"], tmp_path, [("? ", "1\r")])
    assert code == 0, seen
    assert "Which order?" in seen
    assert seen.count("Done.") == 1


@pytest.mark.parametrize(("key", "code"), [("\x03", ExitCode.CANCELLED), ("\x04", ExitCode.PAUSED)])
def test_who_leaves_at_a_question_leaves_it_waiting(
    key: str, code: ExitCode, stepwell: CommandLine, tmp_path: Path
):
    shop = write_shop(tmp_path, f"terminal_left_{code}")
    ended, seen = typed(
        ["run", "--app", shop, "--agent", "refunds", "Go"], tmp_path, [("[y/n/e] ", key)]
    )
    assert ended == code, seen
    assert "left paused" in seen
    assert "To answer, run: stepwell chat" in seen
    assert stepwell("why", "--json").document["status"] == "paused"


def test_ctrl_c_cancels_the_execution_itself(stepwell: CommandLine, tmp_path: Path):
    shop = write_shop(tmp_path, "terminal_slow")
    command = [*COMMAND, "run", "--app", shop, "--agent", "slow", "Go"]
    process = started(command, cwd=tmp_path)
    assert process.stderr is not None
    assert "-> wait" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (130, "")
    assert "cancelling (Ctrl-C again exits immediately)" in err
    told = stepwell("why", "--json").document
    assert (told["status"], told["stop"]["reason"]) == ("cancelled", "user_requested")


def test_a_conversation_has_commands_approvals_and_an_end(tmp_path: Path):
    shop = write_shop(tmp_path, "terminal_chat")
    answers = [
        ("> ", "Refund order 7\r"),
        ("[y/n/e] ", "maybe\r"),
        ("[y/n/e] ", "y\r"),
        ("Refunded.", "/why\r"),
        ("stepwell why", "/session\r"),
        ("stepwell chat", "/nonsense\r"),
        # Ctrl-D means the end only to who reads: after the prompt.
        ("/help lists the commands\r\n\x1b[1m> ", "\x04"),
    ]
    code, seen = typed(["chat", shop, "--agent", "refunds"], tmp_path, answers)
    assert code == 0, seen
    assert "May refund run with" in seen
    assert seen.count("please answer y, n or e") == 1
    assert "The run ended: the work is done" in seen
    assert f"stepwell chat {shop} --session " in seen


def test_an_approval_is_given_for_what_is_seen(tmp_path: Path):
    (tmp_path / "terminal_long.py").write_text(
        "from stepwell import Agent, UseApprovals, tool\n"
        "from stepwell.testing import ScriptedModel, call\n"
        "@tool\n"
        "def bash(command: str, note: str) -> str:\n"
        '    """Run."""\n'
        '    return "ran"\n'
        "long = 'echo ' + 'x' * 2000 + '; rm -rf / \\u202e#'\n"
        "script = [call('bash', id='b1', command=long, note='one\\ntwo'), 'Done.']\n"
        "agents = {'a': Agent(ScriptedModel(script), tools=[bash],"
        " capabilities=[UseApprovals('bash')])}\n"
    )
    answers = [("[y/n/e] ", "y\r")]
    code, seen = typed(["run", "--app", "terminal_long:agents", "Go"], tmp_path, answers)
    assert code == 0, seen
    assert "more characters]?" in seen
    assert "; rm -rf / ⟨U+202E⟩#" in seen.replace("\r\n  │ ", "")
    assert '  "note":\r\n  │ one\r\n  │ two\r\n' in seen


def test_ctrl_c_in_a_conversation_cancels_and_goes_on(tmp_path: Path):
    shop = write_shop(tmp_path, "terminal_cancels")
    answers = [("> ", "Go\r"), ("-> ", "\x03"), ("cancelled on request", "/quit\r")]
    code, seen = typed(["chat", shop, "--agent", "slow"], tmp_path, answers)
    assert code == 0, seen
    assert "Decided by user: Ctrl-C" in seen


def test_a_conversation_can_be_piped_and_taken_up_again(
    stepwell: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    shop = write_shop(tmp_path, "terminal_piped")
    monkeypatch.setattr(sys, "stdin", io.StringIO("one\n/unknown\ntwo\n/session\n"))
    first = stepwell("chat", shop, "--agent", "echoes")
    assert first.code == 0, first.err
    *said, session = first.out.split("\n")[:3]
    assert said == ["You said one", "You said two"]
    monkeypatch.setattr(sys, "stdin", io.StringIO("three\n/new\nfour\n"))
    again = stepwell("chat", shop, "--session", session)
    assert again.out == "You said three\nYou said four\n"
    assert "assistant: You said two" in again.err
    assert "three" in stepwell("sessions", "show", session).out
    assert "four" not in stepwell("sessions", "show", session).out


def test_the_second_ctrl_c_ends_a_server_at_once(tmp_path: Path):
    process = started([*COMMAND, "serve", "--port", "0"], cwd=tmp_path)
    assert process.stdout is not None
    assert "on http://127.0.0.1:" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE)
    assert process.returncode in (0, 130)


@pytest.mark.alone
def test_the_help_comes_quickly(tmp_path: Path):
    command = [*COMMAND, "--help"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)  # makes the bytecode
    times: list[float] = []
    for _ in range(3):
        before = _cpu_seconds_of_children()
        subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
        times.append(_cpu_seconds_of_children() - before)
    assert min(times) < 0.7, times


def _cpu_seconds_of_children() -> float:
    """CPU time, whatever else runs on the machine."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime
