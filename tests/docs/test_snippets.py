"""Every Python block of the README and the docs runs, and prints what it says it prints."""

from pathlib import Path

import pytest
from pytest_examples import CodeExample, EvalExample, find_examples

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
EXAMPLES = [example for example in find_examples(*PAGES) if example.prefix == "python"]


def test_there_are_examples() -> None:
    assert len(EXAMPLES) > 5


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: f"{e.path.name}:{e.start_line}")
def test_block_runs(example: CodeExample, eval_example: EvalExample) -> None:
    eval_example.set_config(line_length=100)
    eval_example.run_print_check(example)
