"""Converts the input of an AG-UI client (RunAgentInput) into the state to run.

Bad input raises ``ClientInputError``, which names the field.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import ValidationError, convert

from stepwell.errors import StepwellError
from stepwell.messages import Message
from stepwell.protocols.ag_ui.history import conversation
from stepwell.protocols.ag_ui.shapes import GrantedBudget, RunInput, SentAnswer
from stepwell.protocols.client_input import Sent, check_previous, read_json
from stepwell.protocols.client_stream import ClientInputError
from stepwell.state import AgentState, Approval, Pending, PendingKind, Question

NOT_ANSWERED = "The person did not answer."


def state_from_ag_ui(
    input: Sent,
    *,
    previous: AgentState | None = None,
    allow_system: bool = False,
    may_grant: bool = False,
    may_edit: bool = False,
) -> AgentState:
    """Return the state to run for a RunAgentInput, as JSON or decoded.

    Without ``previous`` the client's messages are the conversation. With ``previous``, the state
    that was kept for this thread, only new input counts: the user's messages, and in ``resume`` the
    answers to the questions of a paused run. With ``may_grant`` the client may grant budget, with
    ``may_edit`` it may change the arguments of a call that it approves.

    Messages of the roles ``system`` and ``developer`` are ignored unless ``allow_system``. So are
    the tools, context and state of a page, reasoning, activities and messages of subagents. Raises
    ``ClientInputError``, which names the field, for bad input.

    >>> sent = {
    ...     "threadId": "t",
    ...     "runId": "r",
    ...     "messages": [{"id": "m1", "role": "user", "content": "Hello"}],
    ... }
    >>> state_from_ag_ui(sent).messages[0].text
    'Hello'
    """
    check_previous(previous)
    given = _read(input)
    history = conversation(given.messages, allow_system=allow_system)
    if previous is not None:
        rights = _Rights(may_grant=may_grant, may_edit=may_edit)
        return _continue(previous, history, given.resume or (), rights)
    if given.resume:
        raise ClientInputError(
            "resume: answers go to a paused run, whose state must be given as previous="
        )
    if not history:
        raise ClientInputError("messages has nothing to answer; send at least one message")
    return AgentState.empty().with_messages(history)


class _Rights:
    """What a client may change."""

    def __init__(self, *, may_grant: bool, may_edit: bool) -> None:
        self._may_grant = may_grant
        self._may_edit = may_edit

    def check(self, asked: Pending, payload: Any, where: str) -> None:
        """Raise ``ClientInputError`` if the client may not give this answer."""
        is_budget = asked.kind is PendingKind.BUDGET or asked.call_id is None
        if is_budget and not self._may_grant:
            raise ClientInputError(
                f"{where} grants budget, which a client may not do; the server allows it with "
                " state_from_ag_ui(..., may_grant=True)"
            )
        is_edited = isinstance(payload, Mapping) and bool({"editedArgs", "arguments"} & {*payload})
        if asked.kind is PendingKind.APPROVAL and is_edited and not self._may_edit:
            raise ClientInputError(
                f"{where} changes the arguments of the call, which a client may not do; the "
                "server allows it with state_from_ag_ui(..., may_edit=True)"
            )


def _continue(
    previous: AgentState, history: list[Message], answers: Iterable[SentAnswer], rights: _Rights
) -> AgentState:
    known = {message.id for message in previous.messages}
    kept = [message for message in history if not message.is_assistant() and not message.is_tool()]
    said = [message for message in kept if message.id not in known]
    if not answers and not said:
        raise ClientInputError(
            "messages and resume contain nothing new; send a message of the user, or answers to "
            "the questions of the run"
        )
    if not answers:
        # As after a reload: the person goes on without an answer, and so does the run.
        asked = [p for p in previous.pending if p.call_id is not None]
        answers = [SentAnswer(p.id, "cancelled") for p in asked]
    return _with_answers(previous, answers, rights).with_message(*said)


def _read(input: Sent) -> RunInput:
    try:
        return convert(read_json(input), RunInput)
    except ValidationError as error:
        raise ClientInputError(f"this is not an AG-UI RunAgentInput: {error}") from None


def _with_answers(state: AgentState, answers: Iterable[SentAnswer], rights: _Rights) -> AgentState:
    for number, answer in enumerate(answers):
        asked = {pending.id: pending for pending in state.pending}
        pending = asked.get(answer.interrupt_id)
        if pending is None:
            raise ClientInputError(
                f"resume[{number}].interruptId: nothing waits for {answer.interrupt_id!r:.80}; "
                f"waiting: {', '.join(asked) or '(none)'}"
            )
        if answer.status not in ("resolved", "cancelled"):
            raise ClientInputError(
                f"resume[{number}].status: {answer.status!r:.80} is neither resolved nor cancelled"
            )
        if answer.status == "resolved":
            rights.check(pending, answer.payload, f"resume[{number}].payload")
        try:
            state = _with_answer(state, pending, answer)
        except (StepwellError, ValidationError) as error:
            raise ClientInputError(f"resume[{number}].payload: {error}") from None
    return state


def _with_answer(state: AgentState, asked: Question, answer: SentAnswer) -> AgentState:
    is_given = answer.status == "resolved"
    if asked.kind is PendingKind.BUDGET or asked.call_id is None:
        # Without a grant the run pauses again and asks the same.
        more = convert(answer.payload, GrantedBudget) if is_given else GrantedBudget()
        return state.with_budget_granted(
            steps=more.steps, tokens=more.tokens, seconds=more.seconds, cost=more.cost
        )
    if asked.kind is PendingKind.APPROVAL:
        word = approval_answer(answer.payload) if is_given else Approval.denied(NOT_ANSWERED)
        return state.with_answer(asked, word)
    return state.with_answer(asked, answer.payload if is_given else NOT_ANSWERED)


def approval_answer(payload: Any) -> Any:
    """Return the answer with AG-UI's ``editedArgs`` renamed to ``arguments``."""
    if not isinstance(payload, Mapping) or "editedArgs" not in payload:
        return payload  # pyright: ignore[reportUnknownVariableType]
    edited: dict[str, Any] = {**payload}
    edited["arguments"] = edited.pop("editedArgs")
    return edited
