"""The policy for all subagents of an agent, which overrides their specs."""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import cast

from msgspec import Struct
from msgspec.structs import force_setattr

from stepwell.errors import ConfigurationError
from stepwell.parameters import check_integer
from stepwell.specs.checks import check_budget, clean_names
from stepwell.specs.spec import AgentSpec
from stepwell.state import Budget


class SubagentPolicy(Struct, frozen=True, kw_only=True):
    """How deep subagents may nest, how much of their answer is kept, and what they may use.

    ``allowed_tools`` None means all tools of the parent; both lists accept patterns such as
    ``"mcp_*"``. ``models`` maps the words that specs use for models to presets. ``budget`` is the
    default for specs without one, and caps specs that are not trusted; what the parent has left
    caps every child.

    >>> SubagentPolicy(denied_tools=("bash",)).allowed_names(["bash", "read_file"])
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
            check_integer(getattr(self, name), name, least=1)
        if self.allowed_tools is not None:
            force_setattr(self, "allowed_tools", clean_names(self.allowed_tools, "allowed_tools"))
        force_setattr(self, "denied_tools", clean_names(self.denied_tools, "denied_tools"))
        _check_models(self.models)
        check_budget(self.budget)

    def allowed_names(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return which of the parent's tools a child may have."""
        return tuple(name for name in names if self._is_allowed(name))

    def budget_of(self, spec: AgentSpec) -> Budget | None:
        """Return the budget of a child with that spec, before the cap of its parent's budget."""
        if spec.budget is None or self.budget is None:
            return spec.budget or self.budget
        return spec.budget if spec.trusted else spec.budget.capped_by(self.budget)

    def _is_allowed(self, name: str) -> bool:
        if any(fnmatchcase(name, pattern) for pattern in self.denied_tools):
            return False
        allowed = self.allowed_tools
        return allowed is None or any(fnmatchcase(name, pattern) for pattern in allowed)


def _check_models(models: object) -> None:
    pairs = cast("Mapping[object, object]", models) if isinstance(models, Mapping) else {None: None}
    for word, preset in pairs.items():
        if not (isinstance(word, str) and isinstance(preset, str) and preset):
            raise ConfigurationError(
                f"models must map the words in specs to presets, got {models!r:.80}. Write "
                'models={"sonnet": "anthropic:claude-sonnet-4-5"}'
            )
