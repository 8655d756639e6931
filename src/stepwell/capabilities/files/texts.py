"""Bytes as text that a model can read. Pure functions."""

from stepwell.capabilities.files.refusals import FileRefused, quote

HEAD_BYTES = 8192
BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_CONTROLS = bytes(set(range(32)) - set(b"\t\n\r\f\b\x1b")) + b"\x7f"


def refuse_binary(head: bytes, path: str) -> None:
    """Raise ``FileRefused`` if a file that starts with these bytes is not UTF-8 text."""
    if head.startswith(_UTF16):
        raise FileRefused(
            f"{quote(path)} looks like UTF-16 text, but only UTF-8 is supported; convert "
            "it first, for example with iconv"
        )
    if looks_binary(head):
        raise FileRefused(f"{quote(path)} is a binary file, not UTF-8 text")


def looks_binary(head: bytes) -> bool:
    """Return whether the bytes are binary: a NUL, or over 30 % neither UTF-8 nor printable.

    >>> looks_binary("naïve café".encode("latin-1")), looks_binary(bytes(range(128, 160)))
    (False, True)
    """
    if b"\0" in head:
        return True
    decode_line = trim_partial_character(head).decode(errors="replace")
    odd = decode_line.count("\ufffd") + sum(head.count(byte) for byte in _CONTROLS)
    return odd * 10 > len(decode_line) * 3


def trim_partial_character(data: bytes) -> bytes:
    """Drop an incomplete character at the end.

    >>> trim_partial_character("aé".encode()[:-1])
    b'a'
    """
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte >= 0xC0:  # the first byte of a character of several
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data[:-back] if back < length else data
        if byte < 0x80:
            return data
    return data


def decode_line(line: bytes) -> str:
    r"""Decode a line; bytes that are not UTF-8 become ``\xNN``.

    >>> decode_line(b"caf\xe9")
    'caf\\xe9'
    """
    return line.decode(errors="backslashreplace")


def is_utf8(line: bytes) -> bool:
    """Return whether the line is valid UTF-8."""
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def plural(count: int, noun: str) -> str:
    """Format a count with its noun.

    >>> plural(1, "line"), plural(2_000, "byte")
    ('1 line', '2000 bytes')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
