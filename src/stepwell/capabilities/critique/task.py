"""What the user asked for in an execution; the critic judges answers against it."""

from msgspec.structs import replace

from stepwell.agent.metadata_keys import CRITIQUE, RESERVED_PREFIX
from stepwell.messages import Message, TextPart
from stepwell.state import AgentState

TASK = f"{RESERVED_PREFIX}critique_task"
"""The metadata key of the task, which is still known when its messages were summarized."""


def with_task_noted(state: AgentState) -> AgentState:
    """At the start of an execution: what is asked now is the task, and no answer was judged yet."""
    kept = {key: value for key, value in state.metadata.items() if key != CRITIQUE}
    noted = {"execution": _execution_id(state), "text": _asked_last(state)}
    return replace(state, metadata={**kept, TASK: noted})


def _asked_last(state: AgentState) -> str:
    """What the user said since the last answer, or, if nothing, before it."""
    said: list[str] = []
    for message in reversed(state.messages):
        if _is_said_by_user(message):
            said.append(_shown(message))
        elif said and (message.is_assistant() or message.is_tool()):
            break
    return "\n\n".join(reversed(said))


def task_of(state: AgentState) -> str:
    """The task, and what the user said since the execution began."""
    noted = state.metadata.get(TASK, {})
    if noted.get("execution") != _execution_id(state):  # it began without the critic
        return _asked_last(state)
    own = {message.id for taken in state.steps for message in taken.step.messages}
    said, is_behind_first_step = [str(noted["text"])], False
    for message in state.messages:
        is_behind_first_step = is_behind_first_step or message.id in own
        if is_behind_first_step and _is_said_by_user(message):
            said.append(_shown(message))
    return "\n\n".join(said)


def _is_said_by_user(message: Message) -> bool:
    """Whether a person said it; what capabilities add names its source."""
    return message.is_user() and "source" not in message.metadata


def _shown(message: Message) -> str:
    hidden = sum(not isinstance(part, TextPart) for part in message.parts)
    return f"{message.text}\n({hidden} attachments are not shown)" if hidden else message.text


def _execution_id(state: AgentState) -> str:
    return "" if state.execution is None else state.execution.id
