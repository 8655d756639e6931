"""The four ways to shorten a text. Lengths are in characters, and no character is cut in two."""

DOTS = "..."
_NOTE_LENGTH = 48


def truncate(text: str, limit: int) -> str:
    """Return the text in at most ``limit`` characters, three dots at its end included.

    >>> truncate("hello world", 8), truncate("hello", 8)
    ('hello...', 'hello')
    """
    return text if len(text) <= limit else f"{text[: max(limit - len(DOTS), 0)]}{DOTS}"


def truncate_after(text: str, limit: int) -> str:
    """Return the first ``limit`` characters and three dots. The slim format and envelopes count
    this way.

    >>> truncate_after("hello", 4), truncate_after("hell", 4)
    ('hell...', 'hell')
    """
    return text if len(text) <= limit else f"{text[:limit]}{DOTS}"


def truncate_with_note(text: str, limit: int, hint: str = "") -> str:
    """Return the first ``limit`` characters and how many more there are. ``hint`` says how to get
    them.

    >>> truncate_with_note("abcdef", 4), truncate_with_note("abcdef", 4, "--full shows all")
    ('abcd... [2 more characters]', 'abcd... [2 more characters; --full shows all]')
    """
    if len(text) <= limit:
        return text
    left = len(text) - limit
    more = f"{left:,} more character{'' if left == 1 else 's'}"
    return f"{text[:limit]}{DOTS} [{more}{f'; {hint}' if hint else ''}]"


def truncate_middle(text: str, limit: int) -> str:
    """Return the beginning and the end of the text in at most ``limit`` characters (at least 48).

    >>> truncate_middle("a" * 50 + "b" * 50, 60)
    'aaaaaa ... [88 characters left out] ... bbbbbb'
    """
    if len(text) <= limit:
        return text
    kept = max(limit - _NOTE_LENGTH, 0) // 2
    return join_ends(text, kept, kept, " ")


def join_ends(text: str, head: int, tail: int, separator: str = "\n") -> str:
    """Return the first ``head`` and the last ``tail`` characters of a longer text, with a note of
    how many are left out between them.

    >>> join_ends("abcdefgh", 2, 3, " ")
    'ab ... [3 characters left out] ... fgh'
    """
    note = f"{DOTS} [{len(text) - head - tail} characters left out] {DOTS}"
    return f"{text[:head]}{separator}{note}{separator}{text[len(text) - tail :]}"
