"""Secrets: a holder that never prints them, one way to take them out of texts, and the one list of
names and shapes by which they are known.
"""

import json
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Awaitable, Callable, Iterable, Iterator
from inspect import isawaitable
from typing import Any, ClassVar, NoReturn
from urllib.parse import quote, quote_plus

from msgspec import Struct

from stepwell.errors import ConfigurationError
from stepwell.text import map_json

HIDDEN = "[secret]"
"""What stands in place of a secret, for people and for the model."""

SHORTEST = 8
"""Characters. A shorter value, such as ``fast`` or the dummy key of a local server, is hardly a
secret, and cutting it out of everything would spoil the text."""

_SHORTEST_ENCODED = 8
SecretSource = Callable[[], str | Awaitable[str]]


class Secret:
    """A secret text, or a function that returns it for each use. Never printed, copied or stored.

    >>> secret = Secret("very-secret")
    >>> print(secret, repr(secret), f"{secret!s:.20}")
    Secret([secret]) Secret([secret]) Secret([secret])
    """

    __slots__ = ("__source",)
    noun: ClassVar[str] = "secret"

    def __init__(self, source: str | SecretSource) -> None:
        if not isinstance(source, str) and not callable(source):
            raise ConfigurationError(
                f"a {self.noun} is a text or a function that returns one, not a "
                f"{type(source).__name__}"
            )
        if isinstance(source, str):
            self.check(source, f"the {self.noun}")
        self.__source = source

    async def reveal(self) -> str:
        """Return the secret itself. Raises ``ConfigurationError``, which does not show it."""
        try:
            given = self.__source() if callable(self.__source) else self.__source
            text = await given if isawaitable(given) else given
        except ConfigurationError:
            raise
        except (OSError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise ConfigurationError(
                f"the function that gives the {self.noun} raised {type(error).__name__}"
            ) from None
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(
                f"the function that gives the {self.noun} returned a {type(text).__name__}, not a "
                "text"
            )
        self.check(text, f"the {self.noun}")
        return text

    @staticmethod
    def check(text: str, what: str) -> None:
        """Refuse what can't stand in a header: the HTTP library's error would show it."""
        if not text or not text.isascii() or not text.isprintable() or text != text.strip():
            raise ConfigurationError(
                f"{what} is empty, or has spaces around it, line breaks or characters that are not "
                "ASCII; copy it again"
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({HIDDEN})"

    def __copy__(self) -> "Secret":
        return self

    def __deepcopy__(self, _: object) -> "Secret":
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a {self.noun} is never serialized")


def hide(text: str, values: Iterable[str], shortest: int = SHORTEST) -> str:
    """Return the text with these values replaced by ``HIDDEN``, as they are and as they are encoded
    in addresses, headers and dumps. Values of fewer than ``shortest`` characters stay.

    >>> hide("key=hunter2-hunter2&verbose=yes", ["hunter2-hunter2", "yes"])
    'key=[secret]&verbose=yes'
    """
    return Redactor.of(values, shortest).text(text)


class Redactor(Struct, frozen=True):
    """Replaces known secrets by ``HIDDEN``. ``forms`` has every form of them, the longest first,
    since one may contain another."""

    forms: tuple[str, ...] = ()

    @classmethod
    def of(cls, values: Iterable[str], shortest: int = SHORTEST) -> "Redactor":
        """For these values; those of fewer than ``shortest`` characters are not replaced."""
        return cls(_forms_of(values, shortest))

    def text(self, text: str) -> str:
        """The text without the secrets."""
        for form in self.forms:
            text = text.replace(form, HIDDEN)
        return text

    def data(self, data: bytes) -> bytes:
        """Bytes without the secrets."""
        for form in self.forms:
            data = data.replace(form.encode(errors="replace"), HIDDEN.encode())
        return data

    def json(self, value: Any) -> Any:
        """JSON data without the secrets."""
        return map_json(value, self.leaf)

    def leaf(self, value: Any) -> Any:
        """A single text, number or bytes without the secrets; anything else as it is."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, bytes):
            return self.data(value)
        is_number = isinstance(value, int | float)
        return HIDDEN if is_number and str(value) in self.forms else value


def forms_of(text: str) -> set[str]:
    """The text itself, as it is written in JSON, in a repr and in bytes, and if it is not short in
    addresses, as hex and in base64."""
    data = text.encode(errors="replace")
    quoted = (json.dumps(text, ensure_ascii=False), json.dumps(text), repr(text), ascii(text))
    forms = {text, repr(data)[2:-1], *(form[1:-1] for form in quoted)}
    return forms if len(text) < _SHORTEST_ENCODED else forms | set(_encodings_of(text, data))


def _encodings_of(text: str, data: bytes) -> Iterator[str]:
    yield quote(text, safe="", errors="replace")
    yield quote(text, errors="replace")
    yield quote_plus(text, errors="replace")
    yield from (data.hex(), data.hex().upper())
    for before in range(3):  # base64 looks different behind one or two other bytes
        whole = (before + len(data)) // 3 * 3
        for encode in (b64encode, urlsafe_b64encode):
            yield encode((bytes(before) + data)[:whole]).decode()[before + (before > 0) :]


def _forms_of(values: Iterable[str], shortest: int) -> tuple[str, ...]:
    forms = {form for value in values if len(value) >= shortest for form in forms_of(value)}
    return tuple(sorted(forms, key=lambda form: (-len(form), form)))


_FIELD = (
    r"(?:[\w-]*(?:api[_-]?key|(?:access|auth|refresh)[_-]?token|client[_-]?secret"
    r"|(?:secret|private)(?:[_-]?access)?[_-]?key|passw(?:or)?d)|authorization|token|secret)"
)
_SECRET_FIELD = re.compile(_FIELD, re.IGNORECASE)
_SECRET_VARIABLE = re.compile(
    r"""
    .*(_|^)(API_?KEYS?|KEYS?|PAT|PWD|CREDS?|DSN|COOKIES?)(_.*)?   # as a word of the name
    | .*(TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|APIKEY|PRIVATE).*
    | (AWS|AZURE|GCP|GOOGLE|VAULT|KUBE|DOCKER|OPENAI|ANTHROPIC|GEMINI)_.*
    | SSH_AUTH_SOCK | SSH_AGENT_PID | GPG_AGENT_INFO | KUBECONFIG | NETRC | PGPASSFILE
    | (DATABASE|REDIS|MONGO|POSTGRES|AMQP|BROKER)\w*_(URL|URI)
    """,
    re.VERBOSE | re.IGNORECASE,
)
_TOKEN = r"[A-Za-z0-9._~+/=-]"
SECRET_PATTERNS = (
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
    rf'"(?i:{_FIELD})"\s*:\s*"(?P<json>(?:\\.|[^"\\])+)',
    rf'\\"(?i:{_FIELD})\\"\s*:\s*\\"(?P<nested>[^"\\]+)',
    rf"'(?i:{_FIELD})'\s*:\s*'(?P<repr>[^']+)",
    # As a line of a settings file, or a header.
    rf"(?<![\w-])(?i:{_FIELD})\s*[=:]\s*[\"']?(?!(?i:basic|bearer)\b)(?P<line>[^\s\"',;\\]{{4,}})",
)
"""What looks like a secret in any text; ``PATTERN_VALUES`` names the groups that hold it, where it
is not the whole match."""
PATTERN_VALUES = ("bearer", "basic", "json", "nested", "repr", "line")


def is_secret_field(name: str) -> bool:
    """Return whether a field of that name in a request or response holds a secret.

    >>> is_secret_field("api_key"), is_secret_field("keyboard"), is_secret_field("max_tokens")
    (True, False, False)
    """
    return _SECRET_FIELD.fullmatch(name) is not None


def is_secret_variable(name: str) -> bool:
    """Return whether an environment variable of that name may hold a secret. Errs on the safe side.

    >>> [it for it in ("OPENAI_API_KEY", "GITHUB_TOKEN", "PWD", "EDITOR") if is_secret_variable(it)]
    ['OPENAI_API_KEY', 'GITHUB_TOKEN']
    """
    return name.upper() != "PWD" and _SECRET_VARIABLE.fullmatch(name) is not None
