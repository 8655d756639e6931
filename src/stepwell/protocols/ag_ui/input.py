"""What an AG-UI client sends (RunAgentInput), turned into the state to run.

The shapes are checked here, so that a handler can answer bad input with the field that is wrong.
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
    """The state to run for a RunAgentInput, as JSON or decoded.

    Without ``previous`` the conversation is what the client says it was. With the state that was
    kept for this thread, only what is new is taken from the client: the user's messages, and in
    ``resume`` the answers to what the paused run waits for. More budget is taken from a client that
    ``may_grant``, and other arguments for a call that it approves from one that ``may_edit``.

    Messages of the roles ``system`` and ``developer`` are left out, unless ``allow_system``. Tools,
    context and state that a page offers are not used. Reasoning, activities and messages of
    subagents are no part of a history. Raises ``ClientInputError``, which names the field, for
    bad input.

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
        return _continued(previous, history, given.resume or (), rights)
    if given.resume:
        raise ClientInputError(
            "resume: answers go to a paused run, whose state must be given as previous="
        )
    if not history:
        raise ClientInputError("messages hold nothing to answer; send at least one message")
    return AgentState.empty().with_messages(history)


class _Rights:
    """What a client may decide."""

    def __init__(self, *, may_grant: bool, may_edit: bool) -> None:
        self._may_grant = may_grant
        self._may_edit = may_edit

    def check(self, asked: Pending, payload: Any, where: str) -> None:
        """Refuses what the client has no right to."""
        is_budget = asked.kind is PendingKind.BUDGET or asked.call_id is None
        if is_budget and not self._may_grant:
            raise ClientInputError(
                f"{where} grants budget, which is not taken from a client; the server allows it "
                "with state_from_ag_ui(..., may_grant=True)"
            )
        is_edited = isinstance(payload, Mapping) and bool({"editedArgs", "arguments"} & {*payload})
        if asked.kind is PendingKind.APPROVAL and is_edited and not self._may_edit:
            raise ClientInputError(
                f"{where} edits the arguments of the call, which is not taken from a client; the "
                "server allows it with state_from_ag_ui(..., may_edit=True)"
            )


def _continued(
    previous: AgentState, history: list[Message], answers: Iterable[SentAnswer], rights: _Rights
) -> AgentState:
    known = {message.id for message in previous.messages}
    kept = [message for message in history if not message.is_assistant() and not message.is_tool()]
    said = [message for message in kept if message.id not in known]
    if not answers and not said:
        raise ClientInputError(
            "messages and resume hold nothing new; send a message of the user, or answers to what "
            "the run waits for"
        )
    if not answers:
        # The page was loaded anew, say: the person goes on without an answer, and so does the run.
        asked = [p for p in previous.pending if p.call_id is not None]
        answers = [SentAnswer(p.id, "cancelled") for p in asked]
    return _answered(previous, answers, rights).with_message(*said)


def _read(input: Sent) -> RunInput:
    try:
        return convert(read_json(input), RunInput)
    except ValidationError as error:
        raise ClientInputError(f"this is no AG-UI RunAgentInput: {error}") from None


def _answered(state: AgentState, answers: Iterable[SentAnswer], rights: _Rights) -> AgentState:
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
        # Without more, the run pauses again at once and asks the same.
        more = convert(answer.payload, GrantedBudget) if is_given else GrantedBudget()
        return state.with_budget_granted(
            steps=more.steps, tokens=more.tokens, seconds=more.seconds, cost=more.cost
        )
    if asked.kind is PendingKind.APPROVAL:
        word = _approval(answer.payload) if is_given else Approval.denied(NOT_ANSWERED)
        return state.with_answer(asked, word)
    return state.with_answer(asked, answer.payload if is_given else NOT_ANSWERED)


def _approval(payload: Any) -> Any:
    """AG-UI's word for other arguments is ``editedArgs``."""
    if not isinstance(payload, Mapping) or "editedArgs" not in payload:
        return payload  # pyright: ignore[reportUnknownVariableType]
    edited: dict[str, Any] = {**payload}
    edited["arguments"] = edited.pop("editedArgs")
    return edited
