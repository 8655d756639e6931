"""What a user got wrong is said in words, with what to do: modules, folders, files, names."""

import sys
from pathlib import Path

import pytest

from stepwell.cli.exit_codes import ExitCode
from tests.integration.cli.command_line import CommandLine, say, write_shop


@pytest.mark.parametrize(
    ("name", "text", "told", "frames"),
    [
        ("lacks", "import nope\n", "ModuleNotFoundError: No module named 'nope'", 1),
        (
            "divides",
            "def f():\n    return 1 / 0\n\nf()\n",
            "ZeroDivisionError: division by zero",
            2,
        ),
        ("exits", "import sys\n\nsys.exit(3)\n", "it ended the program (SystemExit: 3)", 1),
        ("typo", "x = (\n", "SyntaxError: '(' was never closed", 1),
        ("decodes", "import json\n\njson.loads('x')\n", "JSONDecodeError: Expecting value", 1),
    ],
)
def test_a_module_that_cannot_be_imported_is_told_with_its_own_lines_only(
    name: str, text: str, told: str, frames: int, stepwell: CommandLine, tmp_path: Path
):
    (tmp_path / f"wrong_{name}.py").write_text(text)
    for command in (["run", "x", "--app"], ["tools"], ["serve"], ["chat"]):
        ran = stepwell(*command, f"wrong_{name}:app")
        assert (ran.code, ran.out) == (ExitCode.CONFIGURATION, "")
        first, *rest = ran.err.splitlines()
        assert first.startswith(f"stepwell: wrong_{name} can't be imported: ")
        assert told in first
        places = [line for line in rest if line.startswith("  File ")]
        assert len(places) == frames
        assert all(f"wrong_{name}.py" in place for place in places)


def test_a_fault_of_the_configuration_of_an_agent_is_told_as_such(
    stepwell: CommandLine, tmp_path: Path
):
    (tmp_path / "wrong_setting.py").write_text(
        "from stepwell import Agent\nfrom stepwell.testing import ScriptedModel\n"
        "agent = Agent(ScriptedModel(['x']), max_steps=-1)\n"
    )
    ran = stepwell("tools", "wrong_setting:agent")
    assert ran.code == ExitCode.CONFIGURATION
    assert "Traceback" not in ran.err
    assert "can't be imported" not in ran.err


def test_a_key_makes_no_database_in_a_folder_that_nobody_meant(
    stepwell: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    refused = stepwell("keys", "create", "--user", "ada")
    assert (refused.code, refused.out) == (ExitCode.CONFIGURATION, "")
    assert f"there is no database stepwell.db in {tmp_path}" in (refused.err)
    assert "stepwell keys create --db sqlite:///stepwell.db" in refused.err
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("STEPWELL_DB", "sqlite:///named.db")
    made = stepwell("keys", "create", "--user", "ada")
    assert made.code == ExitCode.COMPLETED
    assert f"created the database {tmp_path / 'named.db'}\n" in made.err
    again = stepwell("keys", "create", "--user", "ada")
    assert "made a new" not in again.err
    assert "in the database named.db; it is not shown again" in again.err
    monkeypatch.delenv("STEPWELL_DB")
    (tmp_path / "stepwell.toml").write_text("port = 8500\n")
    assert stepwell("keys", "create", "--user", "ada").code == ExitCode.COMPLETED
    assert (tmp_path / "stepwell.db").exists()


def test_a_file_that_is_not_there_is_named_with_its_folder(stepwell: CommandLine, tmp_path: Path):
    ran = stepwell("tools", "--config", "nope.toml")
    assert (ran.code, ran.err) == (
        ExitCode.CONFIGURATION,
        "stepwell: file not found: nope.toml\n",
    )
    folder = tmp_path / "no" / "such"
    ran = stepwell("why", "--db", f"sqlite:///{folder}/x.db")
    assert ran.code == ExitCode.CONFIGURATION
    assert f"there is no database {folder}/x.db, nor a folder {folder}" in ran.err
    assert f" in {tmp_path}" not in ran.err
    ran = stepwell("why", "--db", "sqlite:///x.db")
    assert f"there is no database x.db in {tmp_path};" in ran.err


@pytest.mark.parametrize(
    "arguments", [["run", "hi"], ["why"], ["doctor"], ["sessions"], ["keys", "list"]], ids=" ".join
)
def test_a_folder_that_is_gone_is_said_to_be(
    arguments: list[str], stepwell: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    ran = stepwell(*arguments)
    assert (ran.code, ran.out) == (ExitCode.CONFIGURATION, "")
    assert ran.err.startswith("stepwell: the current folder no longer exists")


@pytest.mark.parametrize(
    "arguments",
    [["why"], ["trace"], ["sessions", "show"], ["run", "x", "--session"], ["chat", "--session"]],
    ids=" ".join,
)
def test_an_id_that_is_no_text_is_that_of_nothing(arguments: list[str], stepwell: CommandLine):
    assert stepwell("run", "Hello", "-q").code == ExitCode.COMPLETED
    ran = stepwell(*arguments, "a\udcffb")
    assert (ran.code, ran.out) == (ExitCode.FAILED, "")
    assert "'a\\udcffb'" in ran.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["run", "-nice"], "A prompt that starts with - goes after --."),
        (["run", "a\udcffb"], "the prompt is not valid UTF-8."),
        (["tools", "ag"], "Write an application as module:name."),
    ],
)
def test_wrong_usage_is_told_with_the_right_one(
    arguments: list[str], told: str, stepwell: CommandLine
):
    ran = stepwell(*arguments)
    assert (ran.code, ran.out) == (ExitCode.USAGE, "")
    assert ran.err.endswith(f"{told}\n")


@pytest.mark.parametrize("command", [["run", "x", "--session"], ["chat", "--session"], ["replay"]])
def test_what_ran_with_another_app_says_so(
    command: list[str], stepwell: CommandLine, tmp_path: Path
):
    session = say(stepwell, write_shop(tmp_path, "wrong_app"), "Hello")["session_id"]
    ran = stepwell(*command, session)
    assert ran.code == ExitCode.CONFIGURATION
    assert "known: assistant; give the app that it ran with: module:name\n" in ran.err


@pytest.mark.parametrize(
    ("typed", "told"),
    [("wy", "did you mean why?"), ("session", "did you mean sessions?"), ("zzzz", "'zzzz'.")],
)
def test_a_command_that_is_not_there_is_answered_with_those_like_it(
    typed: str, told: str, stepwell: CommandLine
):
    ran = stepwell(typed)
    assert ran.code == ExitCode.USAGE
    assert f"No such command {typed!r}" in ran.err
    assert ran.err.endswith(f"{told}\n")


def test_a_setting_of_another_kind_is_told_in_words(stepwell: CommandLine, tmp_path: Path):
    (tmp_path / "stepwell.toml").write_text('port = "abc"\n')
    ran = stepwell("serve")
    assert ran.code == ExitCode.CONFIGURATION
    assert ran.err == (
        f"stepwell: {tmp_path / 'stepwell.toml'}: port must be a whole number, got 'abc'\n"
    )


@pytest.fixture(autouse=True)
def _forget_modules():
    yield
    for name in [name for name in sys.modules if name.startswith("wrong_")]:
        del sys.modules[name]
