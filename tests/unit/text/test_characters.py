"""Half characters: found, and replaced in all that is shown or stored."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.text import is_encodable, json_bytes, map_json, replace_half_characters, walk_json

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=50)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**80), 2**80) | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=10,
)


@given(ANY_TEXT)
def test_what_is_repaired_can_be_encoded_and_what_was_whole_stays(text: str) -> None:
    repaired = replace_half_characters(text)

    assert is_encodable(repaired)
    if is_encodable(text):
        assert repaired == text


@pytest.mark.parametrize(
    ("text", "repaired"),
    [
        ("\ud83d\ude00", "\U0001f600"),
        ("a\ud83d", "a\ufffd"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
        ("caf\udce9", "caf\ufffd"),
    ],
)
def test_halves_are_joined_or_replaced(text: str, repaired: str) -> None:
    assert not is_encodable(text)
    assert replace_half_characters(text) == repaired


@given(JSON)
def test_json_is_encoded_whatever_it_holds(value: object) -> None:
    def repair(leaf: object) -> object:
        return replace_half_characters(leaf) if isinstance(leaf, str) else leaf

    assert json.loads(json_bytes(value)) == map_json(value, repair)


def test_json_bytes_converts_what_json_has_no_type_for() -> None:
    assert json_bytes({"half": "\ud83d", "other": object()}, default=lambda _: "?") == (
        b'{"half":"\xef\xbf\xbd","other":"?"}'
    )
    with pytest.raises(TypeError):
        json_bytes({"other": object()})


def test_numbers_that_json_has_not_become_null_with_and_without_half_characters() -> None:
    assert json_bytes([float("nan")]) == b"[null]"
    assert json_bytes([float("nan"), "\ud83d"]) == b'[null,"\xef\xbf\xbd"]'


def test_every_key_and_value_is_visited_at_any_depth() -> None:
    deep: list[object] = []
    for _ in range(5_000):
        deep = [deep]

    assert sum(1 for _ in walk_json(deep)) == 5_001
    assert {it for it in walk_json({"a": [{"b": 1}]}) if isinstance(it, str)} == {"a", "b"}
