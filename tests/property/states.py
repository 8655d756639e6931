"""Random states, of anything that a state can hold."""

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from stepwell import (
    AgentState,
    AgentStatus,
    Approval,
    ContinuationDecision,
    ContinuationEvaluation,
    FinishReason,
    Message,
    StopReason,
    ToolCall,
    Usage,
)
from stepwell.continuation import ContinuationOutcome
from stepwell.errors import ErrorType
from stepwell.messages import FilePart, History, ImagePart, Role, TextPart, ThinkingPart, ToolResult
from stepwell.state import (
    AgentStep,
    Answered,
    Budget,
    ErrorInfo,
    ExecutionState,
    Pending,
    PendingKind,
    StepExecution,
    ToolExecution,
    ToolOutcome,
)

words = st.text(max_size=12)
odd_texts = st.text(st.characters(exclude_categories=()), max_size=20)  # lone surrogates as well
maybe_text = st.none() | words
amounts = st.floats(0, 1e12)
counts = st.integers(0, 2**70)
times = st.datetimes(
    datetime(1970, 1, 2),  # noqa: DTZ001 - the zone is drawn
    datetime(2200, 1, 1),  # noqa: DTZ001
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30))]),
).map(lambda at: at.replace(fold=0))
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | odd_texts
    | st.binary(max_size=8)
    | times
    | st.dates(date(1, 1, 1))
    | st.decimals(allow_nan=False).map(Decimal)
    | st.sampled_from(FinishReason)
)
keys = words | st.sampled_from(["$tuple", "$state", "$dict", "$", "type"])
open_data: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(keys | st.integers() | st.tuples(words), inner, max_size=3)
    ),
    max_leaves=6,
)
mappings = st.just({}) | st.dictionaries(keys, open_data, max_size=3)
usages = st.builds(Usage, input_tokens=counts, output_tokens=counts, cached_tokens=counts)
errors = st.builds(
    ErrorInfo,
    type=st.sampled_from(ErrorType),
    exception=words,
    message=odd_texts,
    tool_name=maybe_text,
    hook_name=maybe_text,
    retry_after=st.none() | amounts,
    kind=maybe_text,
    retryable=st.none() | st.booleans(),
    status=st.none() | st.integers(100, 599),
    request_id=maybe_text,
)
call_ids = st.sampled_from(["c1", "c2"]) | words
calls = st.builds(ToolCall, id=call_ids, name=words, arguments=mappings, malformed=maybe_text)
results = st.builds(
    ToolResult, call_id=call_ids, tool_name=words, content=odd_texts, is_error=st.booleans()
)
parts = (
    st.builds(TextPart, odd_texts)
    | st.builds(ImagePart, url=maybe_text, data=maybe_text, media_type=maybe_text)
    | st.builds(FilePart, url=maybe_text, data=maybe_text, name=maybe_text)
    | st.builds(ThinkingPart, words, signature=maybe_text, redacted=st.booleans())
    | calls
    | results
)
messages = st.builds(
    Message,
    role=st.sampled_from(Role),
    parts=st.lists(parts, max_size=3).map(tuple),
    id=words,
    metadata=mappings,
)
outcomes = st.builds(
    ContinuationOutcome,
    decision=st.sampled_from(ContinuationDecision),
    resolved_by=words,
    stop_reason=st.none() | st.sampled_from(StopReason),
    delay_seconds=amounts,
    evaluations=st.lists(
        st.builds(
            ContinuationEvaluation,
            criterion=words,
            decision=st.sampled_from(ContinuationDecision),
            reason=odd_texts,
            context=mappings,
            stop_reason=st.none() | st.sampled_from(StopReason),
            hint=maybe_text,
            delay_seconds=amounts,
        ),
        max_size=3,
    ).map(tuple),
)


@st.composite
def executed(draw: st.DrawFn, said: tuple[Message, ...]) -> ToolExecution:
    """A tool execution, as a rule of a call and with the text of the step's messages."""
    made = [call for message in said for call in message.tool_calls]
    shown = [it.tool_result.content for it in said if it.tool_result is not None]
    text = draw(st.sampled_from(shown) | odd_texts) if shown else draw(odd_texts)
    return ToolExecution(
        call=draw(st.sampled_from(made) | calls) if made else draw(calls),
        outcome=draw(st.sampled_from(ToolOutcome)),
        text=text,
        value=draw(st.just(text) | open_data),
        started_at=draw(times),
        completed_at=draw(times),
        duration_seconds=draw(amounts),
        error=draw(st.none() | errors),
        usage=draw(usages),
        cost=draw(amounts),
    )


@st.composite
def steps_of(draw: st.DrawFn, conversation: list[Message], number: int) -> StepExecution:
    """A recorded step, whose messages are as a rule among those of the conversation."""
    start = draw(st.integers(0, len(conversation)))
    said = tuple(conversation[start : start + draw(st.integers(0, 3))])
    if draw(st.integers(0, 3)) == 0:
        said = tuple(draw(st.lists(messages, max_size=2)))
    return StepExecution(
        number=number,
        step=AgentStep(
            messages=said,
            tool_executions=tuple(draw(st.lists(executed(said), max_size=2))),
            failures=tuple(draw(st.lists(errors, max_size=1))),
            usage=draw(usages),
            cost=draw(amounts),
            finish_reason=draw(st.none() | st.sampled_from(FinishReason)),
            model=draw(maybe_text),
            metadata=draw(mappings),
            **({"output": draw(open_data)} if draw(st.booleans()) else {}),
        ),
        outcome=draw(outcomes),
        started_at=draw(times),
        completed_at=draw(times),
        duration_seconds=draw(amounts),
    )


@st.composite
def executions(draw: st.DrawFn, conversation: list[Message], depth: int) -> ExecutionState:
    """An execution; what it waits for may hold another state."""
    steps = [draw(steps_of(conversation, i + 1)) for i in range(draw(st.integers(0, 3)))]
    kept = open_data if depth == 0 else open_data | states(depth - 1)
    pending = st.builds(
        Pending,
        kind=st.sampled_from(PendingKind),
        prompt=words,
        call_id=maybe_text,
        tool_name=maybe_text,
        details=mappings,
        resumes=st.booleans(),
        kept=kept,
        by_hook=st.booleans(),
    )
    approvals = st.builds(
        Approval, approved=st.booleans(), message=words, arguments=st.none() | mappings
    )
    answered = st.builds(
        Answered,
        call=calls,
        answer=open_data | approvals,
        kept=kept,
        by_hook=st.booleans(),
        made_in=st.integers(0, 9),
    )
    last = [steps[-1].outcome] if steps else []
    return ExecutionState(
        id=draw(words),
        started_at=draw(times),
        status=draw(st.sampled_from(AgentStatus)),
        steps=History.of(steps),
        outcome=draw(st.none() | outcomes | st.sampled_from(last) if last else st.none()),
        usage=draw(usages),
        cost=draw(amounts),
        consecutive_failures=draw(counts),
        total_failures=draw(counts),
        granted=draw(st.builds(Budget, steps=st.none() | counts, seconds=st.none() | amounts)),
        pending=tuple(draw(st.lists(pending, max_size=2))),
        answered=tuple(draw(st.lists(answered, max_size=1))),
        wrapping_up=draw(st.booleans()),
        wants_output=draw(st.booleans()),
    )


@st.composite
def states(draw: st.DrawFn, depth: int = 1) -> AgentState:
    """A state."""
    conversation = draw(st.lists(messages, max_size=5))
    return AgentState(
        agent_id=draw(words),
        parent_agent_id=draw(maybe_text),
        created_at=draw(times),
        updated_at=draw(times),
        messages=History.of(conversation),
        metadata=draw(mappings),
        execution_count=draw(counts),
        cumulative_seconds=draw(amounts),
        execution=draw(st.none() | executions(conversation, depth)),
    )
