"""A folder of its own for the commands of a test."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cli.command_line import STARTED, CommandLine


@pytest.fixture
def database(tmp_path: Path, migrated_sqlite: Path) -> Path:
    """The database that commands find in the folder; without it each test would migrate one."""
    return Path(shutil.copy(migrated_sqlite, tmp_path / "stepwell.db"))


@pytest.fixture
def replay_database(tmp_path: Path, migrated_sqlite: Path) -> Path:
    """The database of the tests of replays, for the same reason."""
    return Path(shutil.copy(migrated_sqlite, tmp_path / "replay.db"))


@pytest.fixture
def stepwell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> CommandLine:
    """The command line in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return CommandLine(monkeypatch, capsys)


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    """A test that fails half-way leaves none behind, nor its pipes."""
    yield
    while STARTED:
        with STARTED.pop() as process:
            if process.poll() is None:
                process.kill()
