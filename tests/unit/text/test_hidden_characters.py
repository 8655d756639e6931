"""Every character that a person can't see is written out, unless a script or an emoji needs it."""

import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.text.hidden_characters import MOST_MARKS, replace_hidden, reveal

# Other_Default_Ignorable_Code_Point and Prepended_Concatenation_Mark of the Unicode database.
IGNORABLE = (
    *(0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2065, 0x3164, 0xFFA0, *range(0xFFF0, 0xFFF9)),
    *range(0xE0000, 0xE1000),
)
SELECTORS = (*range(0x180B, 0x180E), 0x180F, *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))
VISIBLE_FORMAT = (
    *(*range(0x0600, 0x0606), 0x06DD, 0x070F, 0x0890, 0x0891, 0x08E2, 0x110BD, 0x110CD),
)
FLAG = "\U0001f3f4" + "".join(chr(0xE0000 + ord(letter)) for letter in "gbsct") + "\U000e007f"
NEEDED = [
    *("👩\u200d👧", "❤\ufe0f", "☺\ufe0e", "1\ufe0f\u20e3", "👁\ufe0f\u200d🗨\ufe0f", FLAG),
    *("\u06cc\u200c\u062e", "\u0915\u094d\u200d\u0937", "葛\U000e0100", "\u182d\u180b", "ü é"),
]
SMUGGLED = [
    *("a\ufe0f", "я\ufe01", "❤\ufe0f\ufe0f", "葛\U000e0100\U000e0101", "a\u200db", "\u0915\u200dx"),
    *("\u0915\u200d\u200d\u0937", "a\u180b", "\U0001f3f4\U000e0061\U000e0062\U000e007f", "1\ufe0f"),
]


def hidden_codes() -> set[int]:
    """The code points that are written out between two letters."""
    found: set[int] = set()

    def note(character: str) -> str:
        found.add(ord(character))
        return character

    replace_hidden("a".join(chr(code) for code in range(0x110000)), note)
    return found


@pytest.mark.parametrize("code", [0x17B4, 0x180B, 0x1D173, 0xE0080, 0x2800, 0x3164, 0x115F])
def test_a_character_that_is_not_seen_is_written_out(code: int) -> None:
    assert reveal(f"rm{chr(code)} x") == f"rm⟨U+{code:04X}⟩ x"


def test_all_format_and_ignorable_characters_are_hidden() -> None:
    format_characters = (c for c in range(0x110000) if unicodedata.category(chr(c)) == "Cf")
    wanted = {*IGNORABLE, *SELECTORS, *format_characters} - set(VISIBLE_FORMAT)
    assert [hex(code) for code in sorted(wanted - hidden_codes())] == []


def test_no_letter_sign_or_space_is_hidden() -> None:
    seen = ("L", "N", "P", "S", "Zs", "Mc", "Me")
    blank = {0x115F, 0x1160, 0x2800, 0x3164, 0xFFA0, 0x1D159}
    hidden = hidden_codes() - blank
    wrong = [hex(code) for code in hidden if unicodedata.category(chr(code)).startswith(seen)]
    assert wrong == []
    assert not hidden & {ord("\n"), ord("\t")}


@pytest.mark.parametrize("text", NEEDED)
def test_what_scripts_and_emoji_need_stays(text: str) -> None:
    assert reveal(text) == text


@pytest.mark.parametrize("text", SMUGGLED)
def test_the_same_characters_elsewhere_are_written_out(text: str) -> None:
    assert "⟨U+" in reveal(text)


@given(st.text())
def test_nothing_else_of_a_text_changes(text: str) -> None:
    assert replace_hidden(text, str) == text


def test_marks_that_are_too_many_are_counted() -> None:
    few, many = "e" + "\u0301" * MOST_MARKS, "e" + "\u0301\u0489" * 500
    assert reveal(few) == few
    assert reveal(f"{many} x {few}") == f"{many[: MOST_MARKS + 1]}⟨+992 marks⟩ x {few}"
    assert reveal("本" * 50 + "語\u3099") == "本" * 50 + "語\u3099"


def test_the_work_grows_with_the_length_of_the_text() -> None:
    started = time.process_time()
    for text in ("e" + "\u0301" * 500_000, "a\u200b" * 500_000, "本" * 1_000_000):
        assert len(reveal(text)) > 8
    assert time.process_time() - started < 60
