"""The page and the command line write out the same hidden characters."""

import json
from pathlib import Path
from typing import Any

import pytest

from stepwell.text.hidden_characters import MOST_MARKS, reveal
from tests.servers.node import find_node, printed, why_missing
from tests.unit.text.test_hidden_characters import NEEDED, SMUGGLED, hidden_codes

SCRIPT = Path(__file__).parent / "hidden_text_cases.mjs"
pytestmark = pytest.mark.skipif(find_node() is None, reason=str(why_missing(SCRIPT)))

MARKED = "e" + "\u0301" * 80_000


def run(part: str, given: Any = None) -> Any:
    return json.loads(printed(str(SCRIPT), part, given=json.dumps(given)))


def test_both_hide_the_same_characters() -> None:
    assert run("hidden") == sorted(hidden_codes())
    assert run("missed") == []


def test_both_write_the_same() -> None:
    few = "e" + "\u0301" * MOST_MARKS
    texts = [*NEEDED, *SMUGGLED, "a\u202eb\x1b[2J\tc\re", "\u0301" * 20, few, MARKED, "x\ud800y"]
    assert run("texts", texts) == [reveal(text) for text in texts]


def test_a_long_row_of_hidden_characters_and_many_signs_cost_few_elements() -> None:
    row, many = run("nodes", ["a" + "\u200b" * 80_000 + "b", "a\u200b" * 80_000])
    assert len(row) < 100
    assert many.count("span") == 1000
    assert len(many) < 3000
    assert run("parts", ["\u200b" * 70])[0][-1] == {"code": "+6 hidden"}


def test_prose_keeps_what_hides_but_not_too_many_marks() -> None:
    assert run("prose", ["a\u202eb", MARKED]) == [
        "a\u202eb",
        "e" + "\u0301" * MOST_MARKS + "⟨+79992 marks⟩",
    ]


def test_edited_json_is_the_same_value_with_what_hides_escaped() -> None:
    value = {"k\u180b": [MARKED, "❤\ufe0f", "\U000e0080"]}
    [text] = run("edited", [value])
    assert json.loads(text) == value
    assert r"\udb40\udc80" in text
    assert "❤\ufe0f" in text
    assert text.count("\u0301") == MOST_MARKS
