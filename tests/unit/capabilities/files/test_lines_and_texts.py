"""Windows of lines, text and binary, and replacing in a stream, all in memory."""

from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.capabilities.files.edit_file import Change, copy_changed, lines_with, split_at
from stepwell.capabilities.files.near_misses import near_miss
from stepwell.capabilities.files.read_file import Line, Window, read_window
from stepwell.capabilities.files.texts import looks_binary, trim_partial_character


class Dribble(BytesIO):
    """Gives a few bytes at a time, so that everything is cut somewhere."""

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(3 if size is None or size < 0 else min(size, 3))


def test_a_window_ends_with_the_count_the_bytes_or_the_file() -> None:
    def window(content: bytes, offset: int, count: int, room: int) -> Window:
        return read_window(BytesIO(content), offset, count, room)

    one, two = Line(b"one", 3), Line(b"two", 3)
    assert window(b"one\ntwo\nsix\n", 0, 2, 100) == Window(0, (one, two), True)
    assert window(b"one\ntwo\n", 0, 2, 100) == Window(0, (one, two), False)
    assert window(b"one\ntwo", 1, 9, 100) == Window(1, (two,), False)
    assert window(b"one\ntwo\nsix", 0, 9, 7) == Window(0, (one, two), True)
    assert window(b"one\ntwo\nsix", 0, 9, 6) == Window(0, (one,), True)
    assert window(b"one\r\ntwo\r\n", 0, 9, 100) == Window(0, (one, two), False)
    assert window(b"longer\ntwo", 0, 9, 3) == Window(0, (Line(b"lon", 6),), True)
    assert window(b"longer", 0, 9, 3) == Window(0, (Line(b"lon", 6),), False)
    assert window(b"one\ntwo", 2, 9, 9) == window(b"one\ntwo\n", 5, 9, 9) == Window(2, (), False)


@given(
    lines=st.lists(st.text("ab\r", max_size=4)), offset=st.integers(0, 9), count=st.integers(1, 9)
)
def test_a_window_is_a_slice_of_the_lines(lines: list[str], offset: int, count: int) -> None:
    content = "".join(f"{line}\n" for line in lines).encode()
    window = read_window(BytesIO(content), offset, count, 1000)
    found = [line.head for line in window.lines]

    assert found == [line.removesuffix("\r").encode() for line in lines[offset : offset + count]]
    assert window.has_more == (offset + count < len(lines))
    assert found or window.first == min(offset, len(lines))


@given(
    text=st.text("abé\n", max_size=60), old=st.text("abé\n", min_size=1, max_size=5), new=st.text()
)
def test_replacing_in_a_stream_is_replacing(text: str, old: str, new: str) -> None:
    copy = BytesIO()
    copy_changed(Dribble(text.encode()), copy, Change(old.encode(), new.encode()))
    count = sum(len(pieces) for pieces, _ in split_at(Dribble(text.encode()), old.encode()))

    assert copy.getvalue().decode() == text.replace(old, new)
    assert count == text.count(old)


@given(text=st.text("ab\n", max_size=60), old=st.text("ab\n", min_size=1, max_size=5))
def test_lines_of_all_matches_are_found(text: str, old: str) -> None:
    places = [at for at in range(len(text)) if text.startswith(old, at)]
    found = list(lines_with(Dribble(text.encode()), old.encode(), 1))

    assert found == [text.count("\n", 0, at) + 1 for at in places]


@given(st.text())
def test_a_cut_text_loses_at_most_its_last_character(text: str) -> None:
    data = text.encode()
    for end in range(len(data) + 1):
        assert text.startswith(trim_partial_character(data[:end]).decode())
        assert end - len(trim_partial_character(data[:end])) <= 3


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"plain",
        "日本語のテキスト".encode()[:-1],
        b"\x1b[31mred\x1b[0m",
        "déjà vu, für Ärger".encode("latin-1"),
        b"\r\n\t\f",
    ],
)
def test_text_is_text(head: bytes) -> None:
    assert not looks_binary(head)


@pytest.mark.parametrize("head", [b"a\0", b"\x7fELF\x02\x01\x01", bytes(range(128, 256)), b"\x01"])
def test_binary_is_binary(head: bytes) -> None:
    assert looks_binary(head)


def test_a_near_miss_in_a_huge_file_is_found_or_given_up() -> None:
    far = b"nothing of the kind\n" * 40_000 + b"  wanted  line\n"

    assert "line 40001" in near_miss(BytesIO(far), b"wanted line")
    assert near_miss(BytesIO(b"x" * 10**7), b"wanted line").startswith("read the file again")
