"""The short tier: a small run on each database, and that its checker sees a spoiled database."""

import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

from chaos.checker import Demands, Report, checked
from chaos.evidence import gathered
from stepwell.stores.database_url import open_store

ROOT = Path(__file__).parents[3]
EXECUTIONS = 20
SEED = 11
SHORT = {
    "executions": EXECUTIONS,
    "kills": 6,
    "seed": SEED,
    "workers": 2,
    "concurrency": 5,
    "min-hits": 0,
    "freezes": 2,
    "restarts": 1,
    "bus-kills": 1,
    "server-kills": 1,
    "lease-seconds": 3.0,
    "pause-seconds": 0.05,
    "max-takeover-seconds": 300.0,
    "seconds": 900,
}


def run(db: str, folder: Path) -> dict[str, Any]:
    options = [f"--{name}={value}" for name, value in SHORT.items()]
    command = [sys.executable, "-m", "chaos", f"--db={db}", f"--folder={folder}", "--json"]
    done = subprocess.run(
        [*command, *options], cwd=ROOT, capture_output=True, text=True, timeout=1200, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def check(report: dict[str, Any]) -> None:
    assert report["problems"] == []
    assert report["finished"] == report["executions"] >= EXECUTIONS
    assert report["kills"] >= 6
    assert report["kills_in_flight"] >= 1
    zero = (
        "lost",
        "duplicate_messages",
        "silent_repeats",
        "duplicate_effects",
        "wrong_answers",
        "unapproved_calls",
        "wrong_ends",
        "lost_notes",
        "fork_faults",
        "wrong_texts",
    )
    assert {name: report[name] for name in zero} == dict.fromkeys(zero, 0)
    assert report["approvals"] >= 1
    assert report["notes"] >= 4
    assert report["forks"] >= 1
    assert report["server_kills"] == 1


async def report_on(folder: Path) -> Report:
    store = await open_store(f"sqlite:///{folder / 'chaos.db'}")
    try:
        evidence = await gathered(store, folder, executions=EXECUTIONS, seed=SEED)
    finally:
        await store.close()
    return checked(evidence, Demands(kills=6, max_takeover_seconds=300.0))


async def test_on_sqlite_nothing_is_lost_or_repeated_and_a_spoiled_file_is_noticed(
    tmp_path: Path,
) -> None:
    check(run("sqlite", tmp_path))
    assert (await report_on(tmp_path)).problems == []
    with sqlite3.connect(tmp_path / "chaos.db") as file:
        file.execute(
            "UPDATE agent_executions SET status = 'running' WHERE id = "
            "(SELECT min(id) FROM agent_executions)"
        )
        file.execute(
            "DELETE FROM agent_journal WHERE rowid = (SELECT max(rowid) FROM agent_journal)"
        )
    file.close()
    spoiled = await report_on(tmp_path)
    assert spoiled.lost == 1
    assert spoiled.log_gaps + spoiled.log_disorder >= 1


def test_on_postgres_nothing_is_lost_or_repeated(tmp_path: Path) -> None:
    report = run("postgres", tmp_path)
    check(report)
    assert report["database_restarts"] == 1
    assert report["bus_kills"] == 1
