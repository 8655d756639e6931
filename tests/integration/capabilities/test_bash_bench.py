"""``python -m bench sandbox``, as a user runs it."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
DRIVERS = ("bubblewrap", "sandlock", "unconfined")


def run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "bench", "sandbox", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_sandbox_bench_prints_one_json_object() -> None:
    figures = json.loads(run("--json", "--rounds", "2"))

    assert figures["rounds"] == 2
    assert figures["bare_start_ms"] > 0
    assert set(figures["drivers"]) == set(DRIVERS)
    assert figures["drivers"]["unconfined"]["start_ratio"] > 0
    for row in figures["drivers"].values():
        assert row.get("unavailable") or {"start_overhead_ms", "start_ratio"} <= set(row)


def test_the_sandbox_bench_prints_a_table_for_people() -> None:
    shown = run("--rounds", "1")

    for name in (*DRIVERS, "start_overhead_ms", "bare process: start"):
        assert name in shown
