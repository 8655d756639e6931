"""Commands where none of the extras is installed, as after a plain ``pip install``."""

import subprocess
import sys
from pathlib import Path

import pytest

from stepwell.app.diagnosis.packages import EXTRAS

MISSING = sorted(
    {name.partition(".")[0] for names in EXTRAS.values() for name in names} - {"click"}
)
BARE = f"""
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {[*MISSING, "starlette"]!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
from stepwell.cli.main import main
main()
"""
"""A program in which no package of an extra can be imported."""


def bare(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", BARE, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("arguments", [["models"], ["models", "--json"], ["init", "new"]])
def test_what_needs_no_server_runs_without_it(arguments: list[str], tmp_path: Path):
    ran = bare(tmp_path, *arguments)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout


def test_doctor_says_which_extra_is_missing_and_goes_on(tmp_path: Path):
    ran = bare(tmp_path, "doctor")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "! extra server: not installed (aiosqlite, alembic, fastapi" in ran.stdout
    assert "! database: it was not checked, nor auth and app" in ran.stdout
    assert "pip install 'stepwell[server]'" in ran.stdout
    assert "provider keys: " in ran.stdout


def test_what_needs_the_server_says_how_to_get_it(tmp_path: Path):
    ran = bare(tmp_path, "run", "Hello")
    assert ran.returncode == 5
    assert "install it with: pip install 'stepwell[server]'" in ran.stderr
    assert "Traceback" not in ran.stderr
