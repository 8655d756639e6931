"""Every Python block of the README and the docs runs, and prints what it says it prints.

Blocks that name the address of a local model server get one that is started here instead.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pytest_examples import CodeExample, EvalExample, find_examples

from tests.docs.model_server import serving

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
EXAMPLES = [example for example in find_examples(*PAGES) if example.prefix == "python"]
LOCAL_ADDRESS = "http://localhost:11434/v1"
ON_LOCAL_SERVER = [example for example in EXAMPLES if LOCAL_ADDRESS in example.source]


@pytest.fixture(scope="module")
def model_server() -> Iterator[str]:
    with serving() as base_url:
        yield base_url


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) > 5
    assert len(ON_LOCAL_SERVER) > 1


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: f"{e.path.name}:{e.start_line}")
def test_block_runs(example: CodeExample, eval_example: EvalExample, model_server: str) -> None:
    eval_example.set_config(line_length=100)
    if example in ON_LOCAL_SERVER:
        source = example.source.replace(LOCAL_ADDRESS, model_server)
        eval_example.run_print_check(replace(example, source=source))
    elif eval_example.update_examples:
        eval_example.run_print_update(example)
    else:
        eval_example.run_print_check(example)
