"""The text of one step as a client has it, and how a later attempt at the step changes it. Pure.

An AI SDK client can't remove text. So the text of a new attempt is held back while it equals what
was sent; only what goes beyond is sent, and text that differs supersedes the earlier part.
"""

from typing import NamedTuple

SUPERSEDED = {"stepwell": {"superseded": True}}
"""The provider metadata of a text part that a later attempt at its step replaced."""


class TextChange(NamedTuple):
    """What to send: a mark that the earlier part is superseded, if it is, and a piece of text."""

    supersedes: bool
    text: str


class AttemptText:
    """Compares the text of the newest attempt with what was sent.

    >>> text = AttemptText()
    >>> text.add("Hello wor", is_open=True)
    TextChange(supersedes=False, text='Hello wor')
    >>> text.begin_again()
    >>> text.add("Hello", is_open=True), text.add(" world", is_open=True)
    (TextChange(supersedes=False, text=''), TextChange(supersedes=False, text='ld'))
    """

    def __init__(self) -> None:
        self._sent = ""
        self._again: str | None = None

    @property
    def is_held(self) -> bool:
        """Whether the client has all text of the newest attempt so far."""
        return self._again is not None

    def begin_again(self) -> None:
        """Begin another attempt at the same step."""
        self._again = "" if self._sent else None

    def add(self, delta: str, *, is_open: bool) -> TextChange:
        """Return the change that a piece of text makes. ``is_open`` says that the text part of the
        client is open, so that it can grow."""
        if self._again is None:
            self._sent += delta
            return TextChange(False, delta)
        self._again += delta
        if self._sent.startswith(self._again):
            return TextChange(False, "")
        return self.settle(self._again, is_open=is_open)

    def end(self, *, is_open: bool) -> TextChange:
        """Return the change that the end of the response makes."""
        if self._again is None:
            return TextChange(False, "")
        return self.settle(self._again, is_open=is_open)

    def settle(self, whole: str, *, is_open: bool) -> TextChange:
        """Return the change that makes the client's text this one."""
        before, self._sent, self._again = self._sent, whole, None
        if whole == before or (is_open and whole.startswith(before)):
            return TextChange(False, whole[len(before) :])
        return TextChange(bool(before), whole)
