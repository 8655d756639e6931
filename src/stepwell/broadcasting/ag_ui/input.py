"""What an AG-UI client sends (RunAgentInput), turned into the state to run.

The shapes are checked here, so that a handler can answer bad input with the field that is wrong.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import DecodeError, ValidationError, convert, json

from stepwell.broadcasting.ag_ui.ending import interrupt_id
from stepwell.broadcasting.ag_ui.messages import ADDED_RESULT, OWN_KEY, CallIds
from stepwell.broadcasting.ag_ui.shapes import (
    GrantedBudget,
    RunInput,
    SentActivity,
    SentAnswer,
    SentAssistant,
    SentAudio,
    SentCall,
    SentContent,
    SentDeveloper,
    SentDocument,
    SentImage,
    SentReasoning,
    SentResult,
    SentSystem,
    SentText,
    SentUser,
    SentVideo,
)
from stepwell.broadcasting.client_stream import ClientInputError
from stepwell.errors import StepwellError
from stepwell.ids import new_id
from stepwell.messages import (
    FilePart,
    ImagePart,
    Message,
    Part,
    Role,
    TextPart,
    ToolCall,
    ToolResult,
)
from stepwell.state import AgentState, Approval, Pending, PendingKind

NO_RESULT = (
    "Error: there is no result: the run was left before this call ended. What it had begun may "
    "have taken effect."
)
NOT_ANSWERED = "The person did not answer."


def state_from_ag_ui(
    input: Mapping[str, Any] | bytes | str, *, previous: AgentState | None = None
) -> AgentState:
    """The state to run for a RunAgentInput, as JSON or decoded.

    Without ``previous`` the conversation is what the client says it was. With the state that was
    kept for this thread, only what is new is taken from the client: the user's messages, and in
    ``resume`` the answers to what the paused run waits for.

    Tools, context and state that a page offers are not used. Reasoning, activities and messages of
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
    given = _read(input)
    if previous is not None:
        return _continued(previous, given)
    if given.resume:
        raise ClientInputError(
            "resume: answers go to a paused run, whose state must be given as previous="
        )
    history = _history(given)
    if not history:
        raise ClientInputError("messages hold nothing to answer; send at least one message")
    return AgentState.empty().with_messages(history)


def _continued(previous: AgentState, given: RunInput) -> AgentState:
    known = {message.id for message in previous.messages}
    said = [m for m in _history(given) if m.is_user() and m.id not in known]
    answers = given.resume or ()
    if said and not answers:
        # The page was loaded anew, say: the person goes on without an answer, and so does the run.
        ids = CallIds()
        ids.learn(previous.messages)
        asked = [p for p in previous.pending if p.call_id is not None]
        answers = [SentAnswer(interrupt_id(p, ids), "cancelled") for p in asked]
    return _answered(previous, answers).with_message(*said)


def _read(input: Mapping[str, Any] | bytes | str) -> RunInput:
    try:
        data = json.decode(input) if isinstance(input, bytes | str) else input
        return convert(data, RunInput)
    except ValidationError as error:
        raise ClientInputError(f"this is no AG-UI RunAgentInput: {error}") from None
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ClientInputError(f"the input is not JSON: {error}") from None


def _history(given: RunInput) -> list[Message]:
    """The messages in the form that providers accept: each call is followed by its result."""
    own = [(n, m) for n, m in enumerate(given.messages) if m.subagent_run_id is None]
    results: dict[str, list[tuple[int, SentResult]]] = {}
    for number, message in own:
        if isinstance(message, SentResult):
            results.setdefault(message.tool_call_id, []).append((number, message))
    history: list[Message] = []
    for number, message in own:
        match message:
            case SentUser():
                parts = _parts(message.content, f"messages[{number}].content")
                history.append(Message.user(parts, id=message.id))
            case SentSystem():
                history.append(Message.system(message.content, id=message.id))
            case SentDeveloper():
                history.append(Message.developer(message.content, id=message.id))
            case SentAssistant():
                calls = [_call(call) for call in message.tool_calls or ()]
                history.append(Message.assistant(message.content or "", calls, id=message.id))
                history += [_result(call, results.get(call.id)) for call in calls]
            case SentResult() | SentReasoning() | SentActivity():
                pass
    for number, _ in sorted(left for several in results.values() for left in several):
        raise ClientInputError(
            f"messages[{number}].toolCallId: no assistant message makes that call, or it has "
            "another result already"
        )
    return history


def _result(call: ToolCall, given: list[tuple[int, SentResult]] | None) -> Message:
    if not given:
        added = ToolResult(call_id=call.id, tool_name=call.name, content=NO_RESULT, is_error=True)
        return Message.of(Role.TOOL, (added,), id=new_id(), metadata=ADDED_RESULT)
    number, sent = given.pop(0)
    parts = _parts(sent.content, f"messages[{number}].content")
    result = ToolResult(
        call_id=call.id,
        tool_name=call.name,
        content="".join(part.text for part in parts if isinstance(part, TextPart)),
        is_error=sent.error is not None,
    )
    return Message.tool(result, id=sent.id)


def _call(sent: SentCall) -> ToolCall:
    arguments, malformed = _arguments(sent.function.arguments)
    own = (sent.metadata or {}).get(OWN_KEY)
    if isinstance(own, Mapping) and isinstance(own.get("malformed"), str):  # pyright: ignore[reportUnknownMemberType]
        malformed = str(own["malformed"])  # pyright: ignore[reportUnknownArgumentType]
    return ToolCall(
        id=sent.id,
        name=sent.function.name,
        arguments=arguments,
        malformed=malformed,
        signature=sent.encrypted_value,
    )


def _arguments(text: str) -> tuple[dict[str, Any], str | None]:
    try:
        return json.decode(text or "{}", type=dict[str, Any]), None
    except (DecodeError, RecursionError):  # left in the middle, or never an object
        return {}, text


def _parts(content: SentContent, field: str) -> tuple[Part, ...]:
    if isinstance(content, str):
        return (TextPart(content),) if content else ()
    return tuple(_part(part, f"{field}[{index}]") for index, part in enumerate(content))


def _part(part: "SentText | SentImage | SentAudio | SentVideo | SentDocument", field: str) -> Part:
    if isinstance(part, SentText):
        return TextPart(part.text)
    source = part.source
    if source.type not in ("url", "data"):
        raise ClientInputError(
            f"{field}.source.type: {source.type!r} can't be read here; send a url or the data"
        )
    url, data = (source.value, None) if source.type == "url" else (None, source.value)
    if isinstance(part, SentImage):
        return ImagePart(url=url, data=data, media_type=source.mime_type)
    name = (part.metadata or {}).get("name")
    named = name if isinstance(name, str) else None
    return FilePart(url=url, data=data, media_type=source.mime_type, name=named)


def _answered(state: AgentState, answers: Iterable[SentAnswer]) -> AgentState:
    ids = CallIds()
    ids.learn(state.messages)
    for number, answer in enumerate(answers):
        asked = {interrupt_id(pending, ids): pending for pending in state.pending}
        pending = asked.get(answer.interrupt_id)
        if pending is None:
            raise ClientInputError(
                f"resume[{number}].interruptId: nothing waits for {answer.interrupt_id!r}; "
                f"waiting: {', '.join(asked) or '(none)'}"
            )
        if answer.status not in ("resolved", "cancelled"):
            raise ClientInputError(
                f"resume[{number}].status: {answer.status!r} is neither resolved nor cancelled"
            )
        try:
            state = _with_answer(state, pending, answer)
        except (StepwellError, ValidationError) as error:
            raise ClientInputError(f"resume[{number}].payload: {error}") from None
    return state


def _with_answer(state: AgentState, asked: Pending, answer: SentAnswer) -> AgentState:
    is_given = answer.status == "resolved"
    if asked.kind is PendingKind.BUDGET or asked.call_id is None:
        # Without more, the run pauses again at once and asks the same.
        more = convert(answer.payload, GrantedBudget) if is_given else GrantedBudget()
        return state.with_budget_granted(
            steps=more.steps, tokens=more.tokens, seconds=more.seconds, cost=more.cost
        )
    if asked.kind is PendingKind.APPROVAL:
        word = _approval(answer.payload) if is_given else Approval.denied(NOT_ANSWERED)
        return state.with_answer(asked.call_id, word)
    return state.with_answer(asked.call_id, answer.payload if is_given else NOT_ANSWERED)


def _approval(payload: Any) -> Any:
    """AG-UI's word for other arguments is ``editedArgs``."""
    if not isinstance(payload, Mapping) or "editedArgs" not in payload:
        return payload  # pyright: ignore[reportUnknownVariableType]
    edited: dict[str, Any] = {**payload}
    edited["arguments"] = edited.pop("editedArgs")
    return edited
