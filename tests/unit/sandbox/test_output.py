"""The outputs of commands: told whole, kept in part, and never cut inside a character."""

from hypothesis import given
from hypothesis import strategies as st

from stepwell.sandbox.output import SLACK_BYTES, OutputTail


def taken(pieces: list[bytes], keep: int = 1000) -> tuple[OutputTail, list[str]]:
    told: list[str] = []
    tail = OutputTail(keep=keep, emit=told.append)
    for piece in pieces:
        tail.feed(piece)
    tail.close()
    return tail, told


def test_a_character_that_comes_in_parts_is_told_whole() -> None:
    tail, told = taken([bytes([byte]) for byte in "a€𝄞".encode()])
    assert told == ["a", "€", "𝄞"]
    assert tail.text == "a€𝄞"


def test_what_is_no_text_is_replaced() -> None:
    tail, told = taken([b"a\xffb", b"\xe2\x82"])
    assert told == ["a�b", "�"]
    assert tail.text == "a�b�"


def test_of_too_much_the_last_is_kept_and_all_is_counted() -> None:
    tail, told = taken([b"0123456789"] * 10, keep=15)
    assert tail.text == "567890123456789"
    assert (tail.total, len("".join(told))) == (100, 100)


def test_the_front_of_what_is_kept_is_not_half_a_character() -> None:
    tail, _ = taken(["€€€".encode()], keep=7)
    assert tail.text == "€€"


def test_nothing_may_be_kept() -> None:
    tail, told = taken([b"gone"], keep=0)
    assert (tail.text, tail.total, told) == ("", 4, ["gone"])


def test_only_about_as_much_as_is_kept_stays_in_memory() -> None:
    tail = OutputTail(keep=1000)
    for _ in range(1000):
        tail.feed(b"x" * 900)
    assert len(tail._last) <= 2 * 1000 + SLACK_BYTES


def test_of_very_much_the_last_is_kept_exactly_and_no_character_is_cut() -> None:
    tail = OutputTail(keep=1000)
    for number in range(60_000):
        tail.feed(f"{number}é".encode())
    whole = "".join(f"{number}é" for number in range(60_000))
    assert whole.endswith(tail.text)
    assert 997 <= len(tail.text.encode()) <= 1000
    single = OutputTail(keep=10)
    for _ in range(50_000):
        single.feed("€".encode()[:2])
        single.feed("€".encode()[2:])
    assert single.text == "€€€"


@given(st.text(), st.lists(st.integers(1, 5)), st.integers(0, 40))
def test_however_it_is_cut_the_text_is_the_same(text: str, cuts: list[int], keep: int) -> None:
    data = text.encode("utf-8", "replace")
    pieces: list[bytes] = []
    rest = data
    for cut in cuts:
        pieces, rest = [*pieces, rest[:cut]], rest[cut:]
    tail, told = taken([piece for piece in (*pieces, rest) if piece], keep=keep)
    whole = data.decode()
    assert "".join(told) == whole
    assert whole.endswith(tail.text)
    assert len(tail.text.encode()) <= keep
    assert len(tail.text.encode()) > min(len(data), keep) - 4
    assert tail.total == len(data)
