"""``stepwell run``: exit codes, streams, and what is stored of it."""

import io
import json
import shlex
import sys
from pathlib import Path

import pytest

from stepwell.cli.exit_codes import ExitCode
from tests.integration.cli.command_line import CommandLine, say, write_shop

pytestmark = pytest.mark.usefixtures("database")


def test_the_answer_is_on_standard_output_and_progress_on_standard_error(
    stepwell: CommandLine, tmp_path: Path
):
    shop = write_shop(tmp_path, "run_shop")
    ran = stepwell("run", "--app", shop, "Where is order 7?")
    assert (ran.code, ran.out) == (ExitCode.COMPLETED, "Order 7 was shipped.\n")
    assert "-> look_up (order: 7)" in ran.err
    assert "<- look_up in " in ran.err
    execution_id = ran.err.splitlines()[-1].split()[0]
    assert ran.err.endswith(f"stepwell why {execution_id}\n")
    why = stepwell("why", execution_id)
    assert why.code == ExitCode.COMPLETED
    assert "Decided by ToolCallPresenceCheck: the model called no tools" in why.out


@pytest.mark.parametrize(
    ("agent", "code", "told"),
    [
        ("breaks", ExitCode.FAILED, "an error ended the run"),
        ("limited", ExitCode.LIMIT, "Decided by StepsLimit: 3 of 3 steps used"),
        ("asks", ExitCode.PAUSED, "question q1: Which order?"),
        ("pausing", ExitCode.PAUSED, "  budget: steps_limit was reached"),
    ],
)
def test_the_exit_code_says_how_it_ended(
    agent: str, code: ExitCode, told: str, stepwell: CommandLine, tmp_path: Path
):
    shop = write_shop(tmp_path, f"run_{agent}")
    ran = stepwell("run", "--app", shop, "--agent", agent, "Go")
    assert (ran.code, ran.out) == (code, "")
    assert told in ran.err
    if code is ExitCode.PAUSED:
        session = json.loads(stepwell("sessions", "--json").out)[0]["id"]
        assert f"To answer, run: stepwell chat {shop} --session {session}" in ran.err


def test_one_document_has_the_execution_its_answer_and_why_it_stopped(
    stepwell: CommandLine, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys, "stdin", io.StringIO("What time is it?\n"))
    ran = stepwell("run", "-", "--json")
    assert (ran.code, ran.err) == (ExitCode.COMPLETED, "")
    assert sorted(ran.document) == ["answer", "execution", "incomplete", "sent", "stop"]
    assert ran.document["sent"] is True
    assert ran.document["execution"]["status"] == "completed"
    assert "What time is it?" in ran.document["answer"]
    assert ran.document["stop"]["reason"] == "completed"


def test_lines_of_json_are_the_envelopes_of_the_log(stepwell: CommandLine, tmp_path: Path):
    shop = write_shop(tmp_path, "run_lines")
    ran = stepwell("run", "--app", shop, "--jsonl", "Go")
    told = [json.loads(line) for line in ran.out.splitlines()]
    assert told[0]["type"] == "message.sent"
    assert (told[-1]["type"], told[-1]["payload"]["status"]) == ("agent.status", "completed")
    assert [each["seq"] for each in told] == sorted(each["seq"] for each in told)
    stored = stepwell("trace", told[0]["execution_id"], "--jsonl")
    assert stored.out == ran.out


def test_a_session_goes_on_and_knows_what_was_said(stepwell: CommandLine, tmp_path: Path):
    shop = write_shop(tmp_path, "run_again")
    first = say(stepwell, shop, "Hello")
    again = say(stepwell, shop, "Again", "--session", first["session_id"][:-2])
    assert again["session_id"] == first["session_id"]
    shown = stepwell("sessions", "show", first["session_id"])
    assert shown.out.index("Hello") < shown.out.index("Again")
    session = ("--session", first["session_id"])
    refused = stepwell("run", "--app", shop, "x", *session, "--agent", "asks")
    assert refused.code == ExitCode.FAILED
    assert "belongs to agent 'echoes', not 'asks'" in refused.err


def test_nothing_is_sent_behind_a_question_that_waits(stepwell: CommandLine, tmp_path: Path):
    shop = write_shop(tmp_path, "run_behind")
    ran = stepwell("run", "--app", shop, "--agent", "asks", "Go", "--json")
    session = ran.document["execution"]["session_id"]
    assert ran.code == ExitCode.PAUSED
    again = stepwell("run", "--app", shop, "--session", session, "More")
    assert (again.code, again.out) == (ExitCode.PAUSED, "")
    assert again.err.startswith("Not sent: ")
    assert "question q1: Which order?" in again.err
    assert f"To answer, run: stepwell chat {shop} --session {session}" in again.err
    told = stepwell("run", "--app", shop, "--session", session, "More", "--json")
    assert (told.code, told.document["sent"]) == (ExitCode.PAUSED, False)
    assert told.document["execution"]["id"] == ran.document["execution"]["id"]
    assert "More" not in stepwell("sessions", "show", session).out


def test_it_is_cancelled_when_its_time_is_over(stepwell: CommandLine, tmp_path: Path):
    shop = write_shop(tmp_path, "run_slow")
    ran = stepwell("run", "--app", shop, "--agent", "slow", "Go", "--max-seconds", "0.3")
    assert ran.code == ExitCode.LIMIT
    assert "Decided by user: the limit of --max-seconds 0.3 was reached" in ran.err
    assert stepwell("why", "--json").document["status"] == "cancelled"


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["run", "  "], ExitCode.USAGE, "the prompt is empty"),
        (["run", "x", "--max-seconds", "nan"], ExitCode.USAGE, "nan is not a finite number"),
        (["run", "x", "--max-seconds", "inf"], ExitCode.USAGE, "inf is not a finite number"),
        (["run", "x", "--json", "--jsonl"], ExitCode.USAGE, "--json and --jsonl"),
        (["run", "x", "--app", "nowhere:app"], ExitCode.CONFIGURATION, "no module 'nowhere'"),
        (["run", "x", "--agent", "nobody"], ExitCode.CONFIGURATION, "known: assistant"),
        (["run", "x", "--session", "none"], ExitCode.FAILED, "there is no session 'none'"),
        (["run", "x", "--model", "nope:1"], ExitCode.CONFIGURATION, "Unknown model preset"),
    ],
)
def test_what_is_wrong_is_said(
    arguments: list[str], code: ExitCode, told: str, stepwell: CommandLine
):
    ran = stepwell(*arguments)
    assert (ran.code, ran.out) == (code, "")
    assert told in ran.err


def test_an_app_with_a_database_of_its_own_is_told_and_hinted_at(
    stepwell: CommandLine, tmp_path: Path
):
    write_shop(tmp_path, "run_own")
    text = (tmp_path / "run_own.py").read_text()
    text = text.replace("AgentApp(agents)", 'AgentApp(agents, db="sqlite:///own.db")')
    (tmp_path / "run_own.py").write_text(text)
    refused = stepwell("run", "x", "--app", "run_own:app", "--db", "sqlite:///other.db")
    assert refused.code == ExitCode.USAGE
    assert "run_own:app sets its own database" in refused.err
    ran = stepwell("run", "x", "--app", "run_own:app")
    assert ran.err.rstrip().endswith("--db sqlite:///own.db")


def test_what_is_hinted_at_has_the_configuration_of_the_run(
    stepwell: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    shop = write_shop(tmp_path, "run_configured")
    file = tmp_path / "prod env.toml"
    file.write_text(f'app = "{shop}"\ndb = "sqlite:///prod.db"\n')
    ran = stepwell("run", "Go", "--agent", "asks", "--config", file.name)
    assert ran.code == ExitCode.PAUSED
    hinted = next(line for line in ran.err.splitlines() if line.startswith("To answer, run: "))
    assert hinted.endswith(" --config 'prod env.toml'")
    assert "--db" not in ran.err
    again = stepwell(*shlex.split(hinted.partition("stepwell ")[2]))
    assert "Which order?" in again.err
    why = shlex.split(ran.err.splitlines()[-1].partition("stepwell ")[2])
    assert stepwell(*why).code == ExitCode.COMPLETED
    other = stepwell("run", "Go", "--config", file.name, "--db", "sqlite:///other.db")
    assert other.err.rstrip().endswith("--config 'prod env.toml' --db sqlite:///other.db")
