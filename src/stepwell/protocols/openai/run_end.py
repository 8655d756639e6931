"""How a run ended, for clients that know only finished texts and errors. Pure."""

from typing import Any

from msgspec import Struct

from stepwell.continuation import AgentStatus
from stepwell.errors import StepwellError
from stepwell.messages import FinishReason, Usage
from stepwell.state import AgentState, PendingKind, Question
from stepwell.text import json_bytes, truncate

_LONGEST_ARGUMENTS = 500


class RunFailedError(StepwellError):
    """Raised by ``result`` for a run that failed or was cancelled; ``code`` is for programs."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class CompletionIds(Struct, frozen=True, kw_only=True):
    """What an answer names: the run, its session and agent, and when it began."""

    execution_id: str
    session_id: str
    model: str
    created: int
    root_path: str = ""
    """Where the server is mounted."""

    def stop_data(self, state: AgentState | None) -> dict[str, Any]:
        """Return how the run ended as data, under a key that OpenAI's clients pass on."""
        stop = None if state is None else state.stop
        return {
            "execution_id": self.execution_id,
            "session_id": self.session_id,
            "status": None if state is None else state.status.value,
            "stop_reason": stop.stop_reason.value if stop and stop.stop_reason else None,
            "waits_for": [] if state is None else [_question(asked) for asked in state.pending],
        }


def failure(state: AgentState) -> RunFailedError | None:
    """Return the error of a run that failed or was cancelled; None for any other."""
    if state.status not in (AgentStatus.FAILED, AgentStatus.CANCELLED):
        return None
    stop = state.stop
    reason = None if stop is None else stop.stop_reason
    return RunFailedError(state.explain(), state.status.value if reason is None else reason.value)


def finish_reason(state: AgentState, last: FinishReason | None) -> str:
    """Return OpenAI's finish reason; a run that a limit stopped counts as cut off."""
    if state.status is AgentStatus.STOPPED or last is FinishReason.LENGTH:
        return "length"
    return "content_filter" if last is FinishReason.CONTENT_FILTER else "stop"


def question_text(state: AgentState, ids: CompletionIds) -> str | None:
    """Return what a paused run waits for and where to answer; None for any other run."""
    if state.status is not AgentStatus.PAUSED:
        return None
    lines = ["The agent waits for a person:"]
    lines += [f"- {_question_line(asked)} (question_id {asked.id})" for asked in state.pending]
    run = f"{ids.root_path}/agent/executions/{ids.execution_id}"
    kinds = {asked.kind for asked in state.pending}
    if kinds - {PendingKind.BUDGET}:
        answer = '{"approved": true}' if PendingKind.APPROVAL in kinds else '"..."'
        body = f'{{"question_id": "...", "answer": {answer}}}'
        lines.append(f"Answer with POST {run}/answer and {body}, or on the web page.")
    if PendingKind.BUDGET in kinds:
        body = '{"question_id": "...", "steps": 10}'
        lines.append(f"Grant more with POST {run}/resume and {body}, or on the web page.")
    return "\n".join(lines)


def chat_usage(usage: Usage) -> dict[str, Any]:
    """Return token counts in the form of chat completions."""
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def responses_usage(usage: Usage) -> dict[str, Any]:
    """Return token counts in the form of responses."""
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def error_data(error: RunFailedError) -> dict[str, Any]:
    """Return an error object.

    >>> error_data(RunFailedError("no luck", "error"))["type"]
    'server_error'
    """
    shown: dict[str, Any] = {"message": str(error), "type": "server_error", "param": None}
    return {**shown, "code": error.code}


def _question_line(asked: Question) -> str:
    arguments = asked.details.get("arguments")
    if asked.kind is not PendingKind.APPROVAL or arguments is None:
        return asked.prompt
    text = truncate(json_bytes(arguments).decode(), _LONGEST_ARGUMENTS)
    return f"approval of {asked.tool_name} with {text}"


def _question(asked: Question) -> dict[str, Any]:
    return {"question_id": asked.id, "kind": asked.kind.value, "prompt": asked.prompt}
