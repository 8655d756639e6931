"""Grants a paused execution more budget, and resumes executions that were set aside."""

from msgspec import Struct
from msgspec.structs import asdict, replace

from stepwell.errors import AgentNotFoundError, StepwellError
from stepwell.journal.status import ExecutionStatus
from stepwell.sessions.directory import AgentDirectory, RegisteredAgent
from stepwell.sessions.errors import ConflictError, QuestionChangedError, RefusedError
from stepwell.sessions.narration import pending_data
from stepwell.sessions.records import Execution
from stepwell.sessions.requests.answer import question_of
from stepwell.sessions.requests.resume import Decide, ResumedExecution
from stepwell.state import AgentState, PendingKind

CRASHES = "crashes"
DEFINITION_CHANGED = "definition_changed"
_STATUS_OF = {
    CRASHES: ExecutionStatus.FAILED,
    DEFINITION_CHANGED: ExecutionStatus.STOPPED,
}
"""Why executions are set aside (``metadata.set_aside``), and as what."""


class BudgetGrant(Struct, frozen=True, kw_only=True):
    """A budget on top of the agent's limits."""

    steps: int = 0
    tokens: int = 0
    seconds: float = 0.0
    cost: float = 0.0

    @property
    def is_nothing(self) -> bool:
        """Whether nothing is granted."""
        return self == NO_GRANT

    def add_to(self, state: AgentState) -> AgentState:
        """Return the state with this budget added. Raises ``RefusedError``."""
        try:
            return state.with_budget_granted(**asdict(self))
        except StepwellError as error:
            raise RefusedError(str(error), code="bad_budget") from error


NO_GRANT = BudgetGrant()


def decide_grant(
    grant: BudgetGrant,
    agents: AgentDirectory,
    *,
    question_id: str | None = None,
    accept_change: bool,
) -> Decide:
    """Return the decision on how a grant resumes an execution."""

    def decide(execution: Execution, state: AgentState | None) -> ResumedExecution:
        if execution.status is ExecutionStatus.PAUSED and state is not None:
            return _with_budget(execution, state, grant, question_id)
        if question_id is not None:
            raise QuestionChangedError(
                f"execution {execution.id} is {execution.status} and waits for no more budget",
                code="not_waiting",
            )
        return _resume_set_aside(execution, state, grant, agents, accept_change=accept_change)

    return decide


def _with_budget(
    execution: Execution, state: AgentState, grant: BudgetGrant, question_id: str | None
) -> ResumedExecution:
    asked = [p for p in state.pending if p.kind is not PendingKind.BUDGET]
    if grant.is_nothing:
        listed = ", ".join(f"{p.call_id} ({p.kind}: {p.prompt:.80})" for p in asked)
        what = f"an answer to {listed}; answer it" if asked else "something that is not known"
        if _asks_for_budget(state):
            what = "more budget; say how many steps, tokens, seconds or how much cost to grant"
        raise _not_resumable(execution, f"it waits for {what}")
    if question_id is not None or _asks_for_budget(state):
        named = question_of(state, question_id)
        if named.kind is not PendingKind.BUDGET:
            raise _not_resumable(execution, f"question {named.id} is not for budget; answer it")
    state = grant.add_to(state)
    goes_on = not state.pending
    changed = replace(
        execution,
        status=ExecutionStatus.PENDING if goes_on else ExecutionStatus.PAUSED,
        pending=pending_data(state),
    )
    text = "Budget granted, execution queued" if goes_on else "Budget granted, an answer is missing"
    return ResumedExecution(execution=changed, state=state, text=text)


def _asks_for_budget(state: AgentState) -> bool:
    return any(asked.kind is PendingKind.BUDGET for asked in state.pending)


def _resume_set_aside(
    execution: Execution,
    state: AgentState | None,
    grant: BudgetGrant,
    agents: AgentDirectory,
    *,
    accept_change: bool,
) -> ResumedExecution:
    why = execution.metadata.get("set_aside")
    if not isinstance(why, str) or _STATUS_OF.get(why) is not execution.status:
        raise _not_resumable(execution, _why_not_resumable(execution))
    if why == DEFINITION_CHANGED and not accept_change:
        raise _not_resumable(
            execution,
            f"the definition of {execution.agent_type!r} has changed since it began; say "
            "accept_change to go on with the new one",
        )
    agent = _agent(execution, agents)
    has_more = state is not None and not grant.is_nothing
    state = grant.add_to(state) if state is not None and has_more else None
    metadata = {name: value for name, value in execution.metadata.items() if name != "set_aside"}
    changed = replace(
        execution,
        status=ExecutionStatus.PENDING,
        crashes=0,
        metadata=metadata,
        stop_reason=None,
        decision=None,
        error_message=None,
        cancel_requested=None,
        completed_at=None,
        worker_id=None,
    )
    if accept_change:
        changed = replace(changed, definition_hash=agent.definition_hash, agent_config=agent.config)
    return ResumedExecution(execution=changed, state=state, text="Taken up again, execution queued")


def _agent(execution: Execution, agents: AgentDirectory) -> RegisteredAgent:
    try:
        return agents.get(execution.agent_type)
    except AgentNotFoundError as error:
        raise ConflictError(
            f"the agent {execution.agent_type!r} of execution {execution.id} is not registered any "
            "more",
            code="agent_gone",
        ) from error


def _why_not_resumable(execution: Execution) -> str:
    match execution.status:
        case ExecutionStatus.PENDING:
            return "it is queued already"
        case ExecutionStatus.RUNNING:
            return "it is running"
        case ExecutionStatus.PAUSED:
            return "its state is not stored"
        case _:
            return "it is over; send a message to go on in its session, or fork it"


def _not_resumable(execution: Execution, why: str) -> ConflictError:
    return ConflictError(
        f"execution {execution.id} ({execution.status}) can't be resumed: {why}",
        code="not_resumable",
    )
