"""How long the result of a tool may be. One rule for all: what a tool returned or raised, what an
MCP server or a subagent answered, what a hook gave instead. The executor applies it after secrets
are hidden and before anything is stored, emitted or shown to the model."""

from typing import Any

from msgspec.structs import replace

from stepwell.errors import ConfigurationError
from stepwell.state import ToolOutcome
from stepwell.tools.registry import Tools
from stepwell.tools.result_text import (
    RESULT_LIMIT_RULE,
    as_text,
    is_result_limit,
    truncate_result,
)
from stepwell.tools.results import Finished


class ResultLimits:
    """A tool's own ``max_result_characters``, or else the agent's."""

    def __init__(self, tools: Tools, characters: int) -> None:
        if not is_result_limit(characters):
            raise ConfigurationError(f"{RESULT_LIMIT_RULE}, got {characters!r}")
        self._tools, self._characters = tools, characters

    def truncate(self, finished: Finished) -> Finished:
        """The same, with texts and values that are too long cut; the cut ones end with a note."""
        execution = finished.execution
        name = execution.call.name
        limit = self._limit_of(name)
        text, value, error = execution.text, execution.value, execution.error
        if len(text) > limit:
            text = truncate_result(text, limit, name)
            value = text if execution.outcome is ToolOutcome.COMPLETED else value
        if execution.outcome is not ToolOutcome.COMPLETED or isinstance(value, str):
            value = _bounded_value(value, limit, name)
        if error is not None and len(error.message) > limit:
            error = replace(error, message=truncate_result(error.message, limit, name))
        if (text, error) == (execution.text, execution.error) and value is execution.value:
            return finished
        cut = replace(execution, text=text, value=value, error=error)
        return replace(finished, execution=cut)

    def _limit_of(self, name: str) -> int:
        tool = self._tools.find(name)
        return getattr(tool, "max_result_characters", None) or self._characters


def _bounded_value(value: Any, limit: int, tool: str) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = as_text(value)
    return value if len(text) <= limit else truncate_result(text, limit, tool)
