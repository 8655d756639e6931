"""The task of an execution: what the user asked for. The critic judges answers against it."""

from msgspec.structs import replace

from stepwell.agent.metadata_keys import CRITIQUE, RESERVED_PREFIX
from stepwell.messages import Message, TextPart
from stepwell.state import AgentState

TASK = f"{RESERVED_PREFIX}critique_task"
"""Metadata key of the task, so that it survives a summary of its messages."""


def with_task_stored(state: AgentState) -> AgentState:
    """Store the task at the start of an execution and drop the previous judgement."""
    kept = {key: value for key, value in state.metadata.items() if key != CRITIQUE}
    stored = {"execution": _execution_id(state), "text": _last_request(state)}
    return replace(state, metadata={**kept, TASK: stored})


def _last_request(state: AgentState) -> str:
    """Return the user's messages since the last answer, or, if there are none, those before it."""
    texts: list[str] = []
    for message in reversed(state.messages):
        if _is_from_user(message):
            texts.append(_text_of(message))
        elif texts and (message.is_assistant() or message.is_tool()):
            break
    return "\n\n".join(reversed(texts))


def task_of(state: AgentState) -> str:
    """Return the task and the user's messages since the execution started."""
    stored = state.metadata.get(TASK, {})
    if stored.get("execution") != _execution_id(state):  # started without the critic
        return _last_request(state)
    own = {message.id for taken in state.steps for message in taken.step.messages}
    texts, is_after_start = [str(stored["text"])], False
    for message in state.messages:
        is_after_start = is_after_start or message.id in own
        if is_after_start and _is_from_user(message):
            texts.append(_text_of(message))
    return "\n\n".join(texts)


def _is_from_user(message: Message) -> bool:
    """Return whether a person wrote it; messages added by capabilities name their source."""
    return message.is_user() and "source" not in message.metadata


def _text_of(message: Message) -> str:
    hidden = sum(not isinstance(part, TextPart) for part in message.parts)
    return f"{message.text}\n({hidden} attachments are not shown)" if hidden else message.text


def _execution_id(state: AgentState) -> str:
    return "" if state.execution is None else state.execution.id
