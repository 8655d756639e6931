"""Bytes as a model can read them: what is text, and how it is shown. Only pure functions."""

from stepwell.capabilities.files.refusals import FileRefused, shortened

HEAD_BYTES = 8192
BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_CONTROLS = bytes(set(range(32)) - set(b"\t\n\r\f\b\x1b")) + b"\x7f"


def refuse_binary(head: bytes, path: str) -> None:
    """Raises ``FileRefused`` if a file that begins so is no text."""
    if head.startswith(_UTF16):
        raise FileRefused(
            f"{shortened(path)!r} looks like UTF-16 text, and only UTF-8 can be used; convert it "
            "first, for example with iconv"
        )
    if looks_binary(head):
        raise FileRefused(f"{shortened(path)!r} is a binary file, not UTF-8 text")


def looks_binary(head: bytes) -> bool:
    """Whether bytes are no text: a NUL, or too much that is neither UTF-8 nor printable.

    >>> looks_binary("naïve café".encode("latin-1")), looks_binary(bytes(range(128, 160)))
    (False, True)
    """
    if b"\0" in head:
        return True
    decoded = whole_characters(head).decode(errors="replace")
    strange = decoded.count("\ufffd") + sum(head.count(byte) for byte in _CONTROLS)
    return strange * 10 > len(decoded) * 3


def whole_characters(data: bytes) -> bytes:
    """Without the character at the end that was cut.

    >>> whole_characters("aé".encode()[:-1])
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


def decoded(line: bytes) -> str:
    r"""A line as text; bytes that are not UTF-8 are shown as ``\xNN``.

    >>> decoded(b"caf\xe9")
    'caf\\xe9'
    """
    return line.decode(errors="backslashreplace")


def is_utf8(line: bytes) -> bool:
    """Whether every byte belongs to a character."""
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def plural(count: int, noun: str) -> str:
    """A number with its noun.

    >>> plural(1, "line"), plural(2_000, "byte")
    ('1 line', '2000 bytes')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
