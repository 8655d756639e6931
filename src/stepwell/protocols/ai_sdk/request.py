"""Reads what ``useChat`` posts: the state to run, and the message id of the answer."""

from collections.abc import Sequence
from typing import Any, cast

from msgspec.structs import replace

from stepwell.errors import StepwellError
from stepwell.messages import Message
from stepwell.protocols.ai_sdk.answers import find_answer
from stepwell.protocols.ai_sdk.history import UiMessage, ui_messages
from stepwell.protocols.call_ids import restore_call_ids
from stepwell.protocols.client_input import Sent, check_previous, read_json
from stepwell.protocols.client_stream import ClientInputError
from stepwell.state import AgentState, Approval, PendingKind

_NO_ANSWER = "the user gave no answer and wrote something else instead"


def response_message_id(body: Sent) -> str | None:
    """Return the id of the answer that the client continues, or None if it starts a new one.

    >>> answer = {"id": "a1", "role": "assistant", "parts": []}
    >>> response_message_id({"messages": [answer]})
    'a1'
    """
    posted = read_json(body)
    messages = _messages(posted.get("messages"))
    named = posted.get("messageId") if posted.get("trigger") == "submit-message" else None
    for message in messages:
        if message.role == "assistant" and named is not None and message.id == named:
            return message.id
    return messages[-1].id if messages[-1].role == "assistant" else None


def state_from_ai_sdk(
    body: Sent,
    *,
    previous: AgentState | None = None,
    allow_system: bool = False,
) -> AgentState:
    """Return the state to run for what ``useChat`` posts, as JSON or decoded.

    Without ``previous`` the client's messages are the conversation. With ``previous``, the last
    state of this chat, only new input counts: the user's messages, and the answers and approvals
    that the paused run waits for. Answers count only then, since a client could claim any, and only
    for the current question. A client can't grant budget; the server does, with
    ``previous.with_budget_granted()``.

    Messages of role ``system`` are ignored unless ``allow_system``. Raises ``ClientInputError``,
    which names the field, for bad input.

    >>> hello = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Hello"}]}
    >>> state_from_ai_sdk({"id": "chat", "messages": [hello]}).messages[0].text
    'Hello'
    """
    check_previous(previous)
    posted = _messages(read_json(body).get("messages"))
    messages = [message for message in posted if allow_system or message.role != "system"]
    if not messages:
        raise ClientInputError("messages has nothing to answer: only messages of role system")
    if previous is not None:
        return _continue(previous, messages)
    if messages[-1].role == "assistant" and not messages[-1].ends_with_tools:
        raise _nothing_new_error(messages[-1])
    history = [part for message in messages for part in message.history]
    if not history:
        raise ClientInputError("messages has nothing to answer: no text, no file, no tool call")
    return AgentState.empty().with_message(*restore_call_ids(history))


def _messages(given: Any) -> list[UiMessage]:
    if not isinstance(given, list) or not given:
        raise ClientInputError(f"messages is {given!r:.80}; it must be a list with a message")
    return ui_messages(cast("list[Any]", given))


def _nothing_new_error(last: UiMessage) -> ClientInputError:
    return ClientInputError(
        f"{last.where} is an answer of the assistant, and nothing follows it; post a message "
        "of the user, or the output of a tool call that waits"
    )


def _continue(previous: AgentState, messages: Sequence[UiMessage]) -> AgentState:
    """Return the kept conversation with what is new, truncated where the client truncated it."""
    state, news = _with_answers(previous, messages), _news(previous, messages)
    if state is not previous:
        return state.with_message(*news)
    if news:
        return _without_answers(previous).with_message(*news)
    asked = messages[-1]
    if asked.role != "user":
        raise _nothing_new_error(asked)
    kept = list(previous.messages)
    place = next((i for i, message in enumerate(kept) if message.id == asked.id), None)
    if place is None or not asked.history:
        raise ClientInputError(f"{asked.where}.parts hold neither text nor a file")
    return replace(previous, execution=None).with_messages([*kept[:place], *asked.history])


def _news(previous: AgentState, messages: Sequence[UiMessage]) -> list[Message]:
    """Return the user's messages that the kept conversation does not have."""
    known = {message.id for message in previous.messages}
    said = [message for message in messages if message.role != "assistant"]
    return [part for message in said if message.id not in known for part in message.history]


def _with_answers(previous: AgentState, messages: Sequence[UiMessage]) -> AgentState:
    state = previous
    for asked in previous.pending:
        answer = find_answer(messages, question_id=asked.id, kind=asked.kind)
        if answer is None:
            continue
        try:
            state = state.with_answer(asked, answer[0])
        except StepwellError as error:
            raise ClientInputError(f"the output of call {asked.call_id!r:.80}: {error}") from None
    return state


def _without_answers(previous: AgentState) -> AgentState:
    """Return the state with 'no answer' for all questions: the user wrote something else."""
    state = previous
    for asked in previous.pending:
        if asked.call_id is not None:
            is_approval = asked.kind is PendingKind.APPROVAL
            answer = Approval.denied(_NO_ANSWER) if is_approval else f"({_NO_ANSWER})"
            state = state.with_answer(asked, answer)
    return state
