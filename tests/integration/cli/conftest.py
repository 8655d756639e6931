"""A folder of its own for the commands of a test."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cli.command_line import STARTED, CommandLine


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
