"""Reads the packed documents and ids of migrations 0001 and 0002, for the migration that turns them
into plain ones.

A packed document is a mark that says how it was packed, the CRC-32 of its text and the content:
the text itself, or deflated against ``packed_words``, with short ids or without. A packed id is a
mark and the 16 bytes of a UUID, or a text.
"""

import re
import zlib
from uuid import UUID

from stepwell.stores.errors import DamagedDataError
from stepwell.stores.migrations.packed_words import WORDS

_PLAIN, _DEFLATED, _SHORT_IDS = 0, 1, 2
_HEAD = 5
_RAW = -15
_NAME, _UUID = b"\x00", b"\x01"
_SHORT_ID = re.compile(rb"\x00(.{16})", re.DOTALL)


def unpack(stored: bytes) -> str:
    """Return the text of a packed document. Raises ``DamagedDataError``."""
    if len(stored) < _HEAD:
        raise DamagedDataError(f"a packed document of {len(stored)} bytes is truncated")
    content = stored[_HEAD:]
    plain = content if stored[0] == _PLAIN else _inflate(stored[0], content)
    if zlib.crc32(plain) != int.from_bytes(stored[1:_HEAD], "big"):
        raise DamagedDataError("a packed document does not fit its checksum")
    return plain.decode()


def _inflate(mark: int, content: bytes) -> bytes:
    if mark not in (_DEFLATED, _SHORT_IDS):
        raise DamagedDataError(f"a packed document has the unknown mark {mark}")
    inflate = zlib.decompressobj(_RAW, zdict=WORDS)
    try:
        plain = inflate.decompress(content)
    except zlib.error as error:
        raise DamagedDataError(f"a packed document can't be unpacked: {error}") from None
    if not inflate.eof or inflate.unused_data:
        raise DamagedDataError("a packed document is truncated, or something follows it")
    return _SHORT_ID.sub(_long_id, plain) if mark == _SHORT_IDS else plain


def _long_id(found: "re.Match[bytes]") -> bytes:
    return str(UUID(bytes=found[1])).encode()


def unpack_id(stored: bytes) -> str:
    """Return a packed id as text. Raises ``ValueError``."""
    if stored[:1] == _UUID:
        return str(UUID(bytes=bytes(stored[1:])))
    if stored[:1] != _NAME:
        raise DamagedDataError(f"{stored!r} is not a packed id")
    return stored[1:].decode()
