"""Reading real files: windows of lines, limits, encodings, and what can't be read."""

import tracemalloc
from pathlib import Path
from time import thread_time

import pytest

from stepwell.capabilities.files import FilePolicy, ReadFileTool
from stepwell.tools import ToolFailure
from tests.integration.capabilities.files.cancelled_call import cancelled

MEBIBYTE = 1024 * 1024


def failure(answer: str | ToolFailure) -> str:
    assert isinstance(answer, ToolFailure)
    return answer.message


@pytest.fixture
def read(tmp_path: Path) -> ReadFileTool:
    return ReadFileTool.in_directory(tmp_path)


def lines(count: int) -> str:
    return "".join(f"line {n}\n" for n in range(1, count + 1))


def test_b253_lines_are_numbered_from_one(read: ReadFileTool, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n\n  three")

    assert read("a.txt") == "     1\tone\n     2\t\n     3\t  three"


def test_b253_an_offset_skips_lines_and_a_limit_ends_them(
    read: ReadFileTool, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text(lines(10))

    assert read("a.txt", offset=2, limit=2) == (
        "     3\tline 3\n     4\tline 4\n\n"
        "(Lines 3 to 4 are shown; there are more. Continue at offset 4.)"
    )
    assert read("a.txt", offset=9) == "    10\tline 10"
    assert read("a.txt", offset=8, limit=2) == "     9\tline 9\n    10\tline 10"


@pytest.mark.parametrize("limit", [0, -1, -1000])
def test_b253_a_limit_that_is_not_positive_shows_one_line(
    limit: int, read: ReadFileTool, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text(lines(3))

    assert str(read("a.txt", limit=limit)).startswith("     1\tline 1\n\n(Lines 1 to 1")


def test_a_negative_offset_is_the_start(read: ReadFileTool, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(lines(2))

    assert read("a.txt", offset=-5) == "     1\tline 1\n     2\tline 2"


@pytest.mark.parametrize("ending", ["\n", ""])
def test_b253_exactly_200_lines_have_no_hint(
    ending: str, read: ReadFileTool, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text(lines(200)[:-1] + ending)
    shown = str(read("a.txt"))

    assert shown.endswith("   200\tline 200")
    assert "offset" not in shown


def test_b253_line_201_brings_the_hint_and_the_hint_leads_on(
    read: ReadFileTool, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text(lines(201))

    assert str(read("a.txt")).endswith(
        "   200\tline 200\n\n(Lines 1 to 200 are shown; there are more. Continue at offset 200.)"
    )
    assert read("a.txt", offset=200) == "   201\tline 201"


def test_more_lines_can_be_asked_for(read: ReadFileTool, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(lines(500))

    assert str(read("a.txt", limit=500)).endswith("   500\tline 500")


def test_b253_32_kib_end_the_window_before_the_lines_do(read: ReadFileTool, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(f"{'x' * 1023}\n" * 100)
    first = str(read("a.txt"))
    second = str(read("a.txt", offset=32))

    assert first.endswith("(Lines 1 to 32 are shown; there are more. Continue at offset 32.)")
    assert second.startswith("    33\txxx")


def test_b255_a_line_over_the_limit_is_previewed(read: ReadFileTool, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(f"first\n{'é' * 50_000}\nlast\n")
    first, long = str(read("a.txt")), str(read("a.txt", offset=1))

    assert first.startswith("     1\tfirst\n\n")
    assert "Continue at offset 1." in first
    assert long.splitlines()[0] == "     2\t" + "é" * 2048
    assert long.endswith(
        "(Line 2 is 100000 bytes long, over the limit of 32768; only its first 4096 bytes are "
        "shown. Continue at offset 2 for the next line.)"
    )
    assert read("a.txt", offset=2) == "     3\tlast"


def test_b255_a_long_last_line_has_nothing_after_it(read: ReadFileTool, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x" * 32_769)

    assert str(read("a.txt")).endswith("its first 4096 bytes are shown. It is the last line.)")


def test_a_line_of_exactly_the_limit_is_whole(read: ReadFileTool, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"x" * 32_768 + b"\r\n")

    assert read("a.txt") == "     1\t" + "x" * 32_768


def test_the_policy_sets_both_limits(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(lines(5))
    few = ReadFileTool.in_directory(tmp_path, policy=FilePolicy(max_lines=2))
    small = ReadFileTool.in_directory(tmp_path, policy=FilePolicy(max_read_bytes=21))

    assert str(few("a.txt")).endswith("Continue at offset 2.)")
    assert str(small("a.txt")).endswith("Continue at offset 3.)")


@pytest.mark.parametrize("offset", [0, 30_000, 50_000])
def test_a_file_is_gone_through_up_to_a_limit(offset: int, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"a line\n" * 10 + b"x" * 300_000 + b"\n" * 20_000)
    read = ReadFileTool.in_directory(tmp_path, policy=FilePolicy(max_scanned_bytes=100_000))
    said = failure(read("a.txt", offset=offset or 10))

    assert "beyond the first 100000 bytes of 'a.txt'" in said
    assert str(read("a.txt", limit=5)).startswith("     1\ta line")


def test_many_empty_lines_are_skipped_quickly(read: ReadFileTool, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\n" * 20_000_000 + b"last")
    began = thread_time()

    assert read("a.txt", offset=20_000_000) == "20000001\tlast"
    assert thread_time() - began < 1.5


@pytest.mark.parametrize("size", [65_535, 65_536, 65_537, 131_072])
def test_lines_are_skipped_exactly_where_pieces_meet(
    size: int, read: ReadFileTool, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_bytes(b"x" * (size - 1) + b"\nsecond\nthird")

    assert str(read("a.txt", offset=1)) == "     2\tsecond\n     3\tthird"
    assert "has 3 lines" in failure(read("a.txt", offset=3))


def test_a_cancelled_reading_stops(read: ReadFileTool, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x" * 1_000_000)

    assert "was cancelled" in failure(read("a.txt", context=cancelled(after=5)))


def test_b256_what_can_not_be_read_says_why(read: ReadFileTool, tmp_path: Path) -> None:
    (tmp_path / "dir").mkdir()
    (tmp_path / "empty").write_text("")
    (tmp_path / "three").write_text("1\n2\n3\n")
    (tmp_path / "closed").write_text("x")

    assert "'missing.py' does not exist" in failure(read("missing.py"))
    assert "'dir' is a directory, not a file; use list_dir" in failure(read("dir"))
    assert "'three/x' leads through something that is not a directory" in failure(read("three/x"))
    assert read("empty") == "(empty file)"
    assert read("empty", offset=3) == "(empty file)"
    assert failure(read("three", offset=3)) == (
        "offset 3 is past the end of 'three', which has 3 lines"
    )
    assert "has 3 lines" in failure(read("three", offset=10**9))


@pytest.mark.parametrize(
    "content",
    [
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
        b"text and then\0a NUL",
        bytes(range(128, 256)) * 20,
        b"\x01\x02\x03\x04",
    ],
)
def test_b256_binary_files_are_refused(content: bytes, read: ReadFileTool, tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(content)

    assert "is a binary file" in failure(read("a.bin"))


def test_a_nul_far_behind_the_start_is_binary_where_it_would_be_shown(
    read: ReadFileTool, tmp_path: Path
) -> None:
    (tmp_path / "a.bin").write_bytes(b"a line of text\n" * 2000 + b"\0\n")

    assert str(read("a.bin")).startswith("     1\ta line")
    assert "binary content from line 2001 on" in failure(read("a.bin", offset=2000))


@pytest.mark.parametrize("codec", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf16_is_refused(codec: str, read: ReadFileTool, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("some words".encode(codec))

    assert ("UTF-16" if codec == "utf-16" else "binary") in failure(read("a.txt"))


def test_odd_text_is_shown_as_text(read: ReadFileTool, tmp_path: Path) -> None:
    (tmp_path / "bom").write_bytes(b"\xef\xbb\xbffirst\nsecond\n")
    (tmp_path / "crlf").write_bytes(b"first\r\nsecond\r\n")
    (tmp_path / "latin").write_bytes("un café, s'il vous plaît\nok\n".encode("latin-1"))
    (tmp_path / "separators").write_text("a\u2028b\x0bc\x0cd\x85e\n")

    assert read("bom") == read("crlf") == "     1\tfirst\n     2\tsecond"
    assert read("latin") == (
        "     1\tun caf\\xe9, s'il vous pla\\xeet\n     2\tok\n\n"
        "(Bytes that are not UTF-8 are shown as \\xNN (1 line).)"
    )
    assert read("separators") == "     1\ta\u2028b\x0bc\x0cd\x85e"


def test_100_megabytes_are_read_in_little_memory(read: ReadFileTool, tmp_path: Path) -> None:
    big = tmp_path / "big.txt"
    with big.open("wb") as file:
        for _ in range(100):
            file.write((b"z" * 1023 + b"\n") * 1024)
        file.write(b"w" * (8 * MEBIBYTE))
    count = 100 * 1024
    tracemalloc.start()
    try:
        last = str(read("big.txt", offset=count - 1))
        long = str(read("big.txt", offset=count))
        past = failure(read("big.txt", offset=count + 1))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        big.unlink()

    assert last.startswith(f"{count:>6}\tzzz")
    assert f"Line {count + 1} is {8 * MEBIBYTE} bytes long" in long
    assert f"has {count + 1} lines" in past
    assert peak < 2 * MEBIBYTE
