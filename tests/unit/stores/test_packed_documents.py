"""The packed documents and ids of old databases stay readable for the migration that opens them."""

from hashlib import sha256

import pytest

from stepwell.stores.errors import DamagedDataError
from stepwell.stores.migrations.packed import unpack, unpack_id
from stepwell.stores.migrations.packed_words import WORDS

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
def test_what_was_packed_is_read(stored: str, text: str) -> None:
    assert unpack(bytes.fromhex(stored)) == text


def test_the_dictionary_never_changes() -> None:
    assert (
        sha256(WORDS).hexdigest()
        == "04acbc4a561f3ffe141a0383ebb7a8b4de95b65c859b3c40b505d5ff6a9a928f"
    )


@pytest.mark.parametrize("stored", [stored for stored, _ in _GOLDEN])
def test_damage_is_noticed(stored: str) -> None:
    packed = bytes.fromhex(stored)
    wrong = bytearray(packed)
    wrong[3] ^= 1
    for damaged in (bytes(wrong), packed[:-1], packed[:4], b"\xff" + packed[1:], packed + b"\x00"):
        with pytest.raises(DamagedDataError):
            unpack(damaged)


def test_ids_are_uuids_or_names() -> None:
    id = "01a1e474-cf56-7c98-9f59-e881d8fddbc4"
    assert unpack_id(b"\x01" + bytes.fromhex(id.replace("-", ""))) == id
    assert unpack_id("\x00ö1".encode()) == "ö1"
    for wrong in (b"", b"\x01short", b"\x02abc", b"\x00\xff"):
        with pytest.raises(ValueError):  # noqa: PT011 - of several kinds
            unpack_id(wrong)
