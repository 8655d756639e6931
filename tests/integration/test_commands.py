"""The commands that the README and the docs name, as a user runs them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_core_bench_prints_one_json_object_as_its_last_line() -> None:
    figures = json.loads(run("-m", "bench", "core", "--json", "--rounds", "1").splitlines()[-1])
    assert figures["loaded_heavy_modules"] == []
    for name in (
        *("ratio_1", "ratio_10", "ratio_50", "ratio_200", "ratio_1000", "growth_1000_over_10"),
        *("concurrent_ratio", "construct_us", "import_ratio", "memory_bytes_per_step_1000"),
        *("import_to_first_answer_ratio", "stepwell_calls_per_step"),
    ):
        assert figures[name] > 0


def test_bench_without_a_name_says_which_there_are() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 2
    assert "core" in done.stderr
