"""Compressed increments: what was stored stays readable, and damage is never taken for text."""

from hashlib import sha256
from random import Random

import pytest

from stepwell.stores.errors import DamagedDataError
from stepwell.stores.increment_words import INCREMENT, STATE
from stepwell.stores.increments import compress_increment, expand_increment

_INCREMENT = (
    '{"format":"stepwell.state.increment","schema_version":1,"checksum":"sha256:00","body":'
    '{"since":"01","agent_id":"01a1e474-cf56-7c98-9f59-e881d8fddbc4","kept_messages":1,'
    '"messages":[{"role":"assistant","parts":[{"type":"text","text":"Schön \U0001f333"}]}]}}'
)


def test_the_dictionary_never_changes() -> None:
    assert (
        sha256((STATE + INCREMENT).encode()).hexdigest()
        == "d206f08f6ac71d2fbc4445c9e25629c9404f0943b84b5d64f2c89090767a396f"
    )


def test_what_an_older_version_compressed_is_read() -> None:
    assert expand_increment(bytes.fromhex("787d97c68c72abae0500017500f9")) == "{}"


@pytest.mark.parametrize("text", ["", "{}", _INCREMENT, "x" * 100_000, "\x00", "\U0001f600" * 40])
def test_a_text_comes_back_as_it_was(text: str) -> None:
    assert expand_increment(compress_increment(text)) == text


def test_typical_increments_become_much_shorter() -> None:
    assert len(compress_increment(_INCREMENT)) < len(_INCREMENT) / 2


def test_damage_is_noticed_wherever_it_is() -> None:
    stored = compress_increment(_INCREMENT)
    places = Random(1).sample(range(len(stored)), 40)
    for place in places:
        damaged = bytearray(stored)
        damaged[place] ^= 0x10
        with pytest.raises(DamagedDataError):
            expand_increment(bytes(damaged))
    for wrong in (stored[:-1], stored + b"\x00", b"", stored[:4]):
        with pytest.raises(DamagedDataError):
            expand_increment(wrong)
