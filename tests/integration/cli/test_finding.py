"""Which execution is meant: by its id, by that of its session, by how either begins."""

from pathlib import Path
from typing import Any

import pytest

from stepwell.cli.exit_codes import ExitCode
from tests.integration.cli.command_line import CommandLine, say, write_shop


@pytest.fixture
def two(stepwell: CommandLine, tmp_path: Path) -> list[Any]:
    """Two executions of one session, the newer one last, and one of another session."""
    shop = write_shop(tmp_path, "finding_shop")
    first = say(stepwell, shop, "Hello")
    second = say(stepwell, shop, "Again", "--session", first["session_id"])
    say(stepwell, shop, "Elsewhere")
    return [first, second]


@pytest.mark.parametrize("command", ["why", "trace"])
def test_the_id_of_a_session_means_its_newest_execution_which_is_said(
    command: str, stepwell: CommandLine, two: list[Any]
):
    session = two[0]["session_id"]
    for given in (session, session[:-2]):
        ran = stepwell(command, given)
        assert ran.code == ExitCode.COMPLETED, ran.err
        assert ran.out.startswith(two[1]["id"])
        assert f"session {session}: its newest execution is {two[1]['id']}" in ran.err


def test_a_session_shows_its_executions_so_that_older_ones_are_found(
    stepwell: CommandLine, two: list[Any]
):
    shown = stepwell("sessions", "show", two[0]["session_id"])
    listed = shown.out.partition("\nExecutions\n")[2].splitlines()
    assert [line.split()[:3] for line in listed] == [
        [each["id"], "completed", "completed"] for each in two
    ]
    assert stepwell("why", listed[0].split()[0]).out.startswith(two[0]["id"])
    told = stepwell("sessions", "show", two[0]["session_id"], "--json").document
    assert [each["id"] for each in told["executions"]] == [each["id"] for each in two]


def test_what_begins_a_session_and_executions_is_refused_with_both(
    stepwell: CommandLine, two: list[Any]
):
    ran = stepwell("why", two[0]["session_id"][:4])
    assert (ran.code, ran.out) == (ExitCode.FAILED, "")
    for id in (two[0]["session_id"], two[0]["id"], two[1]["id"]):
        assert id in ran.err
    assert "give more of the id" in ran.err


def test_the_beginning_of_a_session_and_of_its_only_execution_means_the_same(
    stepwell: CommandLine, tmp_path: Path
):
    only = say(stepwell, write_shop(tmp_path, "finding_only"), "Hello")
    assert stepwell("why", only["session_id"][:4]).out.startswith(only["id"])


def test_an_id_of_nothing_is_refused_with_what_to_do(stepwell: CommandLine, two: list[Any]):
    ran = stepwell("why", f"x{two[0]['id']}")
    assert ran.code == ExitCode.FAILED
    assert "`stepwell sessions`" in ran.err


def test_without_an_id_the_newest_is_replayed_and_that_of_a_session_by_its_id(
    stepwell: CommandLine, tmp_path: Path
):
    shop = write_shop(tmp_path, "finding_replay")
    ids = [
        stepwell("run", "--app", shop, "--agent", "limited", "Go", "--json").document["execution"]
        for _ in range(2)
    ]
    newest = stepwell("replay", shop)
    assert (newest.code, newest.out.split()[0]) == (ExitCode.COMPLETED, ids[1]["id"])
    other = stepwell("replay", ids[0]["session_id"], shop)
    assert (other.code, other.out.split()[0]) == (ExitCode.COMPLETED, ids[0]["id"])
