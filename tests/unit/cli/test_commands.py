"""The group of commands: their names, their help, and what is loaded to show it."""

import subprocess
import sys

import pytest
from click.testing import CliRunner

from stepwell.cli import main as cli
from stepwell.cli.exit_codes import ExitCode

NAMES = (
    *("demo", "init", "run", "chat", "serve", "worker", "sessions", "why", "trace"),
    *("snapshots", "replay"),
    *("tools", "models", "keys", "doctor"),
)


def test_all_commands_are_listed_in_the_order_in_which_they_are_used():
    told = CliRunner().invoke(cli.stepwell, ["--help"])
    lines = told.output.partition("Commands:")[2].splitlines()
    listed = [line.split()[0] for line in lines if line[:3].strip() and len(line) > 10]
    assert told.exit_code == 0
    assert [name for name in listed if name in NAMES] == list(NAMES)
    assert tuple(cli.COMMANDS) == NAMES


@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("demo", "init", "doctor")])
def test_the_help_of_each_command_has_an_example(name: str):
    told = CliRunner().invoke(cli.stepwell, [name, "--help"])
    assert told.exit_code == 0, told.output
    assert f"  stepwell {name}" in told.output


def test_a_command_whose_module_is_missing_breaks_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(cli.COMMANDS, "not_there_yet", "Something to come.")
    assert "not_there_yet" in CliRunner().invoke(cli.stepwell, ["--help"]).output
    used = CliRunner().invoke(cli.stepwell, ["not_there_yet"])
    assert used.exit_code == ExitCode.USAGE
    assert "No such command 'not_there_yet'" in used.output


def test_exit_codes_are_those_that_scripts_rely_on():
    told = {code.name: code.value for code in ExitCode}
    assert told == {
        "COMPLETED": 0,
        "FAILED": 1,
        "USAGE": 2,
        "LIMIT": 3,
        "PAUSED": 4,
        "CONFIGURATION": 5,
        "CANCELLED": 130,
    }


def test_the_list_of_commands_is_shown_without_loading_what_commands_need():
    look = (
        "import sys\n"
        "from click.testing import CliRunner\n"
        "from stepwell.cli.main import stepwell\n"
        "assert CliRunner().invoke(stepwell, ['--help']).exit_code == 0\n"
        "heavy = {'sqlalchemy', 'fastapi', 'uvicorn', 'pydantic', 'stepwell.app'}\n"
        "print(*sorted(heavy & set(sys.modules)))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", look], capture_output=True, text=True, check=True, timeout=30
    )
    assert ran.stdout.split() == []
