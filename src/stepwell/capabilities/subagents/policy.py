"""What holds for all subagents of an agent, whatever their specs say."""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from msgspec import Struct

from stepwell.errors import ConfigurationError
from stepwell.state import Budget


class SubagentPolicy(Struct, frozen=True, kw_only=True):
    """How deep subagents may nest, how much of their answer is kept, and what they are given.

    ``allowed_tools`` None means all that the parent has; both lists take patterns such as
    ``"mcp_*"``. ``models`` gives the words that specs use for models the presets they mean here.
    ``budget`` is for specs that have none; what the parent has left caps every child.

    >>> SubagentPolicy(denied_tools=("bash",)).offered(["bash", "read_file"])
    ('read_file',)
    """

    max_depth: int = 3
    summary_max_chars: int = 8000
    allowed_tools: tuple[str, ...] | None = None
    denied_tools: tuple[str, ...] = ()
    models: Mapping[str, str] = {}
    budget: Budget | None = None

    def __post_init__(self) -> None:
        for name in ("max_depth", "summary_max_chars"):
            number = getattr(self, name)
            if not isinstance(number, int) or isinstance(number, bool) or number < 1:
                raise ConfigurationError(f"{name} must be 1 or more, got {number!r}")
        for name in ("allowed_tools", "denied_tools"):
            if isinstance(getattr(self, name), str):
                raise ConfigurationError(f"{name} wants several names; write {name}=(...,)")

    def offered(self, names: Iterable[str]) -> tuple[str, ...]:
        """Which of the parent's tools a child may be given at all."""
        return tuple(name for name in names if self._is_offered(name))

    def _is_offered(self, name: str) -> bool:
        if any(fnmatchcase(name, pattern) for pattern in self.denied_tools):
            return False
        allowed = self.allowed_tools
        return allowed is None or any(fnmatchcase(name, pattern) for pattern in allowed)
