"""Increments of a state as compressed bytes: zlib with ``increment_words`` as preset dictionary.

The only column that a person can't read as it is; ``stepwell snapshots show`` and the API give the
whole state as JSON. Zlib's own checksum tells a damaged increment from a sound one.
"""

import zlib

from stepwell.stores.errors import DamagedDataError
from stepwell.stores.increment_words import INCREMENT, STATE

_DICTIONARY = (STATE + INCREMENT).encode()
_LEVEL = 3
_SMALL = 8_000
"""Characters of an increment that needs no more than a window of 8 KB: a third of the memory of the
usual one is made ready for it."""
_SMALL_WINDOW, _SMALL_MEMORY = 13, 7


def compress_increment(text: str) -> bytes:
    """Compress the text of an increment.

    >>> expand_increment(compress_increment("{}"))
    '{}'
    """
    if len(text) < _SMALL:
        deflate = zlib.compressobj(
            _LEVEL, wbits=_SMALL_WINDOW, memLevel=_SMALL_MEMORY, zdict=_DICTIONARY
        )
    else:
        deflate = zlib.compressobj(_LEVEL, zdict=_DICTIONARY)
    return deflate.compress(text.encode()) + deflate.flush()


def expand_increment(stored: bytes) -> str:
    """Return the text of a compressed increment. Raises ``DamagedDataError``."""
    inflate = zlib.decompressobj(zdict=_DICTIONARY)
    try:
        text = inflate.decompress(stored).decode()
    except (zlib.error, UnicodeDecodeError) as error:
        raise DamagedDataError(f"a compressed increment can't be expanded: {error}") from None
    if not inflate.eof or inflate.unused_data:
        raise DamagedDataError("a compressed increment is truncated, or something follows it")
    return text
