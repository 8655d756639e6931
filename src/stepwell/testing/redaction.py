"""Takes keys and other secrets out of texts before they are written to a file."""

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence

from stepwell.errors import ConfigurationError

REMOVED = "[removed]"
SHORTEST_ENCODED = 8

_NAMES = (
    r"(?:[\w-]*(?:api[_-]?key|(?:access|auth|refresh)[_-]?token|client[_-]?secret"
    r"|(?:secret|private)(?:[_-]?access)?[_-]?key|passw(?:or)?d)|authorization|token|secret)"
)
_TOKEN = r"[A-Za-z0-9._~+/=-]"
_LOOKS_LIKE_A_SECRET = (
    r"(?<![A-Za-z0-9])(?:"
    r"sk-[A-Za-z0-9_-]{6,}"
    r"|AIza[A-Za-z0-9_-]{16,}"
    r"|gsk_[A-Za-z0-9]{8,}"
    r"|xai-[A-Za-z0-9_-]{8,}"
    r"|(?:gh[opsur]_|github_pat_|hf_)[A-Za-z0-9_]{8,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{12,}"
    r"|xox[abeprs]-[A-Za-z0-9-]{8,}"
    r"|eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]+)+"
    r")",
    # Prose has bearers as well: a token is long or has a digit.
    rf"(?i:\bbearer)\s+(?P<bearer>(?=[A-Za-z._~+/=-]*\d){_TOKEN}{{6,}}|{_TOKEN}{{20,}})",
    r"(?i:\bbasic)\s+(?P<basic>[A-Za-z0-9+/]{6,}={0,2})",
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?:(?!-----END )[\s\S])*(?:-----END [A-Z ]*-----)?",
    # As JSON, as JSON inside a JSON text, as Python shows a dict. A text may be cut off before
    # the closing quote.
    rf'"(?i:{_NAMES})"\s*:\s*"(?P<json>(?:\\.|[^"\\])+)',
    rf'\\"(?i:{_NAMES})\\"\s*:\s*\\"(?P<nested>[^"\\]+)',
    rf"'(?i:{_NAMES})'\s*:\s*'(?P<repr>[^']+)",
    # As a line of a settings file, or a header.
    rf"(?<![\w-])(?i:{_NAMES})\s*[=:]\s*[\"']?(?!(?i:basic|bearer)\b)(?P<line>[^\s\"',;\\]{{4,}})",
)
_VALUES = ("bearer", "basic", "json", "nested", "repr", "line")
_SECRET_NAME = re.compile(_NAMES, re.IGNORECASE)


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
                known |= {secret, json.dumps(secret)[1:-1], *_encoded(secret)}
                known.add(json.dumps(secret, ensure_ascii=False)[1:-1])
        longest_first = sorted(known, key=lambda secret: (-len(secret), secret))
        self._pattern = re.compile(
            "|".join(
                (re.escape(REMOVED), *(re.escape(s) for s in longest_first), *_LOOKS_LIKE_A_SECRET)
            )
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

    @staticmethod
    def names_a_secret(name: str) -> bool:
        """Whether what goes by this name is a secret.

        >>> Redaction.names_a_secret("OPENAI_API_KEY"), Redaction.names_a_secret("keyboard")
        (True, False)
        """
        return _SECRET_NAME.fullmatch(name) is not None

    def _spans(self, text: str) -> list[tuple[int, int]]:
        spans: list[tuple[int, int]] = []
        for match in self._pattern.finditer(text):
            group = next((name for name in _VALUES if match[name] is not None), 0)
            if match[group] != REMOVED:
                spans.append(match.span(group))
        return spans


def _encoded(secret: str) -> Iterator[str]:
    """The secret as it stands in base64, whatever is before and behind it."""
    data = secret.encode("utf-8", "surrogatepass")
    for before in range(3):
        text = b64encode(bytes(before) + data).decode().rstrip("=")
        sure = text[-(-before * 8 // 6) : (before + len(data)) * 8 // 6]
        if len(sure) >= SHORTEST_ENCODED:
            yield sure


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
