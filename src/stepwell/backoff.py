"""How long to wait between tries: for the error policy and for models that retry."""

from msgspec import Struct

from stepwell.errors import ConfigurationError
from stepwell.parameters import check_number


class Backoff(Struct, frozen=True, kw_only=True):
    """How long to wait before a retry that a provider gave no time for."""

    initial: float = 1.0
    factor: float = 2.0
    maximum: float = 60.0
    jitter: float = 0.25
    """The share of each wait that chance may take off, so that many clients don't come back at
    once."""

    def __post_init__(self) -> None:
        for name in ("initial", "factor", "maximum", "jitter"):
            check_number(getattr(self, name), name)
        if self.jitter > 1:
            raise ConfigurationError(f"jitter is a share from 0 to 1, got {self.jitter}")

    def delay(self, failures: int, chance: float = 0.0) -> float:
        """Seconds to wait after that many failures in a row; chance, 0 to 1, shortens it.

        >>> [Backoff().delay(n) for n in (1, 2, 3, 10)]
        [1.0, 2.0, 4.0, 60.0]
        """
        full = min(self.initial * self.factor ** min(failures - 1, 64), self.maximum)
        return full * (1 - self.jitter * chance)
