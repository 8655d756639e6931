"""Stepwell: tool-calling agents whose every step and every stop is explained.

The names are loaded when first used, so that ``import stepwell`` alone costs next to nothing (a
command line that only prints its help, say). ``stepwell.public`` has the list.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from stepwell.public import *  # noqa: F403
else:  # a type checker that sees it takes every name for a public one

    def __getattr__(name: str) -> Any:
        import stepwell.public as public

        if name == "__all__":
            return public.__all__
        if name not in public.__all__:
            raise AttributeError(f"module 'stepwell' has no attribute {name!r}")
        value = globals()[name] = getattr(public, name)
        return value

    def __dir__() -> list[str]:
        return [*globals(), *__getattr__("__all__")]
