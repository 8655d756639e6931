"""The one way to shorten a long text for a model: its beginning and its end stay."""

_NOTE_LENGTH = 48


def cut_middle(text: str, limit: int) -> str:
    """Return the text in at most ``limit`` characters, with a note of how many were left out.

    >>> cut_middle("a" * 50 + "b" * 50, 60)
    'aaaaaa (... 88 characters left out ...) bbbbbb'
    """
    if len(text) <= limit:
        return text
    room = max(limit - _NOTE_LENGTH, 0) // 2
    left_out = len(text) - 2 * room
    return f"{text[:room]} (... {left_out} characters left out ...) {text[len(text) - room :]}"
