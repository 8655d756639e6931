"""The slim format: a bounded snapshot of a state, to show and to ship. It loses things by design:
what an execution resumes from is the full format.
"""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from stepwell.errors import ConfigurationError
from stepwell.messages import Usage
from stepwell.serialization.slim_config import SlimSerializationConfig
from stepwell.serialization.slim_messages import message_entries
from stepwell.serialization.slim_reader import read_state
from stepwell.serialization.slim_values import clip_name, mapping_to_json
from stepwell.state import AgentState, StepExecution
from stepwell.text import replace_half_characters

_DEFAULTS = SlimSerializationConfig()


class SlimAgentStateSerializer:
    """Shows a state as a small JSON document, and makes one that a conversation can go on from.

    The newest messages are kept, and no tool call is parted from its results. Images and files
    become short placeholders, thinking is left out, long texts are cut, and values marked as
    secret become ``[secret]``.

    >>> slim = SlimAgentStateSerializer(SlimSerializationConfig(max_content_length=4))
    >>> document = slim.serialize(AgentState.empty().with_user_message("Hello"))
    >>> document["messages"][0]["content"], document["status"]
    ('Hell...', 'in_progress')
    >>> slim.deserialize(document).messages.last.text
    'Hell...'
    """

    def __init__(self, config: SlimSerializationConfig = _DEFAULTS) -> None:
        if not isinstance(config, SlimSerializationConfig):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(
                f"config is {config!r:.80}; give a SlimSerializationConfig, such as "
                "SlimSerializationConfig.standard()"
            )
        self.config = config

    def serialize(self, state: AgentState, /) -> dict[str, Any]:
        """The state as JSON-ready data, within the bounds of the configuration."""
        config = self.config
        parent = state.parent_agent_id
        waiting = [asked.call_id for asked in state.pending if asked.call_id is not None]
        return {
            "agent_id": replace_half_characters(state.agent_id),
            "parent_agent_id": None if parent is None else replace_half_characters(parent),
            "status": state.status.value,
            "step_count": state.step_count,
            "usage": _usage(state.usage),
            "execution": _execution(state),
            "messages": message_entries(state.messages, config, waiting),
            "steps": self._steps(state),
            "last_continuation": _decision(state) if config.include_continuation_trace else None,
            "metadata": mapping_to_json(state.metadata, config.max_content_length),
        }

    def deserialize(self, data: Mapping[str, Any], /) -> AgentState:
        """The state that the data tell of, without an execution: the next run begins a new one.

        Raises ``SerializationError``, which names the field, for data that are no such document.
        """
        return read_state(data)

    def _steps(self, state: AgentState) -> list[dict[str, Any]]:
        steps, most = state.steps, self.config.max_steps
        if not self.config.include_steps:
            return []
        return [_step(step) for step in steps[max(len(steps) - most, 0) :]]


def _usage(usage: Usage) -> dict[str, int]:
    return {
        "prompt": usage.input_tokens,
        "completion": usage.output_tokens,
        "total": usage.total_tokens,
        "cached": usage.cached_tokens,
        "reasoning": usage.reasoning_tokens,
    }


def _execution(state: AgentState) -> dict[str, Any]:
    execution = state.execution
    return {
        "id": None if execution is None else replace_half_characters(execution.id),
        "count": state.execution_count,
        "created_at": _time(state.created_at),
        "started_at": _time(state.created_at if execution is None else execution.started_at),
        "updated_at": _time(state.updated_at),
        "cumulative_seconds": _finite(state.active_seconds),
    }


def _step(record: StepExecution) -> dict[str, Any]:
    step = record.step
    return {
        "step_number": record.number,
        "type": step.step_type.value,
        "has_tool_calls": step.has_tool_calls,
        "finish_reason": None if step.finish_reason is None else step.finish_reason.value,
        "errors": len(step.errors),
        "usage": {"total": step.usage.total_tokens},
        "duration_ms": round(_finite(record.duration_seconds) * 1000, 3),
        "tool_calls": [
            {"id": replace_half_characters(call.id), "name": clip_name(call.name)}
            for call in step.tool_calls
        ],
    }


def _decision(state: AgentState) -> dict[str, Any] | None:
    outcome = state.outcome
    if outcome is None:
        return None
    return {
        "should_continue": outcome.should_continue,
        "stop_reason": None if outcome.stop_reason is None else outcome.stop_reason.value,
        "resolved_by": clip_name(outcome.resolved_by),
    }


def _time(at: datetime) -> str:
    """In UTC with microseconds, so that nothing is lost; a time without a zone is taken as UTC."""
    utc = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    return utc.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _finite(seconds: float) -> float:
    return float(seconds) if math.isfinite(seconds) else 0.0
