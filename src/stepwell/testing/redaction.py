"""Takes keys and other secrets out of texts before they are written to a file."""

import re
from collections.abc import Iterable, Sequence

from stepwell.errors import ConfigurationError
from stepwell.secrets import PATTERN_VALUES, SECRET_PATTERNS, forms_of

REMOVED = "[removed]"


class Redaction:
    """Replaces given texts, and all that looks like a key, by ``[removed]``.

    What was removed already stays as it is, since answers that are replayed are asked again.

    >>> Redaction(["hunter2"]).text("hunter2 uses sk-proj-abc123 as Bearer abcdef123456")
    '[removed] uses [removed] as Bearer [removed]'
    """

    def __init__(self, secrets: Iterable[str | None] = ()) -> None:
        if isinstance(secrets, str):
            raise ConfigurationError("secrets wants several texts; write secrets=(key,)")
        secrets = tuple(secrets)
        self._given = secrets
        known: set[str] = set()
        for secret in secrets:
            if secret is not None and not isinstance(secret, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ConfigurationError(f"a secret is a text, not a {type(secret).__name__}")
            if secret:  # a variable that is not set is nothing to hide
                known |= forms_of(secret)
        longest_first = sorted(known, key=lambda secret: (-len(secret), secret))
        self._pattern = re.compile(
            "|".join((re.escape(REMOVED), *(re.escape(s) for s in longest_first), *SECRET_PATTERNS))
        )

    def also(self, secrets: Iterable[str]) -> "Redaction":
        """One that knows these texts as well."""
        more = tuple(secrets)
        return Redaction((*self._given, *more)) if more else self

    def text(self, text: str) -> str:
        """The text without secrets."""
        return self.pieces((text,))[0]

    def pieces(self, pieces: Sequence[str]) -> list[str]:
        """The pieces of one text without the secrets in it, also those that span pieces.

        >>> Redaction().pieces(["key sk-", "proj-abc", "123!"])
        ['key [removed]', '', '!']
        """
        whole = "".join(pieces)
        spans = self._spans(whole)
        if not spans:
            return list(pieces)
        kept: list[str] = []
        start = 0
        for piece in pieces:
            end = start + len(piece)
            kept.append(_without(whole, start, end, spans))
            start = end
        return kept

    def _spans(self, text: str) -> list[tuple[int, int]]:
        spans: list[tuple[int, int]] = []
        for match in self._pattern.finditer(text):
            group = next((name for name in PATTERN_VALUES if match[name] is not None), 0)
            if match[group] != REMOVED:
                spans.append(match.span(group))
        return spans


def _without(whole: str, start: int, end: int, spans: Sequence[tuple[int, int]]) -> str:
    """The text from start to end; a secret is named once, where it begins."""
    kept: list[str] = []
    at = start
    for first, last in spans:
        if last <= start or first >= end:
            continue
        kept.append(whole[at : max(first, at)])
        if first >= start:
            kept.append(REMOVED)
        at = min(last, end)
    kept.append(whole[at:end])
    return "".join(kept)
