"""What holds for all subagents of an agent, whatever their specs say."""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import cast

from msgspec import Struct
from msgspec.structs import force_setattr

from stepwell.agent.spec import AgentSpec
from stepwell.agent.spec_checks import check_budget, checked_names
from stepwell.errors import ConfigurationError
from stepwell.state import Budget


class SubagentPolicy(Struct, frozen=True, kw_only=True):
    """How deep subagents may nest, how much of their answer is kept, and what they are given.

    ``allowed_tools`` None means all that the parent has; both lists take patterns such as
    ``"mcp_*"``. ``models`` gives the words that specs use for models the presets they mean here.
    ``budget`` is for specs that have none, and caps those that are not trusted; what the parent
    has left caps every child.

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
        if self.allowed_tools is not None:
            force_setattr(self, "allowed_tools", checked_names(self.allowed_tools, "allowed_tools"))
        force_setattr(self, "denied_tools", checked_names(self.denied_tools, "denied_tools"))
        _check_models(self.models)
        check_budget(self.budget)

    def offered(self, names: Iterable[str]) -> tuple[str, ...]:
        """Which of the parent's tools a child may be given at all."""
        return tuple(name for name in names if self._is_offered(name))

    def budget_of(self, spec: AgentSpec) -> Budget | None:
        """What a child of that spec may spend, as long as its parent has it."""
        if spec.budget is None or self.budget is None:
            return spec.budget or self.budget
        return spec.budget if spec.trusted else spec.budget.capped_by(self.budget)

    def _is_offered(self, name: str) -> bool:
        if any(fnmatchcase(name, pattern) for pattern in self.denied_tools):
            return False
        allowed = self.allowed_tools
        return allowed is None or any(fnmatchcase(name, pattern) for pattern in allowed)


def _check_models(models: object) -> None:
    pairs = cast("Mapping[object, object]", models) if isinstance(models, Mapping) else {None: None}
    for word, preset in pairs.items():
        if not (isinstance(word, str) and isinstance(preset, str) and preset):
            raise ConfigurationError(
                f"models wants presets by the words that specs use, got {models!r:.80}; write "
                'models={"sonnet": "anthropic:claude-sonnet-4-5"}'
            )
