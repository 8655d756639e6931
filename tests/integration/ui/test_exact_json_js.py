"""Numbers that JavaScript can't hold are read, shown and written with all their digits."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.servers.node import find_node, printed, why_missing

SCRIPT = Path(__file__).parent / "exact_json_cases.mjs"
pytestmark = pytest.mark.skipif(find_node() is None, reason=str(why_missing(SCRIPT)))

BIG = 2**53 + 1
AS_THEY_ARE = [
    *("9007199254740993", "-9007199254740993", "1180591620717411303424", "1e400", "-0", "-1E+999"),
    *("1" + "0" * 21, "1152921504606846976", "0.1", "1e-7", '{"a":[9007199254740993,"x"]}'),
    *(
        '"9007199254740993"',
        '"\\\\"',
        '["\\"9007199254740993",9007199254740993]',
        '{"__proto__":1}',
    ),
    '{"9007199254740993":{"-0":-0}}',
]
OTHERWISE = {"1.0": "1", "1e3": "1000", "-0.0": "-0.0", '{"a":1,"a":2}': '{"a":2}', "1e-400": "0"}
REFUSED = ["", "{9007199254740993:1}", "09007199254740993", "9007199254740993.", "1e400e", "[1,]"]


def run(part: str, given: Any = None) -> Any:
    return json.loads(printed(str(SCRIPT), part, given=json.dumps(given)))


@pytest.mark.parametrize("part", ["round", "old"])
def test_numbers_keep_their_digits(part: str) -> None:
    assert run(part, AS_THEY_ARE) == AS_THEY_ARE
    assert run(part, list(OTHERWISE)) == list(OTHERWISE.values())
    assert set(run(part, REFUSED)) == {"SyntaxError"}


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from([BIG, -(2**70), 1e300]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=4, deadline=None)
@given(st.lists(JSON_VALUES, min_size=20, max_size=100))
def test_any_value_is_the_same_after_it_was_read_and_written(values: list[Any]) -> None:
    texts = [json.dumps(value) for value in values]
    assert [json.loads(text) for text in run("round", texts)] == values


def test_they_are_shown_with_all_digits() -> None:
    [[arguments, value, short]] = run("shown", [json.dumps({"id": BIG, "text": "a\nb"})])
    assert arguments == f'"id": {BIG}\n"text":\n│ a\n│ b'
    assert json.loads(value) == {"id": BIG, "text": "a\nb"}
    assert str(BIG) in short


def test_two_that_differ_in_the_last_digit_are_different() -> None:
    pairs = [[f'{{"n":{BIG}}}', f'{{"n":{BIG - 1}}}'], [f"[{BIG}]", f"[{BIG}]"]]
    assert run("differences", pairs) == [[["n", "changed", str(BIG), str(BIG - 1)]], []]
    assert run("same") == [False, True]
    assert run("kinds") == ["number", "number", "null", "list", "object"]


def test_code_that_does_not_know_of_them_shows_the_digits() -> None:
    written, text = run("foreign")
    assert written.replace('"n":"', '"n":').replace('"}', "}") == f'{{"n":{BIG}}}'
    assert text == str(BIG)


def test_the_work_grows_with_the_length_of_the_text() -> None:
    is_exact, milliseconds = run("milliseconds")
    assert is_exact
    assert milliseconds < 30_000
