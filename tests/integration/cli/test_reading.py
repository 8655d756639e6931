"""``sessions``, ``why``, ``trace`` and ``tools``: what they show, and that they change nothing."""

import asyncio
from pathlib import Path

import pytest

from stepwell.cli.database import open_database
from stepwell.cli.exit_codes import ExitCode
from stepwell.cli.session_messages import all_messages, is_spoken, last_spoken
from tests.integration.cli.command_line import CommandLine, say, write_shop


@pytest.mark.parametrize(
    "command",
    [
        *(["why"], ["trace"], ["sessions"], ["sessions", "rename", "x", "y"]),
        *(["keys", "list"], ["keys", "revoke", "x"]),
    ],
    ids=" ".join,
)
def test_a_database_that_is_not_there_is_not_made(
    command: list[str], stepwell: CommandLine, tmp_path: Path
):
    ran = stepwell(*command)
    assert ran.code == ExitCode.CONFIGURATION
    assert "there is no database stepwell.db" in ran.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [["why"], ["sessions"], ["keys", "list"], ["run", "x"]])
@pytest.mark.parametrize("sound", [100, 4096, 40960])
def test_a_damaged_database_is_said_to_be_damaged(
    command: list[str], sound: int, stepwell: CommandLine, tmp_path: Path
):
    say(stepwell, write_shop(tmp_path, "reading_damaged"), "Hello")
    file = tmp_path / "stepwell.db"
    whole = file.read_bytes()
    file.write_bytes(whole[:sound] + b"\x7f" * (len(whole) - sound))
    ran = stepwell(*command)
    assert (ran.code, ran.out) == (ExitCode.CONFIGURATION, "")
    assert ran.err.startswith(f"stepwell: {file} is damaged, or no SQLite database: ")


@pytest.mark.parametrize(
    "command",
    [["why"], ["trace", "--events"], ["sessions"], ["sessions", "show"], ["keys", "list"]],
    ids=" ".join,
)
def test_who_only_reads_changes_nothing_and_leaves_nothing_behind(
    command: list[str], stepwell: CommandLine, tmp_path: Path
):
    shop = write_shop(tmp_path, "reading_only")
    session = say(stepwell, shop, "Hello")["session_id"]
    (tmp_path / "stepwell.db-lock").unlink()
    (tmp_path / "stepwell.db").chmod(0o444)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    ran = stepwell(*command, *([session] if "show" in command else []))
    assert ran.code == ExitCode.COMPLETED, ran.err
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before
    assert (tmp_path / "stepwell.db").stat().st_mode & 0o777 == 0o444


def test_keys_are_made_listed_and_revoked(stepwell: CommandLine, tmp_path: Path):
    made = stepwell("keys", "--db", "sqlite:///stepwell.db", "create", "--user", "ada")
    assert f"created the database {tmp_path / 'stepwell.db'}\n" in made.err
    assert "in the database stepwell.db; it is not shown again" in made.err
    assert stepwell("keys", "list").out.split()[2:5] == ["ada", "user", "valid"]
    key = stepwell("keys", "list").out.split()[0]
    assert f"key {key} of ada" in made.err
    assert stepwell("keys", "revoke", key).code == ExitCode.COMPLETED
    assert stepwell("keys", "list").out.split()[4] == "revoked"
    assert stepwell("keys", "revoke", "nothing").code == ExitCode.FAILED


def test_keys_are_told_to_programs_and_take_their_options_where_others_do(stepwell: CommandLine):
    where = ("--db", "sqlite:///other.db", "--json")
    made = stepwell("keys", "create", "--user", "ada", *where).document
    assert made["prefix"] in made["secret"]
    [listed] = stepwell("keys", "list", *where).document
    assert (listed["id"], listed["user_id"], "secret" in listed) == (made["id"], "ada", False)
    assert stepwell("keys", "revoke", made["id"], *where).document["revoked_at"] is not None
    assert stepwell("keys", *where, "list").document[0]["revoked_at"] is not None


_OWN_SIGN_IN = """
from stepwell import Agent
from stepwell.app import AgentApp
from stepwell.testing import ScriptedModel

async def authenticate(request):
    return None

authenticate.accepts_keys = {accepts}
app = AgentApp(Agent(ScriptedModel([])), authenticate=authenticate)
"""


def test_no_key_is_made_for_an_application_that_accepts_none(stepwell: CommandLine, tmp_path: Path):
    for name, accepts in (("keyless", False), ("keyed", True)):
        (tmp_path / f"{name}.py").write_text(_OWN_SIGN_IN.format(accepts=accepts))
    (tmp_path / "stepwell.toml").write_text('app = "keyless:app"')
    refused = stepwell("keys", "create", "--user", "ada")
    assert refused.code == ExitCode.CONFIGURATION
    assert "keyless:app has its own authenticator" in refused.err
    assert not (tmp_path / "stepwell.db").exists()
    (tmp_path / "stepwell.toml").write_text('app = "keyed:app"')
    made = stepwell("keys", "create", "--user", "ada")
    assert made.code == ExitCode.COMPLETED
    assert "auth.mode is dev" not in made.err


def test_who_makes_a_key_in_dev_mode_learns_that_the_server_needs_another(
    stepwell: CommandLine, tmp_path: Path
):
    (tmp_path / "stepwell.toml").touch()
    assert "STEPWELL_AUTH__MODE=keys" in stepwell("keys", "create", "--user", "ada").err
    (tmp_path / "stepwell.toml").write_text('[auth]\nmode = "keys"')
    assert "auth.mode" not in stepwell("keys", "create", "--user", "ada").err


def test_what_was_said_is_found_behind_all_that_happened_meanwhile(
    stepwell: CommandLine, tmp_path: Path
):
    shop = write_shop(tmp_path, "reading_said")
    ran = stepwell("run", "--app", shop, "--agent", "limited", "Go", "--json")
    session = ran.document["execution"]["session_id"]

    async def look() -> None:
        async with open_database("sqlite:///stepwell.db", read_only=True) as store:
            whole = await all_messages(store, session)
            assert len(whole) > 4
            assert await all_messages(store, session, page=2) == whole
            assert [m.content for m in whole if is_spoken(m)] == ["Go"]
            assert [m.content for m in await last_spoken(store, session, 1, page=2)] == ["Go"]

    asyncio.run(look())


def test_all_messages_are_shown_where_all_are_wanted(
    stepwell: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("stepwell.cli.sessions._MOST_MESSAGES", 2)
    shop = write_shop(tmp_path, "reading_all")
    session = say(stepwell, shop, "First")["session_id"]
    few = stepwell("sessions", "show", session)
    assert "(the last" not in few.out
    say(stepwell, shop, "Second", "--session", session)
    few = stepwell("sessions", "show", session)
    assert "(the last 2 messages; older ones: --all)" in few.out
    assert "First" not in few.out.partition("(the last")[2]
    assert "Second" in few.out
    whole = stepwell("sessions", "show", session, "--all").out
    assert "You said First" in whole
    told = stepwell("sessions", "show", session, "--json").document["messages"]
    assert [m["content"] for m in told if m["role"] == "user"] == ["First", "Second"]


def test_a_file_that_is_no_database_of_stepwell_is_said(stepwell: CommandLine, tmp_path: Path):
    (tmp_path / "empty.db").touch()
    ran = stepwell("why", "--db", "sqlite:///empty.db")
    assert ran.code == ExitCode.CONFIGURATION
    assert "no tables of Stepwell" in ran.err
    assert "`stepwell serve`" in ran.err


def test_a_file_of_another_kind_is_said(stepwell: CommandLine, tmp_path: Path):
    (tmp_path / "junk.db").write_text("no database at all, but long enough to be looked at")
    ran = stepwell("why", "--db", "sqlite:///junk.db")
    assert ran.code == ExitCode.CONFIGURATION
    assert "no SQLite database" in ran.err


def test_why_prints_the_text_that_the_page_shows_and_then_every_step(
    stepwell: CommandLine, tmp_path: Path
):
    shop = write_shop(tmp_path, "why_shop")
    stepwell("run", "--app", shop, "--agent", "limited", "Go", "-q")
    trace = stepwell("trace", "--json").document
    execution_id = trace["execution"]["id"]
    why = stepwell("why")
    assert trace["stop"]["text"] in why.out
    assert execution_id in why.out
    assert why.out.count("continues, ToolCallPresenceCheck: the model called 1 tool") == 2
    assert "stops (steps_limit), StepsLimit: 3 of 3 steps used" in why.out
    assert "current=3, maximum=3" not in why.out.partition("Steps\n")[2]
    assert "current=3, maximum=3" in stepwell("why", "--all").out.partition("Steps\n")[2]
    assert "What to change: send another message to go on" in why.out
    assert "raise the limit: with_max_steps(n) or Agent(max_steps=n)" in why.out
    told = stepwell("why", execution_id[:-2], "--json").document
    assert told["stop"] == trace["stop"]
    assert [step["number"] for step in told["steps"]] == [1, 2, 3]
    assert told["steps"][0]["tools"] == [{"name": "look_up", "outcome": "completed"}]


def test_an_id_that_begins_several_is_refused_with_those(stepwell: CommandLine, tmp_path: Path):
    shop = write_shop(tmp_path, "why_several")
    ids = [say(stepwell, shop, "x")["id"] for _ in range(2)]
    ran = stepwell("why", ids[0][:4])
    assert ran.code == ExitCode.FAILED
    assert all(id in ran.err for id in ids)
    assert stepwell("why", ids[0]).out.startswith(ids[0])
    assert stepwell("why").out.startswith(ids[1])
    assert stepwell("why", "%").code == ExitCode.FAILED


def test_a_paused_execution_says_that_it_is_not_over(stepwell: CommandLine, tmp_path: Path):
    shop = write_shop(tmp_path, "why_paused")
    stepwell("run", "--app", shop, "--agent", "asks", "Go", "-q")
    why = stepwell("why")
    session = stepwell("sessions", "--json").document[0]["id"]
    lines = why.out.splitlines()
    assert lines[1].startswith("Not finished")
    places = [
        next(place for place, line in enumerate(lines) if text in line)
        for text in (
            f"chat [APP] --session {session}",
            "/answer with question_id",
            "Waits for q1: Which",
        )
    ]
    assert places == sorted(places)
    assert "pauses (input_required), user_input: Which order?" in why.out


def test_trace_shows_steps_tools_and_messages(stepwell: CommandLine, tmp_path: Path):
    shop = write_shop(tmp_path, "trace_shop")
    stepwell("run", "--app", shop, "Where is order 7?", "-q")
    shown = stepwell("trace").out
    for told in (
        "Step 1",
        'look_up {"order":7}',
        "order 7 was shipped",
        "Messages",
        "Where is order 7?",
        "Why\nThe run ended: the work is done",
    ):
        assert told in shown
    assert stepwell("trace", "--json", "--jsonl").code == ExitCode.USAGE


def test_sessions_are_listed_found_renamed_archived_and_closed(
    stepwell: CommandLine, tmp_path: Path
):
    shop = write_shop(tmp_path, "sessions_shop")
    first = say(stepwell, shop, "About apples")["session_id"]
    second = say(stepwell, shop, "About pears")["session_id"]
    assert [line.split()[0] for line in stepwell("sessions").out.splitlines()] == [second, first]
    assert stepwell("sessions", "--search", "apples").out.split()[0] == first
    assert stepwell("sessions", "--limit", "1").out.split()[0] == second
    assert stepwell("sessions", "--user", "ada").out == ""
    assert len(stepwell("sessions", "--all-users").out.splitlines()) == 2
    assert stepwell("sessions", "rename", first, "Fruit").out.endswith("Fruit\n")
    assert stepwell("sessions", "archive", first, "--json").document["status"] == "archived"
    assert stepwell("sessions", "--status", "archived").out.split()[:2] == [first, "archived"]
    assert stepwell("sessions", "close", second).code == ExitCode.COMPLETED
    assert stepwell("run", "--app", shop, "More", "--session", second).code == ExitCode.FAILED
    shown = stepwell("sessions", "--json", "show", first).document
    assert [m["role"] for m in shown["messages"] if m["role"] in ("user", "assistant")] == [
        "user",
        "assistant",
    ]
    assert "About apples" in stepwell("sessions", "show", first).out


def test_tools_are_shown_with_their_effect_and_whether_a_person_is_asked(
    stepwell: CommandLine, tmp_path: Path
):
    shop = write_shop(tmp_path, "tools_shop")
    lines = stepwell("tools", shop, "--agent", "refunds").out.splitlines()
    assert [line.split()[:3] for line in lines] == [
        ["look_up", "pure", "-"],
        ["refund", "external", "approval"],
        ["wait", "external", "-"],
        ["broken", "external", "-"],
    ]
    one = stepwell("tools", shop, "look_up").document
    assert one["parameters"]["required"] == ["order"]
    assert "needs_approval" in stepwell("tools", shop, "--json").document["orders"][0]
    unknown = stepwell("tools", shop, "nothing")
    assert unknown.code == ExitCode.USAGE
    assert "Available tools: broken, look_up" in unknown.err
    assert stepwell("tools", shop, "--agent", "x").code == ExitCode.CONFIGURATION
    assert sorted(path.suffix for path in tmp_path.iterdir() if path.is_file()) == [".py"]
