"""``stepwell doctor``: what it finds in good and in broken places, and that it changes nothing."""

import json
import socket
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from stepwell.app.config import Config
from stepwell.app.diagnosis import database, machine, packages
from stepwell.app.diagnosis.findings import Level
from stepwell.app.diagnosis.settings import port_finding
from stepwell.cli.doctor import command
from stepwell.clock import SystemClock
from stepwell.models.providers import KNOWN_PROVIDERS
from stepwell.stores.database_url import open_store
from stepwell.testing import FakeClock
from tests.servers.postgres_server import database_of_its_own

SECRET = "sk-do-not-show-this-1234567890"


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for provider in KNOWN_PROVIDERS.values():
        if provider.key_env:
            monkeypatch.delenv(provider.key_env, raising=False)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the proof of the sandbox, which has tests of its own."""
    monkeypatch.setattr(machine, "candidates", lambda: ())


def looked(*arguments: str) -> tuple[int, dict[str, list[dict[str, Any]]]]:
    done = CliRunner().invoke(command, ["--json", *arguments], catch_exceptions=False)
    report = json.loads(done.stdout)
    assert report["ok"] == (done.exit_code == 0)
    assert SECRET not in done.output
    found: dict[str, list[dict[str, Any]]] = {}
    for finding in report["findings"]:
        found.setdefault(finding["about"], []).append(finding)
    return done.exit_code, found


def test_a_good_machine_needs_no_mending_and_is_left_as_it_was(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from stepwell.cli.main import main; main()", "doctor"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    lines = done.stdout.splitlines()
    assert lines[-1] == "no problems found"
    assert any(line.startswith("✓ sandbox: ") for line in lines)
    assert any(line.startswith("✓ database: stepwell.db is not there yet") for line in lines)
    assert not any(line.startswith("✗") for line in lines)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("quick")
def test_a_machine_without_a_sandbox_can_still_be_used() -> None:
    code, found = looked()
    assert code == 0
    assert found["sandbox"][0]["level"] == "note"
    assert "stepwell[sandbox]" in found["sandbox"][0]["fix"]


@pytest.mark.usefixtures("quick")
def test_what_is_wrong_in_the_environment_is_told_for_each_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STEPWELL_DBX", SECRET)
    monkeypatch.setenv("STEPWELL_PORT", "many")
    monkeypatch.setenv("STEPWELL_HOST", "127.0.0.1")
    code, found = looked()
    assert code == 5
    wrong = [it["text"] for it in found["environment"] if it["level"] == "broken"]
    assert wrong[0] == "unknown setting STEPWELL_DBX"
    assert wrong[1].startswith("STEPWELL_PORT: ")
    assert len(wrong) == 2
    assert found["configuration"][0]["level"] == "note"
    assert found["disk"][0]["level"] != "broken"


@pytest.mark.usefixtures("quick")
def test_a_file_that_can_not_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "stepwell.toml").write_text("db = \n")
    code, found = looked()
    assert code == 5
    assert "stepwell.toml" in found["configuration file"][0]["text"]
    (tmp_path / "stepwell.toml").write_text("prot = 1\n")
    assert "unknown setting 'prot'" in looked()[1]["configuration file"][0]["text"]


@pytest.mark.usefixtures("quick")
def test_a_model_without_its_key_is_to_be_mended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPWELL_MODEL", "openai:gpt-5")
    code, found = looked()
    assert code == 5
    assert found["provider keys"][0]["fix"] == "export OPENAI_API_KEY=..."
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    code, found = looked()
    assert code == 0
    assert "openai" in found["provider keys"][0]["text"]


@pytest.mark.usefixtures("quick")
def test_a_server_that_would_let_everybody_in_is_to_be_mended(tmp_path: Path) -> None:
    (tmp_path / "stepwell.toml").write_text('host = "0.0.0.0"\n')
    code, found = looked()
    assert code == 5
    assert "beyond this machine" in found["auth"][0]["text"]
    (tmp_path / "stepwell.toml").write_text('[auth]\nmode = "jwt"\nissuer = "x"\n')
    assert found_text(looked()[1], "auth") == "mode is jwt without jwks_url, audience"


def found_text(found: dict[str, list[dict[str, Any]]], about: str) -> str:
    return found[about][0]["text"]


@pytest.mark.usefixtures("quick")
async def test_a_database_that_is_there_tells_its_version(tmp_path: Path) -> None:
    store = await open_store(f"sqlite:///{tmp_path / 'here.db'}")
    await store.close()
    findings = {
        it.about: it
        for it in database.database_findings(
            Config(db=f"sqlite:///{tmp_path / 'here.db'}"), SystemClock()
        )
    }
    assert findings["database"].level is Level.OK
    assert "tables of version" in findings["database"].text
    with sqlite3.connect(tmp_path / "here.db") as connection:
        connection.execute("UPDATE agent_schema_version SET version_num = '9999'")
    connection.close()
    config = Config(db=f"sqlite:///{tmp_path / 'here.db'}")
    newer = [*database.database_findings(config, SystemClock())][-1]
    assert newer.level is Level.BROKEN
    assert "9999" in newer.text


def test_databases_that_can_not_be_used_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("this is no database at all, " * 50)
    for url, said in {
        "sqlite:///text.db": "file is not a database",
        "sqlite:///:memory:": "in memory",
        "mysql://ada:secret@localhost/x": "mysql is not supported",
        "postgresql://ada:secret@127.0.0.1:1/x": "does not answer",
        "nonsense": "can't be read",
    }.items():
        finding = [*database.database_findings(Config(db=url), SystemClock())][-1]
        assert finding.level is Level.BROKEN, url
        assert said in finding.text
        assert "secret" not in finding.text
        assert finding.fix


def test_a_clock_that_differs_from_the_databases_is_told() -> None:
    here, there = datetime(2026, 1, 6, 12, 0, 9, tzinfo=UTC), datetime(2026, 1, 6, 12, tzinfo=UTC)
    off = database.clocks_finding(there, here, Config())
    assert off.level is Level.BROKEN
    assert "9.0 s ahead of" in off.text
    assert database.clocks_finding(there, there, Config()).level is Level.OK


def test_a_clock_that_was_never_set_is_told() -> None:
    never = machine.clock_finding(FakeClock(datetime(1970, 1, 1, tzinfo=UTC)))
    assert never.level is Level.BROKEN


def test_a_port_in_use_is_noted() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert port_finding("127.0.0.1", port).level is Level.NOTE
    assert port_finding("127.0.0.1", 0).level is Level.OK


@pytest.mark.usefixtures("quick")
def test_an_application_that_can_not_be_loaded_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "broken_module.py").write_text("x = 1 / 0\n")
    (tmp_path / "stepwell.toml").write_text('app = "broken_module:app"\n')
    code, found = looked()
    assert code == 5
    assert "ZeroDivisionError" in found_text(found, "app")
    (tmp_path / "stepwell.toml").write_text('app = "nowhere_to_be_found:app"\n')
    assert "there is no module" in found_text(looked()[1], "app")


def test_a_missing_extra_comes_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(packages.EXTRAS, "redis", ("no_such_module_here.part",))
    found = {it.about: it for it in packages.package_findings()}
    assert found["extra redis"].level is Level.NOTE
    assert found["extra redis"].fix == "pip install 'stepwell[redis]'"
    assert found["extra server"].level is Level.OK


async def test_postgresql_tells_its_version_and_its_time(postgres_url: str) -> None:
    with database_of_its_own(postgres_url, "stepwell_doctor") as url:
        config = Config(db=url)
        before = {it.about: it for it in database.database_findings(config, SystemClock())}
        assert "has no tables of Stepwell yet" in before["database"].text
        store = await open_store(url)
        await store.close()
        after = {it.about: it for it in database.database_findings(config, SystemClock())}
    assert "tables of version" in after["database"].text
    assert after["clock"].level is Level.OK
