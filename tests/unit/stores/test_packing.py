"""Packed documents: what was stored stays readable, and damage is never taken for a document."""

from hashlib import sha256
from random import Random

import pytest

from stepwell.stores import packing
from stepwell.stores.errors import DamagedDataError
from stepwell.stores.packing import packed, packed_id, unpacked, unpacked_id
from stepwell.stores.packing_words import FIRST_WORDS

_EVENT = (
    '{"message_id":"7f01bd3e-4491-5ce0-8475-e551555d267e","event_type":"step.completed",'
    '"role":"info","content":"Schritt 8 fertig: schön","metadata":{"step_number":8},'
    '"agent_execution_id":"01a1e474-cf56-7c98-9f59-e881d8fddbc4","created_at":'
    '"2026-11-16T13:03:43.181705Z"}'
)
_STATE = '{"format":"stepwell.state","schema_version":1,"body":{"text":"' + "abc, " * 300 + '"}}'

# Written once and stored in somebody's database: never change these.
_GOLDEN = [
    ("00a3a6bf437b7d", "{}"),
    (
        (
            "02809c318043e332d433eeb5739918f3a0a5f4696068ac5a1df9a1919c01ec3497285828a4a51695"
            "64a65b291427671cde96871622287eb6c0e54306c6854f4ace87d5cc981ff9a2f1c6dfdb47b07ad9"
            "d050d7d02cc4d0d8cac0d8cac458cfd0c2d0dcc014e86500"
        ),
        _EVENT,
    ),
    (("018eb963c6c33912887dfc0f36d4071d464a4c4ad6511825468951629418258615a1545b0b00"), _STATE),
]


@pytest.mark.parametrize(("stored", "text"), _GOLDEN)
def test_what_was_packed_by_an_older_version_is_read(stored: str, text: str) -> None:
    assert unpacked(bytes.fromhex(stored)) == text


def test_the_words_of_a_mark_never_change() -> None:
    assert (
        sha256(FIRST_WORDS).hexdigest()
        == "04acbc4a561f3ffe141a0383ebb7a8b4de95b65c859b3c40b505d5ff6a9a928f"
    )


@pytest.mark.parametrize(
    "text",
    ["", "{}", "a", _EVENT, _STATE, "x" * 100_000, "\x00 and more", "\U0001f600" * 40, '"\\u0000"'],
)
def test_a_text_comes_back_as_it_was(text: str) -> None:
    assert unpacked(packed(text)) == text


def test_any_text_comes_back_as_it_was() -> None:
    random = Random(1)
    for _ in range(300):
        ids = [str(packing.UUID(int=random.getrandbits(128))) for _ in range(3)]
        parts = random.choices(["{", '"id":"', '"', "\x00", "é", "-", "0f", *ids], k=20)
        text = "".join(parts)
        assert unpacked(packed(text)) == text


def test_typical_documents_become_much_shorter() -> None:
    assert len(packed(_EVENT)) < len(_EVENT) / 2
    assert len(packed(_STATE)) < len(_STATE) / 10
    noise = Random(2).randbytes(500).hex()[:40]
    assert len(packed(noise)) <= len(noise) + 5


def _read(stored: bytearray) -> str | None:
    try:
        return unpacked(bytes(stored))
    except DamagedDataError:
        return None


@pytest.mark.parametrize("text", ["{}", _EVENT, _STATE], ids=["plain", "short ids", "deflated"])
def test_damage_is_noticed_wherever_it_is(text: str) -> None:
    stored = packed(text)
    for place in range(len(stored)):
        for change in (0x01, 0x80):
            damaged = bytearray(stored)
            damaged[place] ^= change
            # The last bits of the last byte mean nothing; all others do.
            if place == len(stored) - 1:
                assert _read(damaged) in {text, None}
            else:
                assert _read(damaged) is None, place
    for wrong in (stored[:-1], stored + b"\x00", b"", stored[:4], b"\xff" + stored[1:]):
        with pytest.raises(DamagedDataError):
            unpacked(wrong)


@pytest.mark.parametrize(
    "id",
    [
        "01a1e474-cf56-7c98-9f59-e881d8fddbc4",
        "01A1E474-CF56-7C98-9F59-E881D8FDDBC4",
        "{01a1e474-cf56-7c98-9f59-e881d8fddb}",
        *("s", "", "ö" * 18, "x" * 36, "A1" * 18),
    ],
)
def test_an_id_comes_back_as_it_was(id: str) -> None:
    assert unpacked_id(packed_id(id)) == id


@pytest.mark.parametrize("stored", [b"", b"\x01short", b"\x02abc", b"\x00\xff"])
def test_what_is_no_packed_id_is_refused(stored: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of several kinds; the codec names the row
        unpacked_id(stored)
