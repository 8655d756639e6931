"""A folder of its own for the commands of a test."""

import sys
from pathlib import Path

import pytest

from tests.integration.cli.command_line import CommandLine


@pytest.fixture
def stepwell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> CommandLine:
    """The command line in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return CommandLine(monkeypatch, capsys)
