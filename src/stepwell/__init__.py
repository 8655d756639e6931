"""Stepwell: tool-calling agents whose every step and every stop is explained.

The names are loaded when first used, so that ``import stepwell`` alone costs next to nothing (a
command line that only prints its help, say). ``stepwell.public`` has the list.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from stepwell.public import *  # noqa: F403
else:  # a type checker that sees it takes every name for a public one

    def __getattr__(name: str) -> Any:
        public = import_module("stepwell.public")

        if name == "__all__":
            return public.__all__
        value = public.load(name)
        if name in public.ROOM_OF:
            globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return [*globals(), *__getattr__("__all__")]
