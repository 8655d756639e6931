"""Texts that are too long: every way to shorten one keeps its length and counts what is missing."""

from hypothesis import given
from hypothesis import strategies as st

from stepwell.text import (
    join_ends,
    truncate,
    truncate_after,
    truncate_middle,
    truncate_with_note,
)

TEXTS = st.text(max_size=300)


@given(TEXTS, st.integers(3, 300))
def test_truncate_counts_the_dots(text: str, limit: int) -> None:
    short = truncate(text, limit)

    assert len(short) <= limit
    assert short == text if len(text) <= limit else short == f"{text[: limit - 3]}..."


@given(TEXTS, st.integers(0, 300))
def test_truncate_after_counts_the_text_alone(text: str, limit: int) -> None:
    assert truncate_after(text, limit) == (text if len(text) <= limit else f"{text[:limit]}...")


@given(TEXTS, st.integers(0, 300))
def test_a_note_says_how_much_is_missing(text: str, limit: int) -> None:
    short = truncate_with_note(text, limit)

    left = len(text) - limit
    more = "1 more character" if left == 1 else f"{left} more characters"
    assert short == (text if left <= 0 else f"{text[:limit]}... [{more}]")


def test_a_note_has_separators_and_the_hint() -> None:
    assert truncate_with_note("x" * 5_001, 1, "ask for less") == (
        "x... [5,000 more characters; ask for less]"
    )


@given(TEXTS, st.integers(48, 300))
def test_the_middle_is_left_out_within_the_limit(text: str, limit: int) -> None:
    short = truncate_middle(text, limit)

    assert len(short) <= limit
    if len(text) > limit:
        kept = (limit - 48) // 2
        assert short.startswith(text[:kept])
        assert short.endswith(text[len(text) - kept :])


def test_ends_are_joined_even_without_a_tail() -> None:
    assert join_ends("abcdef", 2, 0) == "ab\n... [4 characters left out] ...\n"
