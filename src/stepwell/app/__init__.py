"""The app server: ``AgentApp`` puts store, worker and server together. Only this room reads the
environment. Needs the extra ``stepwell[server]``, on PostgreSQL ``stepwell[postgres]``.

The names are loaded when first used: commands that need no server run without that extra.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepwell.app.public import *  # noqa: F403
else:  # a type checker that sees it takes every name for a public one

    def __getattr__(name: str) -> Any:
        import stepwell.app.public as public

        if name == "__all__":
            return public.__all__
        if name not in public.__all__:
            raise AttributeError(f"module 'stepwell.app' has no attribute {name!r}")
        value = globals()[name] = getattr(public, name)
        return value

    def __dir__() -> list[str]:
        return [*globals(), *__getattr__("__all__")]
