"""Reads what ``useChat`` posts: the state to run, and the id under which the answer is told."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from msgspec.structs import replace

from stepwell.broadcasting.ai_sdk.history import ClientInputError, UiMessage, ui_messages
from stepwell.broadcasting.ai_sdk.stop import approval_id
from stepwell.messages import Message
from stepwell.state import AgentState, Approval, Pending, PendingKind

_NO_ANSWER = "the user gave no answer and wrote something else instead"
_UNANSWERED = object()


def response_message_id(body: Mapping[str, Any]) -> str | None:
    """The id of the answer that the client goes on with, or None if it begins a new one.

    >>> answer = {"id": "a1", "role": "assistant", "parts": []}
    >>> response_message_id({"messages": [answer]})
    'a1'
    """
    messages = _messages(body)
    named = body.get("messageId") if body.get("trigger") == "submit-message" else None
    for message in messages:
        if message.role == "assistant" and named is not None and message.id == named:
            return message.id
    return messages[-1].id if messages[-1].role == "assistant" else None


def state_from_ai_sdk(
    body: Mapping[str, Any],
    *,
    previous: AgentState | None = None,
    allow_system: bool = False,
) -> AgentState:
    """The state to run for the JSON that ``useChat`` posts.

    Without ``previous`` the conversation is what the client says it was. With ``previous``, the
    state that the last run of this chat ended in, only what is new is taken from the client: the
    user's messages, and the answers and approvals that the paused run waits for. Approvals are
    taken in no other way, since a client could claim any.

    Bad input is an ``ClientInputError``, which names the field; that includes messages of role
    ``system``, unless they are allowed.

    >>> hello = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Hello"}]}
    >>> state_from_ai_sdk({"id": "chat", "messages": [hello]}).messages[0].text
    'Hello'
    """
    messages = _messages(body)
    if not allow_system and (index := _first_system(messages)) is not None:
        raise ClientInputError(
            f"messages[{index}].role is 'system': a client must not instruct the agent; put "
            "instructions into its system_prompt, or call state_from_ai_sdk(..., allow_system=True)"
        )
    if previous is not None:
        return _continued(previous, messages)
    if messages[-1].role == "assistant" and not messages[-1].ends_with_tools:
        raise _nothing_new(len(messages) - 1)
    history = [part for message in messages for part in message.history]
    if not history:
        raise ClientInputError("messages hold nothing to answer: no text, no file, no tool call")
    return AgentState.empty().with_message(*history)


def _messages(body: Mapping[str, Any]) -> list[UiMessage]:
    if not isinstance(body, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ClientInputError(f"the body is {body!r:.80}; useChat posts a JSON object")
    given = body.get("messages")
    if not isinstance(given, list) or not given:
        raise ClientInputError(f"messages is {given!r:.80}; it must be a list with a message")
    return ui_messages(cast("list[Any]", given))


def _first_system(messages: Sequence[UiMessage]) -> int | None:
    return next((i for i, message in enumerate(messages) if message.role == "system"), None)


def _nothing_new(index: int) -> ClientInputError:
    return ClientInputError(
        f"messages[{index}] is an answer of the assistant, and nothing follows it; post a message "
        "of the user, or the output of a tool call that waits"
    )


def _continued(previous: AgentState, messages: Sequence[UiMessage]) -> AgentState:
    """The kept conversation with what is new; one that the client cut back is cut back as well."""
    state, news = _answered(previous, messages), _news(previous, messages)
    if state is not previous:
        return state.with_message(*news)
    if news:
        return _unanswered(previous).with_message(*news)
    asked = messages[-1]
    if asked.role != "user":
        raise _nothing_new(len(messages) - 1)
    kept = list(previous.messages)
    place = next((i for i, message in enumerate(kept) if message.id == asked.id), None)
    if place is None or not asked.history:
        raise ClientInputError(f"messages[{len(messages) - 1}].parts hold neither text nor a file")
    return replace(previous, execution=None).with_messages([*kept[:place], *asked.history])


def _news(previous: AgentState, messages: Sequence[UiMessage]) -> list[Message]:
    """What the user said that is not in the kept conversation."""
    known = {message.id for message in previous.messages}
    said = [message for message in messages if message.role != "assistant"]
    return [part for message in said if message.id not in known for part in message.history]


def _answered(previous: AgentState, messages: Sequence[UiMessage]) -> AgentState:
    state = previous
    for asked in previous.pending:
        if asked.call_id is None:
            continue
        answer = _answer_to(asked, previous, messages)
        if answer is not _UNANSWERED:
            state = state.with_answer(asked.call_id, answer)
    return state


def _answer_to(asked: Pending, previous: AgentState, messages: Sequence[UiMessage]) -> Any:
    part = next(
        (part for m in reversed(messages) if (part := m.tool_part(asked.call_id)) is not None), None
    )
    if part is None or previous.execution is None:
        return _UNANSWERED
    if asked.kind is PendingKind.APPROVAL:
        named = approval_id(previous.execution.id, previous.step_count, asked.call_id or "")
        approval = part.approval
        if part.state != "approval-responded" or approval.get("id") != named:
            return _UNANSWERED
        if approval.get("approved") is True:
            return Approval.granted()
        return Approval.denied(str(approval.get("reason") or ""))
    if part.state == "output-available":
        return part.output
    return part.error_text if part.state == "output-error" else _UNANSWERED


def _unanswered(previous: AgentState) -> AgentState:
    """The user went on without an answer; the run does, too."""
    state = previous
    for asked in previous.pending:
        if asked.call_id is not None:
            is_approval = asked.kind is PendingKind.APPROVAL
            answer = Approval.denied(_NO_ANSWER) if is_approval else f"({_NO_ANSWER})"
            state = state.with_answer(asked.call_id, answer)
    return state
