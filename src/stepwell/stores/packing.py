"""Documents and ids in few bytes.

A packed document is a mark, which says how it was packed, the CRC-32 of its text and the content:
the text itself or, if that is shorter, deflated against ``packing_words``. In a short one the ids
are most of what is left, so they are made short before. Nothing else can tell a damaged event from
a sound one, so what does not fit its sum is refused.
"""

import re
import zlib
from uuid import UUID

from stepwell.stores.errors import DamagedDataError
from stepwell.stores.packing_words import FIRST_WORDS

# Marks. Only ever added to: what was stored under one must stay readable.
_PLAIN, _DEFLATED, _SHORT_IDS = 0, 1, 2
_WORDS = {_DEFLATED: FIRST_WORDS, _SHORT_IDS: FIRST_WORDS}
_HEAD = 5
_RAW = -15
_LEVEL = 6
_NAME, _UUID = b"\x00", b"\x01"
_UUID_LENGTH = 36
_ID = re.compile(rb"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
_SHORT_ID = re.compile(rb"\x00(.{16})", re.DOTALL)
_LONG = 1000
"""Bytes of a document in which short ids would make the rest longer than they save."""


def packed(text: str) -> bytes:
    """That text in few bytes.

    >>> packed("{}").hex(" ")
    '00 a3 a6 bf 43 7b 7d'
    """
    plain = text.encode()
    mark, content = _DEFLATED, plain
    if len(plain) < _LONG and b"\x00" not in plain:
        mark, content = _SHORT_IDS, _ID.sub(_short_id, plain)
    deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, _RAW, zdict=_WORDS[mark])
    content = deflate.compress(content) + deflate.flush()
    if len(content) >= len(plain):
        mark, content = _PLAIN, plain
    return bytes((mark,)) + zlib.crc32(plain).to_bytes(4, "big") + content


def unpacked(stored: bytes) -> str:
    """The text again. Raises ``DamagedDataError``."""
    if len(stored) < _HEAD:
        raise DamagedDataError(f"a packed document of {len(stored)} bytes is cut off")
    content = stored[_HEAD:]
    plain = content if stored[0] == _PLAIN else _inflated(stored[0], content)
    if zlib.crc32(plain) != int.from_bytes(stored[1:_HEAD], "big"):
        raise DamagedDataError("a packed document does not fit its checksum")
    return plain.decode()


def _inflated(mark: int, content: bytes) -> bytes:
    words = _WORDS.get(mark)
    if words is None:
        raise DamagedDataError(f"a packed document has the unknown mark {mark}")
    inflate = zlib.decompressobj(_RAW, zdict=words)
    try:
        plain = inflate.decompress(content)
    except zlib.error as error:
        raise DamagedDataError(f"a packed document can't be unpacked: {error}") from None
    if not inflate.eof or inflate.unused_data:
        raise DamagedDataError("a packed document is cut off, or something follows it")
    return _SHORT_ID.sub(_long_id, plain) if mark == _SHORT_IDS else plain


def _short_id(found: "re.Match[bytes]") -> bytes:
    return b"\x00" + bytes.fromhex(found[0].replace(b"-", b"").decode())


def _long_id(found: "re.Match[bytes]") -> bytes:
    return str(UUID(bytes=found[1])).encode()


def packed_id(id: str) -> bytes:
    """An id in few bytes; almost all are UUIDs.

    >>> len(packed_id("01a1e474-cf56-7c98-9f59-e881d8fddbc4")), packed_id("x")
    (17, b'\\x00x')
    """
    if len(id) == _UUID_LENGTH:
        try:
            uuid = UUID(id)
        except ValueError:
            pass
        else:
            if str(uuid) == id:
                return _UUID + uuid.bytes
    return _NAME + id.encode()


def unpacked_id(stored: bytes) -> str:
    """The id again. Raises ``ValueError``."""
    if stored[:1] == _UUID:
        return str(UUID(bytes=bytes(stored[1:])))
    if stored[:1] != _NAME:
        raise DamagedDataError(f"{stored!r} is no packed id")
    return stored[1:].decode()
