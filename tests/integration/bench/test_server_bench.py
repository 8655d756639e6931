"""Every part of the server bench runs to its end, with tiny numbers; how fast is not asserted."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.server import PARTS
from bench.targets import SERVER, Target

ROOT = Path(__file__).parents[3]


def run(*arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "bench", "server", "--tiny", "--json", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_every_part_on_sqlite_gives_the_figures_that_the_targets_name() -> None:
    # Without `live`, which must fill the buffers of real sockets.
    document = run("--no-postgres", *(part for part in PARTS if part != "live"))
    assert set(SERVER) <= set(document["figures"])
    assert set(document["targets"]) == set(SERVER)
    assert all(value is not None for value in document["figures"].values())
    assert document["machine"]["processors"] >= 1
    assert document["versions"]["python"]
    figures = document["figures"]
    assert figures["sql_per_step"] > 0
    assert figures["commits_per_step"] > 0
    assert figures["bytes_written_per_step"] > 1000
    assert figures["message_ms_ratio"] > 0


@pytest.mark.slow
def test_the_parts_with_processes_run_on_postgres() -> None:
    figures = run("http", "streams", "idle")["figures"]
    for name in ("http_send_ratio", "idle_tx_per_s"):
        assert figures[name] == max(figures[f"{name}_sqlite"], figures[f"{name}_postgres"])
    assert figures["cpu_ms_per_streamed_s_postgres_2"] > 0


def test_an_unknown_part_is_named() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench", "server", "nothing"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    assert "unknown part nothing" in done.stderr


@pytest.mark.parametrize(
    ("target", "value", "met"),
    [
        (Target(most=2), 2.0, True),
        (Target(most=2), 2.1, False),
        (Target(least=300), 300.0, True),
        (Target(least=300), 299.0, False),
    ],
)
def test_a_target_is_met_up_to_its_bound(target: Target, value: float, met: bool) -> None:
    assert target.is_met(value) is met
