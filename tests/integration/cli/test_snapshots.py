"""``snapshots``: the stored states of an execution, as whole JSON."""

import json
from pathlib import Path

from stepwell.cli.exit_codes import ExitCode
from tests.integration.cli.command_line import CommandLine, say, write_shop


def test_every_listed_snapshot_is_shown_whole(stepwell: CommandLine, tmp_path: Path) -> None:
    say(stepwell, write_shop(tmp_path, "snapshots_whole"), "Hello")
    listed = json.loads(stepwell("snapshots", "list", "--json").out)
    assert len(listed) >= 2
    assert [it["is_final"] for it in listed].count(True) == 1
    for snapshot in listed:
        shown = stepwell("snapshots", "show", snapshot["id"])
        assert json.loads(shown.out)["format"] == "stepwell.state"
    lines = stepwell("snapshots", "list").out.splitlines()
    assert [line.split()[0] for line in lines] == [it["id"] for it in listed]


def test_what_is_not_there_is_said(stepwell: CommandLine, tmp_path: Path) -> None:
    say(stepwell, write_shop(tmp_path, "snapshots_missing"), "Hello")
    shown = stepwell("snapshots", "show", "nothing")
    assert shown.code != ExitCode.COMPLETED
    assert "nothing" in shown.err
