"""``stepwell demo`` as a real process, from an empty folder."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import sleep

import httpx2
import pytest

PROGRAM = "from stepwell.cli.main import main; main()"
WITHOUT_SANDBOX = f"from stepwell.sandbox import choice; choice.candidates = lambda: (); {PROGRAM}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, and one for temporary files in which nothing may be left."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    empty = tmp_path / "empty"
    empty.mkdir()
    return empty


def demo(folder: Path, *arguments: str, program: str = PROGRAM) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, "demo", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


@contextmanager
def shown(folder: Path, *arguments: str, program: str = PROGRAM) -> Iterator["Shown"]:
    with (folder.parent / "stderr").open("w") as told:
        process = subprocess.Popen(
            [sys.executable, "-c", program, "demo", *arguments],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=told,
            text=True,
        )
    try:
        assert process.stdout is not None
        yield Shown(process, process.stdout.readline().strip(), folder.parent / "stderr")
    finally:
        process.kill()
        process.communicate()


class Shown:
    """A demo that is served."""

    def __init__(self, process: "subprocess.Popen[str]", address: str, told: Path) -> None:
        self.process, self.address, self._told = process, address, told

    @property
    def told(self) -> str:
        return self._told.read_text(encoding="utf-8")

    def ended(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(90)


def test_every_part_of_the_demo_happens(folder: Path) -> None:
    done = demo(folder, "--check", "--json")
    report = json.loads(done.stdout)
    assert [part for part in report["parts"] if not part["happened"]] == []
    assert done.returncode == 0
    assert report["parts"]
    assert 0 < report["ready_seconds"] < report["seconds"] < 60
    assert done.stderr.count("✓") == len(report["parts"])
    assert list(folder.iterdir()) == []
    assert list((folder.parent / "temporary").iterdir()) == []


def test_without_a_sandbox_the_check_fails_and_says_what_is_missing(folder: Path) -> None:
    done = demo(folder, "--check", program=WITHOUT_SANDBOX)
    assert done.returncode == 1
    assert "the agent can't run commands" in done.stderr
    assert "Install bubblewrap" in done.stderr
    missing = [line for line in done.stdout.splitlines() if line.startswith("missing: ")]
    assert [line.split(": ")[1] for line in missing] == [
        "tests, a change, an approval",
        "a denied change",
        "a sandbox that holds",
    ]


def test_it_opens_with_an_agent_at_work_and_leaves_nothing_behind(folder: Path) -> None:
    with shown(folder, "--port", "0") as running:
        root, _, route = running.address.partition("#")
        session = route.removeprefix("/s/")
        with httpx2.Client(base_url=root, timeout=90, trust_env=False) as client:
            page = client.get("")
            assert page.status_code == 200
            assert "default-src 'none'" in page.headers["content-security-policy"]
            execution = client.get(f"agent/sessions/{session}").json()["last_execution_id"]
            events = f"agent/sessions/{session}/events?after=0&execution={execution}"
            with client.stream("GET", events) as stream:
                for line in stream.iter_lines():
                    if '"status":"paused"' in line:
                        break
                    assert '"status":"failed"' not in line
            pending = client.get(f"agent/executions/{execution}").json()["pending"]
            assert [each["tool_name"] for each in pending] == ["edit_file"]
        database = running.told.partition("stepwell why --db ")[2].split()[0]
        why = subprocess.run(
            [sys.executable, "-m", "stepwell", "why", "--db", database, execution],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert "edit_file" in why.stdout
        assert "ready in " in running.told
        assert "there is no screen here" in running.told
        assert running.ended(signal.SIGTERM) == 0
    assert list(folder.iterdir()) == []
    assert list((folder.parent / "temporary").iterdir()) == []


def test_two_interrupts_end_it_as_well_as_one_and_a_named_database_is_kept(folder: Path) -> None:
    with shown(folder, "--port", "0", "--no-browser", "--db", "sqlite:///kept.db") as running:
        assert running.address.startswith("http://127.0.0.1:")
        running.process.send_signal(signal.SIGINT)
        assert running.ended(signal.SIGINT) == 0
        assert "screen" not in running.told
    assert (folder / "kept.db").is_file()
    assert list((folder.parent / "temporary").iterdir()) == []


def test_a_port_that_was_asked_for_and_is_taken_is_a_fault(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = demo(folder, "--port", str(port), "--no-browser")
    assert done.returncode == 5
    assert f"port {port} of 127.0.0.1 is in use" in done.stderr
    assert done.stdout == ""


def test_json_is_for_the_check(folder: Path) -> None:
    done = demo(folder, "--json")
    assert done.returncode == 2
    assert "--check" in done.stderr


def test_a_browser_is_given_the_address_where_there_is_a_screen(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser, opened = folder.parent / "browser", folder.parent / "opened"
    browser.write_text(f'#!/bin/sh\necho "$1" > "{opened}"\n')
    browser.chmod(0o755)
    monkeypatch.setenv("DISPLAY", ":99")
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    with shown(folder, "--port", "0") as running:
        for _ in range(100):
            # The shell makes the file before it writes to it.
            if opened.exists() and opened.read_text():
                break
            sleep(0.1)
        assert opened.read_text().strip() == running.address
        assert running.ended(signal.SIGTERM) == 0
