"""Keys of providers, and the one place of the library that reads the environment: for keys and
addresses of providers, when they are used.
"""

import os
from typing import ClassVar

from stepwell.errors import ConfigurationError, ModelError, ModelErrorKind
from stepwell.secrets import Secret


class ApiKey(Secret):
    """A provider's key: a text, or a function that returns it for each request.

    >>> print(ApiKey("sk-very-secret"))
    ApiKey([secret])
    """

    __slots__ = ()
    noun: ClassVar[str] = "key"

    @classmethod
    def from_env(cls, variable: str, *, owner: str) -> "ApiKey":
        """The key in an environment variable, read for each request."""

        def read() -> str:
            value = from_environment(variable)
            if value is None:
                raise ConfigurationError(
                    f"{owner} needs a key: set the environment variable {variable}, or give it in "
                    f'code with Provider.named("{owner}").model(name, api_key=...)'
                )
            return value

        cls.check(read(), variable)
        return cls(read)

    async def reveal(self) -> str:
        """Return the key itself, only for the header it is sent in. Raises ``ModelError``."""
        try:
            return await super().reveal()
        except ConfigurationError as error:
            raise ModelError(str(error), kind=ModelErrorKind.AUTHENTICATION) from error


def from_environment(variable: str) -> str | None:
    """The value of an environment variable, None if it is not set or blank."""
    return (os.environ.get(variable) or "").strip() or None
