"""Keys of providers, held so that they never print, copy or serialise, and the one place of the
library that reads the environment: for keys and addresses of providers, when they are used.
"""

import os
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import NoReturn

from stepwell.errors import ConfigurationError, ModelError, ModelErrorKind

HIDDEN = "[hidden]"
SHORTEST_SECRET = 8
KeySource = Callable[[], "str | Awaitable[str]"]


class ApiKey:
    """A provider's key: a text, or a function that gives it anew for each request.

    >>> key = ApiKey("sk-very-secret")
    >>> print(key, repr(key), f"{key!s:.20}")
    ApiKey([hidden]) ApiKey([hidden]) ApiKey([hidden])
    """

    __slots__ = ("__source",)

    def __init__(self, source: str | KeySource) -> None:
        if not isinstance(source, str) and not callable(source):
            raise ConfigurationError(
                f"a key is a text or a function that returns one, not a {type(source).__name__}"
            )
        if isinstance(source, str):
            _refuse_odd(source, "the key")
        self.__source = source

    @classmethod
    def from_env(cls, variable: str, *, owner: str) -> "ApiKey":
        """The key in an environment variable, read anew for each request."""

        def read() -> str:
            value = from_environment(variable)
            if value is None:
                raise ConfigurationError(
                    f"{owner} needs a key: set the environment variable {variable}, or give it in "
                    f'code with Provider.named("{owner}").model(name, api_key=...)'
                )
            return value

        _refuse_odd(read(), variable)
        return cls(read)

    async def reveal(self) -> str:
        """The key itself; only for the header it is sent in. Raises ``ModelError``."""
        try:
            given = self.__source() if callable(self.__source) else self.__source
            key = await given if isawaitable(given) else given
            if not isinstance(key, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ConfigurationError(
                    f"the function that gives the key returned a {type(key).__name__}, not a text"
                )
            _refuse_odd(key, "the key")
        except ConfigurationError as error:
            raise ModelError(str(error), kind=ModelErrorKind.AUTHENTICATION) from error
        except (OSError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise ModelError(
                f"the function that gives the key raised {type(error).__name__}",
                kind=ModelErrorKind.AUTHENTICATION,
            ) from None
        return key

    def __repr__(self) -> str:
        return f"ApiKey({HIDDEN})"

    def __copy__(self) -> "ApiKey":
        return self

    def __deepcopy__(self, _: object) -> "ApiKey":
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key is not serialised")


def from_environment(variable: str) -> str | None:
    """The value of an environment variable, None if it is not set or blank."""
    return (os.environ.get(variable) or "").strip() or None


def without(secret: str, text: str) -> str:
    """A text in which the secret does not occur any more. What is too short to be one, such as the
    dummy keys of local servers, would only tear the text apart."""
    return text.replace(secret, HIDDEN) if len(secret) >= SHORTEST_SECRET else text


def _refuse_odd(key: str, what: str) -> None:
    """What can't stand in a header would otherwise be an error of the HTTP library, key and all."""
    if not key or not key.isascii() or not key.isprintable() or key != key.strip():
        raise ConfigurationError(
            f"{what} is empty or has blanks, line breaks or other odd characters around or in it; "
            "copy it again"
        )
