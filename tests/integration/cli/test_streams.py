"""Standard streams that are closed, or that can't hold every letter."""

import subprocess
import sys
from pathlib import Path

import pytest

from stepwell.cli.exit_codes import ExitCode
from tests.integration.cli.command_line import CommandLine, say, write_shop

pytestmark = pytest.mark.usefixtures("database")

Ended = "subprocess.CompletedProcess[bytes]"


def in_shell(folder: Path, line: str, typed: bytes = b"", encoding: str = "utf-8") -> Ended:
    """A line of a shell, in which ``stepwell`` is the command."""
    python = f'PYTHONIOENCODING={encoding} "{sys.executable}"'
    script = f'stepwell() {{ {python} -m stepwell "$@"; }}\n{line}'
    command = ["bash", "-c", script]
    return subprocess.run(command, cwd=folder, input=typed, capture_output=True, check=False)


def test_letters_that_a_stream_cannot_hold_are_written_out(tmp_path: Path):
    shop = write_shop(tmp_path, "streams_ascii")
    ran = in_shell(
        tmp_path,
        f"stepwell run --app {shop} --agent echoes 'h\u00e9llo \U0001f600'",
        encoding="ascii",
    )
    assert (ran.returncode, ran.stdout) == (0, rb"You said h\xe9llo \U0001f600" + b"\n"), ran.stderr


@pytest.mark.parametrize("command", ["run -", "chat"])
def test_what_is_piped_in_is_utf_8_whatever_the_stream_is_set_to(command: str, tmp_path: Path):
    shop = write_shop(tmp_path, "streams_piped")
    app = f"--app {shop}" if command == "run -" else shop
    line = f"stepwell {command} {app} --agent echoes"
    ran = in_shell(tmp_path, line, "h\u00e9llo\n".encode(), encoding="ascii")
    assert (ran.returncode, ran.stdout[:16]) == (0, rb"You said h\xe9llo"[:16]), ran.stderr
    wrong = in_shell(tmp_path, line, b"a\xffb\n")
    assert (wrong.returncode, wrong.stdout) == (ExitCode.USAGE if app != shop else 0, b"")
    assert b"is not valid UTF-8." in wrong.stderr
    assert b"Traceback" not in wrong.stderr


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("stepwell run --app SHOP hi >&-", 0),
        ("stepwell run --app SHOP hi >&- 2>&-", 0),
        ("stepwell run --app SHOP - <&-", ExitCode.USAGE),
        ("stepwell chat SHOP <&-", 0),
        ("stepwell why >&-", 0),
        ("stepwell doctor >&-", 0),
    ],
)
def test_closed_streams_lead_nowhere(line: str, code: int, stepwell: CommandLine, tmp_path: Path):
    shop = write_shop(tmp_path, "streams_closed")
    say(stepwell, shop, "Hello")
    ran = in_shell(tmp_path, line.replace("SHOP", shop))
    assert (ran.returncode, ran.stdout) == (code, b""), ran.stderr
    assert b"Traceback" not in ran.stderr
    assert stepwell("why", "--json").document["status"] == "completed"
